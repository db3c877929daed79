"""Worker processes that die, hang and fail, and what is left when a pool's own process ends."""

import gc
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from relval import _machine
from relval.envs.atari import AtariPool, WorkerError
from relval.envs.atari.game import Cartridge, pack
from relval.envs.atari.player import Player
from relval.envs.atari.pool import Group

PROMISED = 5.0
"""Seconds after which a pool has noticed that a worker died or hangs."""
SLACK = 1.0
ORPHANED = 3.0
"""Seconds after which workers have noticed that their pool's process is gone."""
PATIENCE = 60.0
SHARED = Path("/dev/shm")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def pids(pool: AtariPool) -> list[int]:
    return pool.worker_pids


def status(pid: int) -> list[str]:
    """What /proc says of a process, from its state on; nothing if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def group(leader: int) -> list[int]:
    """The processes of a group that are not gone."""
    everyone = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in everyone if status(pid)[2:3] == [str(leader)]]


def until(happened: Callable[[], bool], limit: float) -> bool:
    """Waits for something; False if it did not happen in time."""
    latest = time.monotonic() + limit
    while not happened():
        if time.monotonic() > latest:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Ends a test that waits for ever."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("this took too long")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, 5)  # again, if to end it waits for ever too
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture
def pool() -> Iterator[AtariPool]:
    pool = AtariPool("Pong", 3, workers=3)
    pool.reset(seed=1)
    yield pool
    pool.close()


def noop(pool: AtariPool) -> np.ndarray:
    return np.zeros(pool.num_envs, int)


def play(pool: AtariPool, steps: int) -> np.ndarray:
    """Observations under random actions."""
    random = np.random.default_rng(0)
    shape = (steps, pool.num_envs)
    return np.stack([pool.step(move)[0] for move in random.integers(6, size=shape)])


# Workers in trouble


@pytest.mark.parametrize("doing", ["step", "reset", "capture"])
def test_a_worker_that_is_killed_is_named(pool: AtariPool, doing: str) -> None:
    workers = pids(pool)
    os.kill(workers[1], signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(WorkerError) as error:
        pool.step(noop(pool)) if doing == "step" else getattr(pool, doing)()
    assert time.monotonic() - begun < PROMISED
    assert f"worker 1 (process {workers[1]}) died: killed by SIGKILL" in str(error.value)
    assert not any(map(status, workers))
    with pytest.raises(RuntimeError, match="closed"):
        pool.step(noop(pool))


def test_a_worker_that_is_killed_at_work_is_named(pool: AtariPool) -> None:
    workers = pids(pool)
    os.kill(workers[2], signal.SIGSTOP)
    pool.send(noop(pool))
    os.kill(workers[2], signal.SIGKILL)
    with pytest.raises(WorkerError, match=rf"worker 2 \(process {workers[2]}\) .* SIGKILL"):
        pool.receive()
    assert not any(map(status, workers))


def test_a_worker_that_hangs_is_named(pool: AtariPool) -> None:
    workers = pids(pool)
    os.kill(workers[0], signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(WorkerError, match=rf"worker 0 \(process {workers[0]}\) hangs"):
        pool.step(noop(pool))
    assert time.monotonic() - begun < PROMISED + SLACK
    assert not any(map(status, workers))


def look_at(group: Group, seconds: float) -> bool:
    """Looks again and again whether a step is played."""
    latest = time.monotonic() + seconds
    while time.monotonic() < latest:
        if group.ready():
            return True
    return False


def test_to_look_at_a_worker_that_is_killed_is_an_error(pool: AtariPool) -> None:
    workers = pids(pool)
    (group,) = pool.groups(1)
    os.kill(workers[1], signal.SIGKILL)
    group.send(noop(pool))
    with pytest.raises(WorkerError, match=rf"worker 1 \(process {workers[1]}\) .* SIGKILL"):
        look_at(group, PROMISED)
    assert not any(map(status, workers))


def test_to_look_at_a_worker_that_hangs_is_an_error(pool: AtariPool) -> None:
    workers = pids(pool)
    (group,) = pool.groups(1)
    os.kill(workers[0], signal.SIGSTOP)
    group.send(noop(pool))
    with pytest.raises(WorkerError, match=rf"worker 0 \(process {workers[0]}\) hangs"):
        look_at(group, PROMISED + SLACK)
    assert not any(map(status, workers))


def test_a_worker_that_is_killed_is_noticed_while_others_go_on(pool: AtariPool) -> None:
    one, _, other = pool.groups(3)
    os.kill(pids(pool)[2], signal.SIGKILL)
    other.send(np.zeros(1, int))

    def go_on() -> None:
        latest = time.monotonic() + PROMISED
        while time.monotonic() < latest:
            one.send(np.zeros(1, int))
            while not (one.ready() or other.ready()):
                pass

    with pytest.raises(WorkerError, match=r"worker 2 .* SIGKILL"):
        go_on()


def test_a_slow_worker_is_waited_for(pool: AtariPool) -> None:
    expected = play(pool, 3)
    pool.reset(seed=1)
    os.kill(pids(pool)[0], signal.SIGSTOP)
    threading.Timer(1.5, os.kill, (pids(pool)[0], signal.SIGCONT)).start()
    assert_array_equal(play(pool, 3), expected)


def test_a_worker_that_fails_in_a_call_shows_where(pool: AtariPool) -> None:
    workers = pids(pool)
    state = pool.capture()
    state["games"][2]["emulator"] = pack(b"rubbish")
    with pytest.raises(WorkerError) as error:
        pool.restore(state)
    message = str(error.value)
    assert f"worker 2 (process {workers[2]}) failed" in message
    assert "Traceback (most recent call last)" in message
    assert "in restore" in message
    assert "ValueError: the saved state of an Atari game cannot be read" in message
    assert not any(map(status, workers))


def test_a_worker_that_fails_in_a_step_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(player: Player) -> None:
        raise ArithmeticError(f"env {min(player.games)}")

    monkeypatch.setattr(Player, "step", step)
    pool = AtariPool("Pong", 1, workers=1)
    pool.reset(seed=1)
    with pytest.raises(WorkerError, match=r"worker 0 .*\n.*Traceback[^$]*ArithmeticError: env 0"):
        pool.step(noop(pool))


class Nobody:
    """A player with nothing to play, quickly made."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass


