"""Finishes the runs of a suite: what is missing and nothing else, and writes what they gave."""

import csv
import json
import sys
import time
from collections import Counter
from pathlib import Path

from relval.experiments.launchers import Job, Launcher, Local
from relval.experiments.overview import Overview, overview
from relval.experiments.statistics import mean_and_margin
from relval.experiments.suites import Suite
from relval.runs import InterruptedRunError, Run, load
from relval.runs.config import from_yaml

_CURVE_POINTS = 50
_ATTEMPTS = 3
"""How often a run may fail before it is given up."""
_PATIENCE = 2.0
"""Seconds between two looks at runs that other processes are at."""


def sweep(
    suite: Suite, out: Path, *, only: Suite | None = None, launcher: Launcher | None = None
) -> bool:
    """Finishes the runs of a suite under `out/runs`, then writes its tables; true if none failed.

    It can be stopped at any moment and started again, also from several shells at once: no run is
    made twice. A run that was stopped or that fails goes on from its checkpoint. `scores.csv`,
    `curves.csv`, `table.md` and `provenance.json` hold what is worth keeping of all finished runs,
    and `journal.csv` what happened when.

    Args:
      suite: The runs.
      out: The folder.
      only: Finish these only, a part of the suite; the tables still hold all that are finished.
      launcher: Where runs are made; by default on this machine.
    """
    jobs = _jobs(suite, out)
    for job in jobs:
        _check_settings(job)
    wanted = jobs if only is None else _jobs(only, out)
    missing = [job for job in wanted if not job.finished]
    print(f"{len(wanted)} runs, {len(missing)} of them to do", flush=True)
    failed: dict[str, str] = {}
    if missing:
        out.mkdir(parents=True, exist_ok=True)
        try:
            with overview(missing) as seen:
                failed = _finish(missing, launcher or Local(), seen)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"stopped, and saved what had begun under {out}; the same command goes on"
            ) from None
    finished = {job.name: load(job.folder) for job in jobs if job.finished}
    if finished:
        _write_results(suite, finished, out)
        print((out / "table.md").read_text(encoding="utf-8"))
    for name, reason in failed.items():
        print(f"failed: {name}: {reason}", file=sys.stderr)
    return not failed


def _finish(jobs: list[Job], launcher: Launcher, seen: Overview) -> dict[str, str]:
    """Lets a launcher do jobs until none is left; those that failed for good, and why."""
    attempts: Counter[str] = Counter()
    failed: dict[str, str] = {}
    while jobs := [job for job in jobs if not job.finished and job.name not in failed]:
        free = [job for job in jobs if not job.busy]
        if not free:
            seen.show([], failed)
            time.sleep(_PATIENCE)
        for outcome in launcher.run(free):
            seen.show(launcher.running, failed)
            if outcome is None:
                continue
            job, reason = outcome.job, outcome.reason
            if outcome.kind == "interrupted":
                raise KeyboardInterrupt
            if outcome.kind == "failed":
                attempts[job.name] += 1
                if attempts[job.name] == _ATTEMPTS:
                    failed[job.name] = reason
            seen.tell(outcome, attempts[job.name], last=job.name in failed)
    return failed


def _jobs(suite: Suite, out: Path) -> list[Job]:
    return [Job(name, config, out) for name, config in suite.runs().items()]


def _check_settings(job: Job) -> None:
    """Refuses a folder whose run was made with other settings than the suite's."""
    stored = job.folder / "config.yaml"
    if stored.exists() and from_yaml(stored.read_text(encoding="utf-8")) != job.config:
        raise ValueError(
            f"{job.folder} was made with other settings than the suite now has: remove it, or "
            "choose another --out"
        )


def _write_results(suite: Suite, finished: dict[str, Run], out: Path) -> None:
    with (out / "scores.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env", "variant", "seed", "score", "steps", "episodes", "seconds"])
        for name, run in finished.items():
            summary = run.summary
            env, variant, seed = name.split("/")
            numbers = [round(summary["score"], 3), summary["steps"], summary["episodes"]]
            writer.writerow([env, variant, seed, *numbers, round(summary["seconds"], 1)])
    with (out / "curves.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env", "variant", "seed", "step", "score"])
        for name, run in finished.items():
            for step, score in _curve(run):
                writer.writerow([*name.split("/"), step, score])
    _write_provenance(finished, out)
    (out / "table.md").write_text(_table(suite, finished), encoding="utf-8")


def _write_provenance(finished: dict[str, Run], out: Path) -> None:
    """Where the runs were made: each different answer once, with the runs that gave it."""
    answers: dict[str, list[str]] = {}
    for name, run in finished.items():
        answers.setdefault(json.dumps(run.provenance, indent=2), []).append(name)
    tree = [{"runs": names, **json.loads(answer)} for answer, names in answers.items()]
    (out / "provenance.json").write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")


def _curve(run: Run) -> list[tuple[str, str]]:
    """About fifty points of a run's score."""
    with run.metrics.open(encoding="utf-8", newline="") as file:
        rows = [(row["step"], f"{float(row['score']):.3f}") for row in csv.DictReader(file)]
    stride = max(1, len(rows) // _CURVE_POINTS)
    return rows[stride - 1 :: stride]


def _table(suite: Suite, finished: dict[str, Run]) -> str:
    """Mean final scores with 95% intervals, environments down and variants across, in Markdown."""
    names = [variant.name for variant in suite.variants]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for env in (env.replace("/", "-") for env in suite.envs):
        cells = []
        for name in names:
            scores = [
                finished[key].summary["score"]
                for seed in suite.seeds
                if (key := f"{env}/{name}/{seed}") in finished
            ]
            cells.append(_cell(scores))
        lines.append(f"| {env} | " + " | ".join(cells) + " |")
    seeds = len(suite.seeds)
    lines.append("")
    lines.append(
        f"Mean score of the last 100 episodes after {suite.total_steps:,} steps, {seeds} seeds, "
        "± half a 95% interval (Student's t); in brackets the single seeds."
    )
    return "\n".join(lines) + "\n"


def _cell(scores: list[float]) -> str:
    if not scores:
        return "-"
    mean, margin = mean_and_margin(scores)
    single = ", ".join(f"{score:.1f}" for score in scores)
    return f"{mean:.1f} ± {margin:.1f} ({single})"
