"""Finishes the runs of a suite: what is missing and nothing else, and writes what they gave."""

import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from relval import envs
from relval.experiments import results, tables
from relval.experiments.launchers import Job, Launcher, Local
from relval.experiments.overview import Overview, overview
from relval.experiments.suites import Suite
from relval.runs import InterruptedRunError, files, load

_ATTEMPTS = 3
"""How often a run may fail before it is given up."""
_PATIENCE = 2.0
"""Seconds between two looks at runs that other processes are at."""


def sweep(
    suite: Suite, out: Path, *, only: Suite | None = None, launcher: Launcher | None = None
) -> bool:
    """Finishes the runs of a suite under `out/runs`, then writes its tables; true if none failed.

    It can be stopped at any moment and started again, also from several shells at once: no run is
    made twice. A run that was stopped or that fails goes on from its checkpoint. What is worth
    keeping of all finished runs is written as `results` says, with `table.md` to look at;
    `journal.csv` tells what happened when.

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
    _check_environments(missing)
    print(f"{len(wanted)} runs, {len(missing)} of them to do", flush=True)
    failed: dict[str, str] = {}
    results.write_suite(suite, out)
    if missing:
        try:
            with overview(missing) as seen:
                failed = _finish(missing, launcher or Local(), seen)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"stopped, and saved what had begun under {out}; the same command goes on"
            ) from None
    gathered = results.gather(suite, out)
    if gathered.scores:
        results.write(gathered, out)
        table = tables.markdown(tables.compare(gathered))
        files.write(out / "table.md", table)
        print(table)
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
        with closing(launcher.run(free)) as outcomes:
            for outcome in outcomes:
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


def _check_environments(jobs: list[Job]) -> None:
    """Refuses to begin where an environment cannot be made, in place of failing run by run."""
    for config in {job.config.env: job.config for job in jobs}.values():
        envs.make(config.env, replace(config.envs, num_envs=1, workers=0)).close()


def _check_settings(job: Job) -> None:
    """Refuses a folder whose run was made with other settings than the suite's.

    The device may be another: what began on a GPU goes on without one, and the other way round.
    What has finished may have been computed in another precision.
    """
    if not files.is_begun(job.folder):
        return
    made = replace(load(job.folder).config, device=job.config.device)
    if job.finished:
        made = replace(made, precision=job.config.precision)
    if made != job.config:
        raise ValueError(
            f"{job.folder} was made with other settings than the suite now has: remove it, or "
            "choose another --out"
        )