def fails() -> None:
    raise ArithmeticError("at the start")


def exits() -> None:
    os._exit(3)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def no_cartridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves the time that it takes to look at a cartridge."""
    pong = Cartridge("Pong", 210, ("NOOP", "FIRE"), ntsc=True)
    monkeypatch.setattr("relval.envs.atari.pool.inspect", lambda game, rules: pong)


@pytest.mark.usefixtures("no_cartridge")
@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (fails, r"failed:\nTraceback[^$]*ArithmeticError: at the start"),
        (exits, "died: exit status 3"),
        (is_killed, "died: killed by SIGKILL"),
    ],
)
def test_a_worker_that_does_not_start_is_an_error(
    trouble: Callable[[], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = multiprocessing.active_children()

    def start(board: Any, envs: range, *arguments: Any, **options: Any) -> Nobody:
        if 1 in envs:
            trouble()
        return Nobody()

    monkeypatch.setattr("relval.envs.atari.pool.Player", start)
    with pytest.raises(WorkerError, match=rf"worker 1 \(process \d+\) {message}"):
        AtariPool("Pong", 3, workers=3)
    assert multiprocessing.active_children() == before


# Ctrl-C


@contextmanager
def ctrl_c_in(seconds: float) -> Iterator[None]:
    """Ctrl-C for this process, unless it is done before."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def interrupted(pool: AtariPool, doing: Callable[[], Any]) -> None:
    """Ctrl-C for this process while it waits for a worker, which is slow."""
    worker = pids(pool)[0]
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(KeyboardInterrupt), ctrl_c_in(0.3):
        doing()
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


@pytest.mark.usefixtures("no_cartridge")
def test_ctrl_c_while_workers_start_leaves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    before = multiprocessing.active_children()
    monkeypatch.setattr("relval.envs.atari.pool.Player", lambda *_, **__: time.sleep(PATIENCE))
    with pytest.raises(KeyboardInterrupt), ctrl_c_in(0.5):
        AtariPool("Pong", 2, workers=2)
    assert multiprocessing.active_children() == before


