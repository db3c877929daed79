"""What is worth keeping of a sweep, as small files that can be committed, and read again."""

import csv
import io
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from relval.experiments.scores import human_normalised, knows_human, read_table
from relval.experiments.suites import Printed, Suite, Variant, label
from relval.runs import Run, files, load
from relval.runs.config import to_yaml

_CURVE_POINTS = 50
_PARTS = 5
"""Of a run, for each of which its diagnostics are kept."""

Tree = dict[str, Any]
"""What JSON holds."""
Row = TypeVar("Row", bound="Score | Point | Diagnosis")


@dataclass(frozen=True)
class Score:
    """What a finished run came to."""

    env: str
    variant: str
    seed: int
    score: float
    """NaN if no episode ended."""
    steps: int
    episodes: int
    seconds: float


@dataclass(frozen=True)
class Point:
    """A point of a learning curve."""

    env: str
    variant: str
    seed: int
    step: int
    score: float


@dataclass(frozen=True)
class Diagnosis:
    """Means of what a run logs about its critic, over a fifth of the run; NaN where it has none."""

    env: str
    variant: str
    seed: int
    until: int
    """The step at which the fifth ends."""
    explained_variance: float
    value_spread: float
    critic_share: float
    dead_features: float
    advantage_mean: float
    advantage_spread: float
    trajectory_constant_mean: float
    trajectory_constant_spread: float


DIAGNOSTICS = tuple(item.name for item in fields(Diagnosis))[4:]


