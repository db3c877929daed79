"""One run of a sweep: started, resumed or left alone, and never made twice at a time."""

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from relval.runs import Config, InterruptedRunError, files, train_or_resume

try:
    import fcntl
except ImportError:  # Windows: one sweep at a time
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Job:
    """A run to be finished."""

    name: str
    config: Config
    out: Path
    """The sweep's folder."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.out / "runs" / self.name

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return files.is_finished(self.folder)

    @property
    def busy(self) -> bool:
        """Whether some process is at it."""
        with self._claimed() as mine:
            return not mine

    @contextmanager
    def _claimed(self) -> Iterator[bool]:
        """Whether the run is this process's, for the time being; a claim dies with its process."""
        path = self.out / "locks" / f"{self.name.replace('/', '.')}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _begin(self) -> None:
        """Notes that the run begins or goes on, and makes its folder ready."""
        if files.is_begun(self.folder):
            self._note("resumed")
        else:
            self._note("started")
            files.clear_false_start(self.folder)

    def _note(self, event: str) -> None:
        """Adds to the sweep's journal, in one write, which others cannot come between."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S")
        with (self.out / "journal.csv").open("a", encoding="utf-8") as journal:
            journal.write(f"{moment},{os.getpid()},{self.name},{event}\n")


Kind = Literal["done", "elsewhere", "failed", "interrupted"]


def attempt(jobs: Sequence[Job]) -> list[tuple[Kind, str]]:
    """Works on jobs in this process; what became of each, and why."""
    try:
        failures = _work(jobs)
    except KeyboardInterrupt:
        return [("done", "") if job.finished else ("interrupted", "") for job in jobs]
    return [_answer(job, failures) for job in jobs]


def _answer(job: Job, failures: Mapping[Path, Exception | None]) -> tuple[Kind, str]:
    failure = failures.get(job.folder)
    if job.finished:
        return "done", ""
    if failure is None:
        return "elsewhere", ""
    kind: Kind = "interrupted" if isinstance(failure, InterruptedRunError) else "failed"
    return kind, str(failure) or type(failure).__name__


def _work(jobs: Sequence[Job]) -> dict[Path, Exception | None]:
    """Trains those that no other process is at to the end, from their last checkpoints on."""
    with ExitStack() as claims:
        mine = [job for job in jobs if claims.enter_context(job._claimed())]
        unfinished = [job for job in mine if not job.finished]
        for job in unfinished:
            job._begin()
        try:
            return train_or_resume(
                [job.config for job in unfinished], [job.folder for job in unfinished]
            )
        finally:
            for job in unfinished:
                if job.finished:
                    job._note("finished")


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    job: Job
    kind: Kind
    reason: str = ""


Outcomes = Generator[Outcome | None, None, None]
"""To close it is to stop what runs."""


class Launcher(Protocol):
    """Where jobs are done."""

    def run(self, jobs: Sequence[Job]) -> Outcomes:
        """Does all jobs, several at a time.

        An outcome for each, as it comes, and None now and then meanwhile.
        """
        ...

    @property
    def running(self) -> Sequence[Job]:
        """Those that are being done."""
        ...