def test_a_pool_goes_on_after_ctrl_c_in_a_step(pool: AtariPool) -> None:
    expected = play(pool, 5)
    state = pool.capture()
    pool.reset(seed=1)
    play(pool, 4)
    last = np.random.default_rng(0).integers(6, size=(5, 3))[4]
    interrupted(pool, lambda: pool.step(last))
    assert pool.capture() == state  # the step was played
    interrupted(pool, lambda: pool.step(noop(pool)))
    pool.reset(seed=1)
    assert_array_equal(play(pool, 5), expected)


def test_a_pool_can_be_closed_after_ctrl_c_in_a_step(pool: AtariPool) -> None:
    workers = pids(pool)
    interrupted(pool, lambda: pool.step(noop(pool)))
    pool.close()
    assert not any(map(status, workers))


def test_a_pool_goes_on_or_is_closed_after_ctrl_c_in_a_call(pool: AtariPool) -> None:
    interrupted(pool, pool.capture)
    if not pids(pool):
        return
    play(pool, 5)
    assert pool.capture() == pool.capture()
    pool.reset(seed=1)
    assert all(isinstance(picture, np.ndarray) for picture in pool.render())


# At rest


def test_idle_workers_take_no_time() -> None:
    """Of one worker and of two: whoever leaves a core free spins for a moment before it sleeps."""
    pools = [AtariPool("Pong", workers, workers=workers) for workers in (1, 2)]
    for pool in pools:
        pool.reset(seed=1)
        pool.step(noop(pool))
    time.sleep(1)

    def used() -> list[float]:
        """Seconds of a core, by worker."""
        times = [status(pid)[11:13] for pool in pools for pid in pids(pool)]
        return [sum(map(int, both)) / os.sysconf("SC_CLK_TCK") for both in times]

    before, begun = used(), time.monotonic()
    time.sleep(2)
    share = np.subtract(used(), before) / (time.monotonic() - begun)
    for pool in pools:
        pool.close()
    assert len(share) == 3
    assert (share < 0.05).all(), share


# Files and memory


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("no_cartridge")
def test_pools_that_are_closed_keep_no_files_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relval.envs.atari.pool.Player", Nobody)
    AtariPool("Pong", 3, workers=3).close()
    before = descriptors()
    for _ in range(20):
        AtariPool("Pong", 3, workers=3).close()
    assert descriptors() == before


@pytest.mark.usefixtures("no_cartridge")
def test_pools_that_do_not_start_keep_no_files_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relval.envs.atari.pool.Player", lambda *_, **__: exits())
    before = descriptors()
    for _ in range(3):
        with pytest.raises(WorkerError):
            AtariPool("Pong", 1, workers=1)
    assert descriptors() == before


# Processes of their own


@dataclass(frozen=True)
class Ended:
    """A script that has ended."""

    status: int | None
    """None if it did not end in time."""
    out: str
    err: str
    left: list[int]
    """Processes that it started and that did not end soon after."""
    shared: set[str]
    """Names that it left in shared memory."""


HEAD = """
import gc, multiprocessing, os, signal, sys, time
from multiprocessing import resource_tracker
import numpy as np
from relval.envs.atari import AtariPool, pool as pools, workers
from relval.envs.atari.game import Cartridge

multiprocessing.current_process()._config["semprefix"] = "/mp-{mark}"  # to know its semaphores

def make(method="fork"):
    pool = AtariPool("Pong", 2, workers=2, start_method=method)
    pool.reset(seed=1)
    return pool

def make_lightly():
    class Nobody:
        def __init__(self, *arguments, **options): pass
        def capture(self): return "x" * 10_000_000
    pools.Player = Nobody
    pools.inspect = lambda game, rules: Cartridge("Pong", 210, ("NOOP", "FIRE"), ntsc=True)
    return AtariPool("Pong", 2, workers=2)

def play(pool, steps=30):
    random = np.random.default_rng(0)
    moves = random.integers(6, size=(steps, 2))
    return sum(int(pool.step(move)[0].sum()) * n for n, move in enumerate(moves))

def ready():
    print("ready", flush=True)

def count_files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

def say_what_is_left():
    print(len(multiprocessing.active_children()), count_files() - files, flush=True)

resource_tracker.ensure_running()
files = count_files()
"""
_numbers = itertools.count()


