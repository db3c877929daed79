"""Players in processes of their own, or in this one."""

import multiprocessing
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from typing import Any, NoReturn, Protocol

from relval._machine import cores
from relval.envs.atari.player import Player

_SPIN = 2e-3
"""Seconds of spinning: more than it takes to choose actions on a GPU."""
_GLANCE = 0.1
"""Seconds after which a pool that waits for a worker sees whether it is alive."""
_ORPHAN_CHECK = 0.5
"""Seconds after which an idle worker sees whether its pool's process is alive."""
_LONG = 60.0
"""Seconds that workers are given to start, and to answer calls."""


ALL = slice(None)
"""All players."""


class WorkerError(RuntimeError):
    """A worker died, hung or failed; its message says which one, and what happened."""


class Crew(Protocol):
    """Who plays the games of a pool."""

    def start_step(self, players: slice = ALL) -> None:
        """Lets players begin to play the actions on the board."""

    def ready(self, players: slice = ALL) -> bool:
        """Whether they have."""

    def finish_step(self) -> None:
        """Waits until they are played."""

    def call(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """What a method of each player returns; `arguments` holds one for each player."""

    def close(self) -> None:
        """Lets everyone go."""


class InProcess:
    """One player, in this process."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.pending = False

    def start_step(self, players: slice = ALL) -> None:
        """Notes that there is a step to play."""
        self.pending = True

    def ready(self, players: slice = ALL) -> bool:
        """Plays it, and so it is."""
        self.finish_step()
        return True

    def finish_step(self) -> None:
        """Plays it."""
        if self.pending:
            self.pending = False
            self.player.step()

    def call(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """What a method of the player returns."""
        return [getattr(self.player, method)(*(arguments or ()))]

    def close(self) -> None:
        """Nothing to let go."""


class Workers:
    """One player in each of several processes.

    Semaphores tell a worker to begin and the pool that it is done. They are counted in shared
    memory: who finds one ready needs no system call. Whoever waits looks again and again for a
    moment, giving way to any process that wants the core, and sleeps then; where workers leave no
    core free, it sleeps at once.

    Args:
      make_players: Called in the workers, one each.
      start_method: `fork` or `spawn`.
      patience: Seconds that a step may take.
    """

    def __init__(
        self, make_players: Sequence[Callable[[], Player]], *, start_method: str, patience: float
    ) -> None:
        context: Any = multiprocessing.get_context(start_method)
        self.patience = patience
        self._spin = _SPIN if len(make_players) < cores() else 0.0
        self._workers: list[_Worker] = []
        self._awaited: list[_Worker] = []
        self._left: float | None = None
        """Seconds until those that are awaited count as hanging; None if nobody looked yet."""
        self._next_glance = 0.0
        try:
            for number, make_player in enumerate(make_players):
                self._workers.append(_Worker(number, make_player, context, self._spin))
            self._awaited = list(self._workers)
            self._collect(_LONG)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The workers' process numbers."""
        return [worker.process.pid or 0 for worker in self._workers]

    def start_step(self, players: slice = ALL) -> None:
        """Tells workers to play the actions on the board."""
        if any(worker in self._awaited for worker in self._workers[players]):
            self.finish_step()
        self._check_open()
        for worker in self._workers[players]:
            worker.begin.release()
            self._awaited.append(worker)

    def ready(self, players: slice = ALL) -> bool:
        """Whether they have; now and then, also whether they can."""
        for worker in self._workers[players]:
            if worker in self._awaited:
                if not worker.done.acquire(block=False):
                    self._glance(self.patience)
                    return False
                self._awaited.remove(worker)
        self._left = None
        return True

    def finish_step(self) -> None:
        """Waits until all of them have."""
        self._check_open()
        self._collect(self.patience)

    def call(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """What a method of each player returns; `arguments` holds one for each player."""
        self.finish_step()
        self._awaited = list(self._workers)
        for number, worker in enumerate(self._workers):
            worker.listen.release()
            worker.begin.release()
            try:
                worker.pipe.send((method, () if arguments is None else (arguments[number],)))
            except OSError:
                self._fail(worker)
        self._collect(_LONG)
        answers = []
        for worker in self._workers:
            try:
                answers.append(worker.pipe.recv())
            except (EOFError, OSError):
                self._fail(worker)
        return answers

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
            worker.pipe.close()
        self._workers, self._awaited = [], []

    def _check_open(self) -> None:
        if not self._workers:
            raise RuntimeError("the pool is closed, and plays no more")

    def _collect(self, limit: float) -> None:
        """Waits for each worker that is not done yet."""
        while self._awaited:
            if _wait(self._awaited[-1].done, self._spin, _GLANCE):
                self._awaited.pop()
            else:
                self._glance(limit)
        self._left = None

    def _glance(self, limit: float) -> None:
        """Notices when a worker that is awaited will never be done; costs nothing in between.

        Time is counted in glances, so that what passed while everything was stopped is not.
        """
        now = time.monotonic()
        if self._left is None:
            self._left, self._next_glance = limit, now + _GLANCE
        if now < self._next_glance:
            return
        self._left -= _GLANCE
        self._next_glance = now + _GLANCE
        for worker in self._awaited:
            if not worker.process.is_alive():
                self._fail(worker)
        if self._left <= 0:
            self._fail(self._awaited[-1], f"hangs: it was given {limit:g} s")

    def _fail(self, worker: "_Worker", what: str | None = None) -> NoReturn:
        """Ends everything, because of one worker."""
        message = f"worker {worker.number} (process {worker.process.pid}) {what or worker.fate()}"
        self.close()
        raise WorkerError(f"{message}; the pool is closed")


class _Worker:
    """What a pool knows of one of its workers, which is started with it."""

    def __init__(
        self, number: int, make_player: Callable[[], Player], context: Any, spin: float
    ) -> None:
        self.number = number
        self.begin: Semaphore = context.Semaphore(0)
        self.listen: Semaphore = context.Semaphore(0)
        """Released before `begin` where a call waits in the pipe, in place of a step."""
        self.done: Semaphore = context.Semaphore(0)
        pipe, their_pipe = context.Pipe()
        self.pipe: Connection = pipe
        self.process: BaseProcess = context.Process(
            target=_work,
            args=(make_player, self.begin, self.listen, self.done, their_pipe, spin, os.getpid()),
            name=f"relval-atari-{number}",
            daemon=True,
        )
        with warnings.catch_warnings():
            # From Python 3.12 on, to fork beside threads warns. What a worker touches, emulator
            # and NumPy, takes no lock that a thread of this process could hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        their_pipe.close()

    def fate(self) -> str:
        """What became of a worker that is gone."""
        self.process.join(_GLANCE)
        try:
            if self.pipe.poll():
                return f"failed:\n{self.pipe.recv()}"
        except (EOFError, OSError):
            pass
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"died: killed by {signal.Signals(-code).name}"
        return f"died: exit status {code}"


def _work(
    make_player: Callable[[], Player],
    begin: Semaphore,
    listen: Semaphore,
    done: Semaphore,
    pipe: Connection,
    spin: float,
    parent: int,
) -> None:
    """A worker's life: it ends when it fails, or when the process that started it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    try:
        player = make_player()
        done.release()
        while True:
            while not _wait(begin, spin, _ORPHAN_CHECK):
                if os.getppid() != parent:
                    return
            if listen.acquire(block=False):
                method, arguments = pipe.recv()
                answer = getattr(player, method)(*arguments)
                done.release()
                pipe.send(answer)
            else:
                player.step()
                done.release()
    except (EOFError, BrokenPipeError):
        return
    except Exception:
        pipe.send(traceback.format_exc())


def _wait(semaphore: Semaphore, spin: float, limit: float) -> bool:
    """Takes a semaphore, spinning at first; False if it stays taken for longer than the limit."""
    if semaphore.acquire(block=False):
        return True
    if spin:
        end = time.perf_counter() + spin
        while time.perf_counter() < end:
            os.sched_yield()
            if semaphore.acquire(block=False):
                return True
    return semaphore.acquire(timeout=limit)
