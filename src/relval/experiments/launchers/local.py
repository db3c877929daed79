"""Runs on this machine, a process each."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from relval._machine import cores
from relval.experiments.launchers.jobs import Job, Outcome
from relval.runs import InterruptedRunError

_GLANCE = 0.5
"""Seconds after which whoever waits for outcomes is told that there is none yet."""


class Local:
    """Processes on this machine.

    Args:
      slots: Runs at a time; by default one for each core.
    """

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots or cores()
        self._workers: dict[int, _Worker] = {}

    @property
    def running(self) -> Sequence[Job]:
        """Those that are being done."""
        return [worker.job for worker in self._workers.values()]

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome | None]:
        """Does all jobs; an outcome for each, as it comes, and None now and then meanwhile."""
        waiting = list(reversed(jobs))
        try:
            while waiting or self._workers:
                while waiting and len(self._workers) < self.slots:
                    worker = _start(waiting.pop(), cores() // self.slots)
                    self._workers[worker.process.sentinel] = worker
                ended = wait(list(self._workers), timeout=_GLANCE)
                for sentinel in ended:
                    assert isinstance(sentinel, int)
                    yield self._workers.pop(sentinel).outcome()
                if not ended:
                    yield None
        finally:
            for worker in self._workers.values():
                if worker.process.pid is not None and worker.process.is_alive():
                    os.kill(worker.process.pid, signal.SIGINT)  # it saves, and ends
            for worker in self._workers.values():
                worker.process.join()
            self._workers = {}


@dataclass(frozen=True)
class _Worker:
    job: Job
    process: BaseProcess
    pipe: Connection

    def outcome(self) -> Outcome:
        """What a process that has ended has left."""
        self.process.join()
        try:
            if self.pipe.poll():
                return Outcome(self.job, *self.pipe.recv())
        except EOFError:
            pass
        finally:
            self.pipe.close()
        code = self.process.exitcode or 0
        fate = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return Outcome(self.job, "failed", f"its process died: {fate}")


def _start(job: Job, threads: int) -> _Worker:
    context: Any = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_work, args=(job, theirs, max(1, threads)), name=job.name)
    process.start()
    theirs.close()
    return _Worker(job, process, pipe)


def _work(job: Job, pipe: Connection, threads: int) -> None:
    """A process's life: one job, and it ends when the process that started it is gone."""
    os.setsid()  # Ctrl-C is for the process that started it, which passes it on
    os.environ["OMP_NUM_THREADS"] = str(threads)
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    try:
        answer = ("done" if job.work() else "elsewhere", "")
    except (InterruptedRunError, KeyboardInterrupt) as error:
        answer = ("interrupted", str(error))
    except Exception as error:
        answer = ("failed", str(error) or type(error).__name__)
    pipe.send(answer)


def _end_with_parent(pipe: Connection) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(1)