def run(
    folder: Path,
    body: str,
    then: Callable[[int], None] = lambda pid: None,
    *,
    guarded: bool = True,
    limit: float = PATIENCE,
) -> Ended:
    """Runs a script in a process group of its own.

    Args:
      folder: For the script and its output.
      body: What it does.
      then: What happens to the process once it has said that it is ready.
      guarded: Whether the script does it only where it is the main module.
      limit: Seconds given to the script.
    """
    mark = f"relval{os.getpid()}n{next(_numbers)}"
    script, out, err = (folder / f"{mark}.{kind}" for kind in ("py", "out", "err"))
    body = textwrap.dedent(body)
    if guarded:
        body = 'if __name__ == "__main__":\n' + textwrap.indent(body, "    ")
    script.write_text(HEAD.format(mark=mark) + body)
    before = set(os.listdir(SHARED))

    def shared() -> set[str]:
        """New names, except for semaphores that others made meanwhile."""
        new = set(os.listdir(SHARED)) - before
        return {name for name in new if mark in name or not name.startswith("sem.mp-")}

    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, script],
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        until(lambda: process.poll() is not None or "ready" in out.read_text(), PATIENCE)
        if process.poll() is None:
            then(process.pid)
        with suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        until(lambda: not group(process.pid) and not shared(), ORPHANED)
        left = group(process.pid)
        return Ended(process.poll(), out.read_text(), err.read_text(), left, shared())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for name in shared():
            if mark in name:
                (SHARED / name).unlink(missing_ok=True)


def kill(pid: int) -> None:
    time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)


def interrupt(leader: int) -> None:
    """Ctrl-C: for everyone in the group."""
    time.sleep(0.1)
    os.killpg(leader, signal.SIGINT)


def suspend(leader: int) -> None:
    """Ctrl-Z, and `fg` after longer than a step may take."""
    time.sleep(0.2)
    os.killpg(leader, signal.SIGSTOP)
    time.sleep(6)
    os.killpg(leader, signal.SIGCONT)


METHODS = ["fork", "spawn"]
ENDS: dict[str, dict[str, Any]] = {
    "exits": {"body": "play(pool)\nsys.exit(3)"},
    "raises": {"body": "pool.send(np.zeros(2, int))\nraise ArithmeticError('oh')"},
    "interrupted": {"body": "while True: play(pool)", "then": interrupt},
    "killed": {"body": "while True: play(pool)", "then": kill},
    "closes": {"body": "play(pool)\npool.close()\ndel pool\nsay_what_is_left()"},
    "drops": {"body": "play(pool)\ndel pool\nsay_what_is_left()"},
}
"""What becomes of a process with a pool."""
STORIES: dict[str, dict[str, Any]] = {
    **{
        f"{name} {method}": {**end, "body": f"pool = make({method!r})\nready()\n{end['body']}"}
        for method in METHODS
        for name, end in ENDS.items()
    },
    "unguarded": {"body": "print(play(make()))", "guarded": False},
    "stopped": {
        "body": """
            step = pools.Player.step
            def slow_step(player):
                begun = time.process_time()
                while time.process_time() < begun + 0.5: pass
                step(player)
            pools.Player.step = slow_step
            pool = make()
            ready()
            for _ in range(3): pool.step(np.zeros(2, int))
            pool.close()
            pools.Player.step = step
            print(play(make()))
        """,
        "then": suspend,
    },
    "daemon": {
        "body": """
            def inside():
                pool = AtariPool("Pong", 2)
                pool.reset(seed=1)
                print(len(pool.worker_pids), play(pool), flush=True)
            pool = make()
            print(len(pool.worker_pids), play(pool), flush=True)
            pool.close()
            child = multiprocessing.get_context("fork").Process(target=inside, daemon=True)
            child.start()
            child.join()
        """
    },
    "killed before it sends": {
        "body": """
            pool = make_lightly()
            class Pipe:
                def send(self, message): ready() or time.sleep(100)
            pool._crew._workers[0].pipe = Pipe()
            pool.capture()
        """,
        "then": kill,
    },
    "killed before it receives": {
        "body": """
            pool = make_lightly()
            class Pipe:
                def __init__(self, pipe): self.send = pipe.send
                def recv(self): ready() or time.sleep(100)
            worker = pool._crew._workers[0]
            worker.pipe = Pipe(worker.pipe)
            pool.capture()
        """,
        "then": kill,
    },
    "handles SIGTERM": {
        "body": """
            signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM"))
            pool = make_lightly()
            ready()
        """,
        "limit": 5.0,
    },
}
Told = dict[str, Future[Ended]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """All scripts, some at a time, since most of their time goes into importing or waiting."""
    folder = tmp_path_factory.mktemp("scripts")
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(run, folder, **story) for name, story in STORIES.items()}


