"""Runs on this machine, in processes of their own."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from relval._machine import cores
from relval.experiments.launchers.jobs import Job, Outcome, Outcomes, attempt

_GLANCE = 0.5
"""Seconds after which whoever waits for outcomes is told that there is none yet."""


class Local:
    """Processes on this machine: one for each run, or for each GPU, whose runs share it.

    Args:
      jobs: Runs at a time; by default one for each core, and with GPUs, which leave the cores to
        the games, one for each four.
      gpus: How many there are to be used; None for all, counted once there is a run to make.
    """

    def __init__(self, jobs: int | None = None, *, gpus: int | None = 0) -> None:
        if jobs is not None and jobs < 1:
            raise ValueError(f"--jobs must be at least 1, got {jobs}")
        self._asked_jobs, self._asked_gpus = jobs, gpus
        self._workers: dict[int, _Worker] = {}

    @cached_property
    def gpus(self) -> int:
        """How many are used."""
        return _visible_gpus() if self._asked_gpus is None else self._asked_gpus

    @property
    def jobs(self) -> int:
        """Runs at a time."""
        by_default = max(self.gpus, cores() // 4) if self.gpus else cores()
        return self._asked_jobs or by_default

    @property
    def slots(self) -> int:
        """Processes at a time."""
        return min(self.gpus, self.jobs) if self.gpus else self.jobs

    @property
    def running(self) -> Sequence[Job]:
        """Those that are being done."""
        return [job for worker in self._workers.values() for job in worker.jobs]

    def run(self, jobs: Sequence[Job]) -> Outcomes:
        """Does all jobs; an outcome for each, as it comes, and None now and then meanwhile."""
        waiting = list(jobs)
        try:
            while waiting or self._workers:
                while waiting and (free := self.slots - len(self._workers)):
                    room = min(len(waiting), self.jobs - len(self.running))
                    share = -(-room // free)
                    worker = self._start(waiting[:share])
                    self._workers[worker.process.sentinel] = worker
                    del waiting[:share]
                ended = wait(list(self._workers), timeout=_GLANCE)
                for sentinel in ended:
                    assert isinstance(sentinel, int)
                    yield from self._workers.pop(sentinel).outcomes()
                if not ended:
                    yield None
        finally:
            for worker in self._workers.values():
                if worker.process.pid is not None and worker.process.is_alive():
                    os.kill(worker.process.pid, signal.SIGINT)  # it saves, and ends
            for worker in self._workers.values():
                worker.process.join()
            self._workers = {}

    def _start(self, jobs: Sequence[Job]) -> "_Worker":
        taken = {worker.place for worker in self._workers.values()}
        place = min(set(range(self.slots)) - taken)
        context: Any = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        process = context.Process(
            target=_work, args=(jobs, theirs, self._surroundings(place)), name=jobs[0].name
        )
        process.start()
        theirs.close()
        return _Worker(jobs, place, process, pipe)

    def _surroundings(self, place: int) -> dict[str, str]:
        """Environment variables: a process's share of the cores, and its GPU."""
        settings = {"OMP_NUM_THREADS": str(max(1, cores() // self.slots))}
        if self.gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            settings["CUDA_VISIBLE_DEVICES"] = visible.split(",")[place] if visible else str(place)
        return settings


def _visible_gpus() -> int:
    """How many GPUs there are here; that there is none is an error."""
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        raise RuntimeError("PyTorch sees no GPU here: use --device cpu")
    return count


@dataclass(frozen=True)
class _Worker:
    jobs: Sequence[Job]
    place: int
    process: BaseProcess
    pipe: Connection

    def outcomes(self) -> list[Outcome]:
        """What a process that has ended has left."""
        self.process.join()
        try:
            if self.pipe.poll():
                answers = self.pipe.recv()
                return [Outcome(job, *a) for job, a in zip(self.jobs, answers, strict=True)]
        except EOFError:
            pass
        finally:
            self.pipe.close()
        code = self.process.exitcode or 0
        fate = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return [Outcome(job, "failed", f"its process died: {fate}") for job in self.jobs]


def _work(jobs: Sequence[Job], pipe: Connection, settings: dict[str, str]) -> None:
    """A process's life: its jobs, and it ends when the process that started it is gone."""
    os.setsid()  # Ctrl-C is for the process that started it, which passes it on
    os.environ.update(settings)
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    pipe.send(attempt(jobs))


def _end_with_parent(pipe: Connection) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(1)
