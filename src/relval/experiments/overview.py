"""How a sweep is watched: a live table in a terminal, a line for each event elsewhere."""

import csv
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from relval.experiments.launchers import Job, Outcome
from relval.runs import files, load
from relval.runs.display import duration

_TAIL = 4096
"""Bytes in which the last row of a log is found."""


@dataclass(frozen=True)
class Logged:
    """How far a run has come, as it logged last."""

    step: int
    score: float
    steps_per_second: float


def last_logged(job: Job) -> Logged | None:
    """The last row of a run's log; None before the first."""
    path = job.folder / files.METRICS
    try:
        with path.open("rb") as file:
            header = file.readline().decode().strip().split(",")
            begin = max(file.tell(), os.fstat(file.fileno()).st_size - _TAIL)
            file.seek(begin)
            lines = file.read().decode().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        row = dict(zip(header, next(csv.reader([line]), []), strict=False))
        if len(row) == len(header):
            values = (float(row[name]) for name in ("score", "steps_per_second"))
            return Logged(int(row["step"]), *values)
    return None


class Overview:
    """Tells what happens to runs, a line each."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.begin = time.monotonic()

    def show(self, running: Sequence[Job], failed: Mapping[str, str]) -> None:
        """Shows how things stand, if there is a place for it."""

    def tell(self, outcome: Outcome, attempts: int, *, last: bool) -> None:
        """Tells what became of a run."""
        left = sum(not job.finished for job in self.jobs)
        minutes = (time.monotonic() - self.begin) / 60
        self.say(f"{_told(outcome, attempts, last)}; {left} to do after {minutes:.1f} min")

    def say(self, line: str) -> None:
        """Writes a line."""
        print(line, flush=True)


def _told(outcome: Outcome, attempts: int, last: bool) -> str:
    job = outcome.job
    if outcome.kind == "done":
        score = load(job.folder).summary["score"]
        return f"{job.name}: " + ("no episode ended" if score is None else f"score {score:.2f}")
    if outcome.kind == "elsewhere":
        return f"{job.name}: another process is at it"
    then = "given up" if last else "to be tried again"
    return f"{job.name}: failed ({attempts}), {then}: {outcome.reason}"


class _LiveOverview(Overview):
    """The same above a table of the runs that are being made."""

    def __init__(self, jobs: Sequence[Job], live: Live) -> None:
        super().__init__(jobs)
        self.live = live

    def show(self, running: Sequence[Job], failed: Mapping[str, str]) -> None:
        """Shows counts, time left, and each run's progress."""
        self.live.update(_table(self.jobs, running, failed), refresh=True)

    def say(self, line: str) -> None:
        """Writes a line above the table."""
        self.live.console.print(line)


def _table(jobs: Sequence[Job], running: Sequence[Job], failed: Mapping[str, str]) -> Group:
    table = Table("run", "", "steps", "score", "steps/s", box=None)
    speed, to_do = 0.0, 0
    for job in jobs:
        if not job.finished and job.name not in failed:
            to_do += job.config.total_steps
    for job in running:
        seen = last_logged(job)
        total = job.config.total_steps
        if seen is None:
            table.add_row(job.name, ProgressBar(total, 0, width=24), "starting")
            continue
        speed += seen.steps_per_second
        to_do -= min(seen.step, total)
        table.add_row(
            job.name,
            ProgressBar(total, seen.step, width=24),
            f"{seen.step:,} of {total:,}",
            f"{seen.score:.2f}",
            f"{seen.steps_per_second:,.0f}",
        )
    done = sum(job.finished for job in jobs)
    left = f", {duration(to_do / speed)} left" if speed else ""
    head = f"{done} of {len(jobs)} done, {len(running)} running, {len(failed)} failed{left}"
    return Group(head, table) if running else Group(head)


@contextmanager
def overview(jobs: Sequence[Job]) -> Iterator[Overview]:
    """What suits the place where output goes."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        yield Overview(jobs)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield _LiveOverview(jobs, live)