def assert_nothing_left(ended: Ended) -> None:
    assert ended.left == []
    assert ended.shared == set()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "how",
    ["closes", "drops"],
)
def test_a_pool_that_is_closed_or_dropped_leaves_nothing(how: str, method: str, told: Told) -> None:
    ended = told[f"{how} {method}"].result()
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.split() == ["ready", "0", "0"]  # no workers, and no open files
    assert_nothing_left(ended)


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_exits_leaves_nothing(method: str, told: Told) -> None:
    ended = told[f"exits {method}"].result()
    assert (ended.status, ended.err) == (3, "")
    assert_nothing_left(ended)


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_fails_leaves_nothing(method: str, told: Told) -> None:
    ended = told[f"raises {method}"].result()
    assert ended.status == 1
    assert ended.err.count("Traceback") == ended.err.count("ArithmeticError: oh") == 1
    assert_nothing_left(ended)


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_ends_everyone_and_only_one_complains(method: str, told: Told) -> None:
    ended = told[f"interrupted {method}"].result()
    assert ended.status == -signal.SIGINT
    assert ended.err.count("Traceback") == ended.err.count("KeyboardInterrupt") == 1
    assert_nothing_left(ended)


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_is_killed_leaves_nothing(method: str, told: Told) -> None:
    ended = told[f"killed {method}"].result()
    assert ended.status == -signal.SIGKILL
    assert_nothing_left(ended)


@pytest.mark.parametrize("when", ["sends", "receives"])
def test_a_process_that_is_killed_in_a_call_leaves_nothing(when: str, told: Told) -> None:
    ended = told[f"killed before it {when}"].result()
    assert ended.status == -signal.SIGKILL
    assert_nothing_left(ended)


def test_a_process_that_handles_sigterm_ends(told: Told) -> None:
    ended = told["handles SIGTERM"].result()
    assert ended.status == 0
    assert_nothing_left(ended)


def test_a_pool_that_was_stopped_for_long_goes_on(told: Told) -> None:
    ended = told["stopped"].result()
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.split() == ["ready", *told["unguarded"].result().out.split()]


def test_forking_needs_no_guard_in_the_main_module(told: Told) -> None:
    ended = told["unguarded"].result()
    assert (ended.status, ended.err) == (0, "")
    assert len(ended.out.split()) == 1
    assert_nothing_left(ended)


def test_a_daemonic_process_emulates_by_itself(told: Told) -> None:
    ended = told["daemon"].result()
    assert (ended.status, ended.err) == (0, "")
    outside, inside = (line.split() for line in ended.out.splitlines())
    assert (outside[0], inside[0]) == ("2", "0")
    assert outside[1] == inside[1]


# Cores


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 1),
        ("50000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("rubbish", 8),
        (None, 8),
    ],
)
def test_cores_are_those_that_the_control_group_allows(
    limit: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(_machine, "Path", lambda path: tmp_path / Path(path).name)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert _machine.cores() == expected


def test_cores_are_those_that_the_affinity_allows() -> None:
    one = min(os.sched_getaffinity(0))
    said = subprocess.check_output(
        [
            *(sys.executable, "-c"),
            f"import os; os.sched_setaffinity(0, {{{one}}}); "
            "from relval._machine import cores; print(cores())",
        ],
        text=True,
    )
    assert said.split() == ["1"]


def test_where_there_is_no_affinity_all_cores_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_machine, "Path", lambda path: tmp_path / "nothing")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert _machine.cores() == 7
