"""Runs a suite on this machine: what is missing and nothing else, a process for each run."""

import csv
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from relval.experiments.statistics import mean_and_margin
from relval.experiments.suites import Suite
from relval.runs import Config, Run, load, resume, train
from relval.runs.config import to_yaml

_CURVE_POINTS = 50


def sweep(suite: Suite, out: Path, *, seeds: Sequence[int] = (), jobs: int | None = None) -> bool:
    """Finishes the runs of a suite under `out/runs`, then writes its tables; true if none failed.

    A run that was stopped goes on from its checkpoint. `scores.csv`, `curves.csv`, `table.md` and
    `provenance.json` hold what is worth keeping of all finished runs.

    Args:
      suite: The runs.
      out: The folder.
      seeds: Run these seeds only; by default all.
      jobs: Processes at a time; by default one for each core.
    """
    runs = suite.runs()
    for name, config in runs.items():
        _check_settings(out / "runs" / name, config)
    missing = {
        name: config
        for name, config in runs.items()
        if _finished(out, name) is None and (not seeds or config.seed in seeds)
    }
    workers = min(len(missing), jobs or os.cpu_count() or 1)
    print(f"{len(runs)} runs, {len(missing)} of them to do, {workers} at a time", flush=True)
    failed = _run_all(missing, out, workers) if missing else []
    finished = {name: run for name in runs if (run := _finished(out, name)) is not None}
    if finished:
        _write_results(suite, finished, out)
        print((out / "table.md").read_text(encoding="utf-8"))
    for name, reason in failed:
        print(f"failed: {name}: {reason}", file=sys.stderr)
    return not failed


def _run_all(missing: dict[str, Config], out: Path, workers: int) -> list[tuple[str, str]]:
    """Runs in parallel, with a line for each that ends; returns those that failed, and why."""
    failed = []
    begin = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        names: dict[Future[float], str] = {
            pool.submit(_run_one, config, out / "runs" / name): name
            for name, config in missing.items()
        }
        waiting = set(names)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                name = names[future]
                minutes = (time.monotonic() - begin) / 60
                left = f"{len(waiting)} to do after {minutes:.1f} min"
                if error := future.exception():
                    failed.append((name, str(error)))
                    print(f"{name}: failed, {left}", flush=True)
                else:
                    print(f"{name}: score {future.result():.2f}, {left}", flush=True)
    return failed


def _check_settings(folder: Path, config: Config) -> None:
    """Refuses a folder whose run was made with other settings than the suite's."""
    stored = folder / "config.yaml"
    if stored.exists() and stored.read_text(encoding="utf-8") != to_yaml(config):
        raise ValueError(
            f"{folder} was made with other settings than the suite now has: remove it, or choose "
            "another --out"
        )


def _run_one(config: Config, folder: Path) -> float:
    """Starts a run or goes on with it; its final score."""
    if (folder / "config.yaml").exists():
        run = resume(folder, quiet=True, say=lambda message: None)
    else:
        run = train(config, folder, quiet=True)
    score: float = run.summary["score"]
    return score


def _finished(out: Path, name: str) -> Run | None:
    folder = out / "runs" / name
    return load(folder) if (folder / "summary.json").exists() else None


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
