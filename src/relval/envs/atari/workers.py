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

from relval._machine import cores, give_way
from relval.envs.atari.player import Player

_SPIN = 2e-3
"""Seconds of spinning: more than it takes to choose actions on a GPU."""
_SHORT_SPIN = 2e-4
"""The same for workers that leave no core free; the pool itself then sleeps at once."""
_GLANCE = 0.1
"""Seconds after which a pool that waits for a worker sees whether it is alive."""
_ORPHAN_CHECK = 0.5
"""Seconds after which an idle worker sees whether its pool's process is alive."""
_LONG = 60.0
"""Seconds that workers are given to start, and to answer calls."""


ALL = slice(None)
"""All players."""
_CLOSED = "the pool is closed, and plays no more"


class WorkerError(RuntimeError):
    """A worker died, hung or failed; its message says which one, and what happened."""


class Crew(Protocol):
    """Who plays the games of a pool."""

    @property
    def pids(self) -> list[int]:
        """The workers' process numbers."""

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


def make_crew(
    make_players: Sequence[Callable[[], Player]],
    *,
    joins: bool,
    start_method: str,
    patience: float,
) -> Crew:
    """A worker for each player, but none for the first one if this process joins in."""
    others = make_players[joins:]
    if not others:
        return InProcess(make_players[0]())
    workers = Workers(others, start_method=start_method, patience=patience)
    return Joined(InProcess(make_players[0]()), workers) if joins else workers


class InProcess:
    """One player, in this process."""

    def __init__(self, player: Player) -> None:
        self.pids: list[int] = []
        self.player: Player | None = player
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
        player = self._present()
        if self.pending:
            self.pending = False
            player.step()

    def call(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """What a method of the player returns."""
        self.finish_step()
        return [getattr(self._present(), method)(*(arguments or ()))]

    def close(self) -> None:
        """Lets the player go."""
        self.player = None

    def _present(self) -> Player:
        if self.player is None:
            raise RuntimeError(_CLOSED)
        return self.player


class Joined:
    """Workers, and one player more in this process, which would else only wait for them."""

    def __init__(self, own: InProcess, workers: "Workers") -> None:
        self.own, self.workers = own, workers

    @property
    def pids(self) -> list[int]:
        """The workers' process numbers."""
        return self.workers.pids

    def start_step(self, players: slice = ALL) -> None:
        """Tells workers to play: all of them."""
        self.workers.start_step()
        self.own.start_step()

    def ready(self, players: slice = ALL) -> bool:
        """Plays the part of this process, and sees whether the others have played theirs."""
        return self.own.ready() and self.workers.ready()

    def finish_step(self) -> None:
        """Plays the part of this process, and waits for the others."""
        self.own.finish_step()
        self.workers.finish_step()

    def call(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """What a method of each player returns, the one of this process first."""
        mine, theirs = (None, None) if arguments is None else (arguments[:1], arguments[1:])
        return self.own.call(method, mine) + self.workers.call(method, theirs)

    def close(self) -> None:
        """Lets everyone go."""
        self.workers.close()
        self.own.close()


class Workers:
    """One player in each of several processes.

    Semaphores tell a worker to begin and the pool that it is done. They are counted in shared
    memory: who finds one ready needs no system call. Whoever waits looks again and again for a
    moment, giving way to any process that wants the core, and sleeps then; much sooner where
    workers leave no core free.

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
        spare = len(make_players) < cores()
        self._spin = _SPIN if spare else 0.0
        spin = _SPIN if spare else _SHORT_SPIN
        self._workers: list[_Worker] = []
        self._awaited: list[_Worker] = []
        self._glanced = 0.0
        self._owner = os.getpid()
        try:
            for number, make_player in enumerate(make_players):
                self._workers.append(_Worker(number, make_player, context, spin))
            self._await(self._workers, _LONG)
            self._collect()
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
        self._await(self._workers[players], self.patience)
        for worker in self._workers[players]:
            worker.begin.release()

    def ready(self, players: slice = ALL) -> bool:
        """Whether they have; now and then, also whether all can."""
        self._check_open()
        asked = [worker for worker in self._workers[players] if worker in self._awaited]
        for worker in asked:
            if worker.done.acquire(block=False):
                self._awaited.remove(worker)
        if self._awaited:
            self._glance()
        return not any(worker in self._awaited for worker in asked)

    def finish_step(self) -> None:
        """Waits until all of them have."""
        self._check_open()
        self._collect()

    def call(self, method: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """What a method of each player returns; `arguments` holds one for each player."""
        self.finish_step()
        try:
            return self._call(method, arguments)
        except BaseException:  # also Ctrl-C: the next call must not get the answers to this one
            self.close()
            raise

    def _call(self, method: str, arguments: Sequence[Any] | None) -> list[Any]:
        self._await(self._workers, _LONG)
        for number, worker in enumerate(self._workers):
            worker.listen.release()
            worker.begin.release()
            try:
                worker.pipe.send((method, () if arguments is None else (arguments[number],)))
            except OSError:
                self._fail(worker)
        self._collect()
        answers = []
        for worker in self._workers:
            try:
                answers.append(worker.pipe.recv())
            except (EOFError, OSError):
                self._fail(worker)
        return answers

    def close(self) -> None:
        """Ends the workers; in a process that was forked from their owner, nothing happens."""
        if os.getpid() != self._owner:
            return
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
            worker.pipe.close()
        self._workers, self._awaited = [], []

    def _check_open(self) -> None:
        if not self._workers:
            raise RuntimeError(_CLOSED)

    def _await(self, workers: Sequence["_Worker"], limit: float) -> None:
        """Expects workers to be done within a limit."""
        for worker in workers:
            worker.limit = worker.left = limit
        self._awaited += workers

    def _collect(self) -> None:
        """Waits for each worker that is not done yet."""
        while self._awaited:
            if _wait(self._awaited[-1].done, self._spin, _GLANCE):
                self._awaited.pop()
            else:
                self._glance()

    def _glance(self) -> None:
        """Notices when a worker that is awaited will never be done; costs nothing in between.

        Time in which nobody glanced is not counted, since everything may have been stopped.
        """
        now = time.monotonic()
        passed = now - self._glanced
        if passed < _GLANCE / 2:
            return
        self._glanced = now
        for worker in tuple(self._awaited):
            if not worker.process.is_alive():
                self._fail(worker)
            worker.left -= min(passed, _GLANCE)
            if worker.left <= 0 and not worker.done.acquire(block=False):
                self._fail(worker, f"hangs: it was given {worker.limit:g} s")
            elif worker.left <= 0:
                self._awaited.remove(worker)

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
        self.limit = self.left = 0.0
        """Seconds that it is given, and that it has left."""
        pipe, their_pipe = context.Pipe()
        self.pipe: Connection = pipe
        inherited = pipe if context.get_start_method() == "fork" else None
        self.process: BaseProcess = context.Process(
            target=_work,
            args=(
                make_player,
                self.begin,
                self.listen,
                self.done,
                their_pipe,
                inherited,
                spin,
                os.getpid(),
            ),
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
    inherited: Connection | None,
    spin: float,
    parent: int,
) -> None:
    """A worker's life: it ends when it fails, or when the process that started it is gone."""
    if inherited is not None:
        inherited.close()  # or the pipe would stay open when the other side is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
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
            give_way()
            if semaphore.acquire(block=False):
                return True
    return semaphore.acquire(timeout=limit)