@dataclass(frozen=True)
class Results:
    """The finished runs of a suite.

    `settings` and `provenance` hold each different answer once, with the runs that gave it.
    """

    suite: Suite
    scores: tuple[Score, ...]
    curves: tuple[Point, ...]
    settings: tuple[Tree, ...]
    provenance: tuple[Tree, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    only_printed: bool = False
    """Whether these are the paper's means, not runs."""

    @property
    def games(self) -> tuple[str, ...]:
        """The environments, as scores name them."""
        return tuple(map(label, self.suite.envs))

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that have a run."""
        present = {score.variant for score in self.scores}
        return tuple(v.name for v in self.suite.variants if v.name in present)

    def of(self, game: str, variant: str) -> list[float]:
        """The scores of a variant on a game, by seed."""
        return [s.score for s in self.scores if (s.env, s.variant) == (game, variant)]

    def matrix(self, variant: str) -> np.ndarray:
        """The scores of a variant, `[games, seeds]`, NaN where a run is missing."""
        matrix = np.full((len(self.games), len(self.suite.seeds)), np.nan)
        for s in self.scores:
            if s.variant == variant:
                matrix[self.games.index(s.env), self.suite.seeds.index(s.seed)] = s.score
        return matrix

    @property
    def by_humans(self) -> bool:
        """Whether scores are normalised by those of humans."""
        return all(map(knows_human, self.games))

    def normalised(self, game: str, scores: np.ndarray) -> np.ndarray:
        """Scores on a scale that games share.

        Where the scores of humans are known, random play has 0 and a human 1. Elsewhere the worst
        finished run of the game has 0 and the best one 1.
        """
        if self.by_humans:
            return human_normalised(game, scores)
        seen = [s.score for s in self.scores if s.env == game and not np.isnan(s.score)]
        low, high = min(seen, default=0.0), max(seen, default=1.0)
        return (np.asarray(scores, float) - low) / ((high - low) or 1.0)


def gather(suite: Suite, out: Path) -> Results:
    """The finished runs of a suite: from their folders under `out/runs`, or else as stored."""
    folders = {name: out / "runs" / name for name in suite.runs()}
    finished = {name: load(folder) for name, folder in folders.items() if files.is_finished(folder)}
    stored = _read_stored(suite, out)
    kept = {name for name, folder in folders.items() if not folder.exists()}
    scores = {_name(score): score for score in stored.scores if _name(score) in kept}
    scores |= {name: _score(name, run) for name, run in finished.items()}
    curves = [point for point in stored.curves if _name(point) in kept]
    diagnoses = [diagnosis for diagnosis in stored.diagnoses if _name(diagnosis) in kept]
    for name, run in finished.items():
        log = _log(run)
        curves += _curve(name, log)
        diagnoses += _diagnoses(name, log)
    order = {name: place for place, name in enumerate(folders)}

    def in_order(rows: Iterable[Row]) -> tuple[Row, ...]:
        return tuple(sorted(rows, key=lambda row: order[_name(row)]))

    return Results(
        suite,
        scores=in_order(scores.values()),
        curves=in_order(curves),
        diagnoses=in_order(diagnoses),
        settings=_each_once(_kept(stored.settings, kept), finished, _settings),
        provenance=_each_once(_kept(stored.provenance, kept), finished, lambda run: run.provenance),
    )


def write(results: Results, out: Path) -> None:
    """Writes all of it but the suite, which a sweep writes when it begins."""
    write_csv(out / "scores.csv", Score, results.scores)
    write_csv(out / "curves.csv", Point, results.curves)
    write_csv(out / "diagnostics.csv", Diagnosis, results.diagnoses)
    _write_json(out / "settings.json", results.settings)
    _write_json(out / "provenance.json", results.provenance)


def write_suite(suite: Suite, out: Path) -> None:
    """Writes what was to be run."""
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "suite.json", asdict(suite))


def read(out: Path) -> Results:
    """The results in a sweep's folder."""
    return gather(_read_suite(out), out)


def printed_scores(suite: Suite) -> dict[tuple[str, str], tuple[float, float]]:
    """The paper's means and standard deviations, by game and variant; none where it has none."""
    if suite.printed is None:
        return {}
    return {
        (row["game"], name): (float(row[f"{column}_mean"]), float(row[f"{column}_std"]))
        for row in read_table(suite.printed.table)
        for name, column in suite.printed.columns.items()
    }


def printed(suite: Suite) -> Results:
    """The paper's means, as if each were a single run."""
    if suite.printed is None:
        raise ValueError("the paper prints no numbers for this suite")
    return Results(
        replace(suite, seeds=(1,)),
        scores=tuple(
            Score(game, name, 1, mean, suite.total_steps, 0, 0.0)
            for (game, name), (mean, _) in printed_scores(suite).items()
        ),
        curves=(),
        settings=(),
        provenance=(),
        only_printed=True,
    )


def _score(name: str, run: Run) -> Score:
    summary = run.summary
    env, variant, seed = name.split("/")
    score = np.nan if summary["score"] is None else round(summary["score"], 3)
    seconds = round(summary["seconds"], 1)
    return Score(env, variant, int(seed), score, summary["steps"], summary["episodes"], seconds)


def _log(run: Run) -> list[dict[str, str]]:
    with run.metrics.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _curve(name: str, log: Sequence[Mapping[str, str]]) -> list[Point]:
    """About fifty points of a run's score."""
    env, variant, seed = name.split("/")
    stride = max(1, len(log) // _CURVE_POINTS)
    return [
        Point(env, variant, int(seed), int(row["step"]), round(float(row["score"]), 3))
        for row in log[stride - 1 :: stride]
    ]


def _diagnoses(name: str, log: Sequence[Mapping[str, str]]) -> list[Diagnosis]:
    """How the critic fared, part by part; nothing where nothing of it was logged."""
    env, variant, seed = name.split("/")
    if not log or not any(column in log[0] for column in DIAGNOSTICS):
        return []
    found = []
    for part in np.array_split(np.arange(len(log)), min(_PARTS, len(log))):
        rows = [log[place] for place in part]
        means = [
            float(f"{np.mean([float(row[column]) for row in rows]):.4g}")
            if column in log[0]
            else np.nan
            for column in DIAGNOSTICS
        ]
        found.append(Diagnosis(env, variant, int(seed), int(rows[-1]["step"]), *means))
    return found


def _settings(run: Run) -> Tree:
    """A run's configuration, but for the environment and the seed, which its name tells."""
    tree: Tree = yaml.safe_load(to_yaml(run.config))
    del tree["env"], tree["seed"]
    return tree


def _name(row: Score | Point | Diagnosis) -> str:
    return f"{row.env}/{row.variant}/{row.seed}"


def _kept(answers: Iterable[Tree], names: Container[str]) -> Iterator[tuple[str, Tree]]:
    """The stored answers of some runs, one by one."""
    for answer in answers:
        rest = {key: value for key, value in answer.items() if key != "runs"}
        yield from ((name, rest) for name in answer["runs"] if name in names)


def _each_once(
    stored: Iterable[tuple[str, Tree]],
    finished: Mapping[str, Run],
    answer: Callable[[Run], Tree],
) -> tuple[Tree, ...]:
    """Each different answer once, with the runs that gave it."""
    answers: dict[str, list[str]] = {}
    for name, tree in (*stored, *((name, answer(run)) for name, run in finished.items())):
        answers.setdefault(json.dumps(tree), []).append(name)
    return tuple({"runs": names, **json.loads(text)} for text, names in answers.items())


def _read_stored(suite: Suite, out: Path) -> Results:
    """What was written before, if anything was."""
    return Results(
        suite,
        scores=_read_csv(out / "scores.csv", Score),
        curves=_read_csv(out / "curves.csv", Point),
        diagnoses=_read_csv(out / "diagnostics.csv", Diagnosis),
        settings=tuple(_read_json(out / "settings.json", ())),
        provenance=tuple(_read_json(out / "provenance.json", ())),
    )


def write_csv(path: Path, kind: type, rows: Iterable[Any]) -> None:
    """Writes instances of a dataclass, a row for each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(kind)])
    writer.writerows(astuple(row) for row in rows)
    files.write(path, text.getvalue())


def _read_csv(path: Path, kind: type[Row]) -> tuple[Row, ...]:
    if not path.exists():
        return ()
    converters = {field.name: field.type for field in fields(kind)}
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            kind(**{name: converters[name](text) for name, text in row.items()})  # type: ignore[operator]
            for row in csv.DictReader(file)
        )


def _write_json(path: Path, content: Any) -> None:
    files.write(path, json.dumps(content, indent=1) + "\n")


def _read_json(path: Path, otherwise: Any = None) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else otherwise


def _read_suite(out: Path) -> Suite:
    path = out / "suite.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{out} holds no results of a sweep: there is no {path}; `relval sweep` makes it"
        )
    tree = _read_json(path)
    tree["variants"] = tuple(Variant(**variant) for variant in tree["variants"])
    if tree["printed"] is not None:
        tree["printed"] = Printed(**tree["printed"])
    tree["envs"], tree["seeds"] = tuple(tree["envs"]), tuple(tree["seeds"])
    return Suite(**tree)
