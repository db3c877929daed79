"""One run of a sweep: started, resumed or left alone, and never made twice at a time."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from relval.runs import Config, resume, train

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
        return (self.folder / "summary.json").exists()

    @property
    def busy(self) -> bool:
        """Whether some process is at it."""
        with self._claimed() as mine:
            return not mine

    def work(self) -> bool:
        """Trains to the end, from the last checkpoint if there is one.

        Returns:
          False if another process is at it, and nothing was done.
        """
        with self._claimed() as mine:
            if not mine:
                return False
            if self.finished:
                return True
            if (self.folder / "config.yaml").exists():
                self._note("resumed")
                resume(self.folder, quiet=True, say=lambda message: None)
            else:
                self._note("started")
                self._clear_false_start()
                train(self.config, self.folder, quiet=True)
            self._note("finished")
        return True

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

    def _clear_false_start(self) -> None:
        """Removes what a process left that was killed before it had written the configuration."""
        for name in ("provenance.json", "provenance.tmp", "config.tmp"):
            (self.folder / name).unlink(missing_ok=True)

    def _note(self, event: str) -> None:
        """Adds to the sweep's journal, in one write, which others cannot come between."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S")
        with (self.out / "journal.csv").open("a", encoding="utf-8") as journal:
            journal.write(f"{moment},{os.getpid()},{self.name},{event}\n")


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    job: Job
    kind: Literal["done", "elsewhere", "failed", "interrupted"]
    reason: str = ""


class Launcher(Protocol):
    """Where jobs are done."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome | None]:
        """Does all jobs, several at a time.

        An outcome for each, as it comes, and None now and then meanwhile.
        """
        ...

    @property
    def running(self) -> Sequence[Job]:
        """Those that are being done."""
        ...
