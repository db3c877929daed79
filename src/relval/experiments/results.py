"""What is worth keeping of a sweep, as small files that can be committed, and read again."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from relval.experiments.scores import human_normalised, knows_human, read_table
from relval.experiments.suites import Printed, Suite, Variant, label
from relval.runs import Run, load
from relval.runs.config import to_yaml

_CURVE_POINTS = 50

Tree = dict[str, Any]
"""What JSON holds."""
Row = TypeVar("Row", bound="Score | Point")


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
class Results:
    """The finished runs of a suite.

    `settings` and `provenance` hold each different answer once, with the runs that gave it.
    """

    suite: Suite
    scores: tuple[Score, ...]
    curves: tuple[Point, ...]
    settings: tuple[Tree, ...]
    provenance: tuple[Tree, ...]

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
    """Reads the finished runs of a suite from their folders under `out/runs`."""
    finished = {
        name: load(folder)
        for name in suite.runs()
        if ((folder := out / "runs" / name) / "summary.json").exists()
    }
    return Results(
        suite,
        scores=tuple(_score(name, run) for name, run in finished.items()),
        curves=tuple(point for name, run in finished.items() for point in _curve(name, run)),
        settings=_each_once(finished, _settings),
        provenance=_each_once(finished, lambda run: run.provenance),
    )


def write(results: Results, out: Path) -> None:
    """Writes all of it but the suite, which a sweep writes when it begins."""
    _write_csv(out / "scores.csv", Score, results.scores)
    _write_csv(out / "curves.csv", Point, results.curves)
    _write_json(out / "settings.json", results.settings)
    _write_json(out / "provenance.json", results.provenance)


def write_suite(suite: Suite, out: Path) -> None:
    """Writes what was to be run."""
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "suite.json", asdict(suite))


def read(out: Path) -> Results:
    """The results in a sweep's folder: of its runs if they are there, and as stored if not."""
    suite = _read_suite(out)
    if (out / "runs").is_dir():
        return gather(suite, out)
    return Results(
        suite,
        scores=_read_csv(out / "scores.csv", Score),
        curves=_read_csv(out / "curves.csv", Point),
        settings=tuple(_read_json(out / "settings.json")),
        provenance=tuple(_read_json(out / "provenance.json")),
    )


def printed(suite: Suite) -> Results:
    """The paper's means, as if each were a single run."""
    if suite.printed is None:
        raise ValueError("the paper prints no numbers for this suite")
    rows = read_table(suite.printed.table)
    columns = suite.printed.columns
    return Results(
        replace(suite, seeds=(1,)),
        scores=tuple(
            Score(row["game"], name, 1, float(row[f"{column}_mean"]), suite.total_steps, 0, 0.0)
            for row in rows
            for name, column in columns.items()
        ),
        curves=(),
        settings=(),
        provenance=(),
    )


def _score(name: str, run: Run) -> Score:
    summary = run.summary
    env, variant, seed = name.split("/")
    score = np.nan if summary["score"] is None else round(summary["score"], 3)
    seconds = round(summary["seconds"], 1)
    return Score(env, variant, int(seed), score, summary["steps"], summary["episodes"], seconds)


def _curve(name: str, run: Run) -> list[Point]:
    """About fifty points of a run's score."""
    env, variant, seed = name.split("/")
    with run.metrics.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    stride = max(1, len(rows) // _CURVE_POINTS)
    return [
        Point(env, variant, int(seed), int(row["step"]), round(float(row["score"]), 3))
        for row in rows[stride - 1 :: stride]
    ]


def _settings(run: Run) -> Tree:
    """A run's configuration, but for the environment and the seed, which its name tells."""
    tree: Tree = yaml.safe_load(to_yaml(run.config))
    del tree["env"], tree["seed"]
    return tree


def _each_once(finished: Mapping[str, Run], answer: Callable[[Run], Tree]) -> tuple[Tree, ...]:
    """Each different answer once, with the runs that gave it."""
    answers: dict[str, list[str]] = {}
    for name, run in finished.items():
        answers.setdefault(json.dumps(answer(run)), []).append(name)
    return tuple({"runs": names, **json.loads(text)} for text, names in answers.items())


def _write_csv(path: Path, kind: type, rows: Iterable[Any]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(kind)])
        writer.writerows(astuple(row) for row in rows)


def _read_csv(path: Path, kind: type[Row]) -> tuple[Row, ...]:
    converters = {field.name: field.type for field in fields(kind)}
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            kind(**{name: converters[name](text) for name, text in row.items()})  # type: ignore[operator]
            for row in csv.DictReader(file)
        )


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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
