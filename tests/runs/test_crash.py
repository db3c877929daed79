"""Runs whose process is killed or interrupted, and what becomes of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from relval.runs import Run, load, resume, train
from tests.runs.helpers import UPDATE, assert_same_run, available, small

ENVS = ["CartPole-v1", "MinAtar/Breakout"]
UPDATES = 80
EVERY = 16 * UPDATE
NEVER = 10**9
PATIENCE = 120.0


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    status: int
    out: str
    err: str


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`relval train` as a process of its own, with as many threads as the tests have."""
    command = [sys.executable, "-m", "relval", "train", *map(str, arguments)]
    pipe = subprocess.PIPE
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def signalled(number: signal.Signals, when: Callable[[], bool], *arguments: object) -> Ended:
    """Starts `relval train`, and sends it a signal as soon as something is so."""
    with started(*arguments) as process:
        latest = time.monotonic() + PATIENCE
        while not when():
            if process.poll() is not None or time.monotonic() > latest:
                raise AssertionError(f"nothing to see: {process.communicate()}")
            time.sleep(0.0005)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        return Ended(process.returncode, out, err)


def anew(env: str, folder: Path, *, every: int) -> list[object]:
    """The arguments of a small run, the same as those of `small`."""
    return [
        *(env, "--critic", "relative", "--out", folder, "--quiet"),
        *("--ppo.steps", 16, "--ppo.minibatch", 32, "--ppo.epochs", 1, "--envs.num-envs", 4),
        *("--total-steps", UPDATES * UPDATE, "--checkpoint-every", every),
    ]


def has_rows(folder: Path) -> bool:
    metrics = folder / "metrics.csv"
    return metrics.exists() and metrics.stat().st_size > 0


def kill_twice(env: str, folder: Path) -> list[Ended]:
    """Killed once rows have followed a checkpoint, and once in a save or right after it."""
    sizes: dict[str, int] = {}
    metrics = folder / "metrics.csv"

    def rows_after_a_checkpoint() -> bool:
        if not available(folder):
            return False
        return metrics.stat().st_size > sizes.setdefault("metrics", metrics.stat().st_size)

    first = signalled(signal.SIGKILL, rows_after_a_checkpoint, *anew(env, folder, every=EVERY))
    known = set(os.listdir(folder / "checkpoints"))

    def saving() -> bool:
        return not known >= set(os.listdir(folder / "checkpoints"))

    return [first, signalled(signal.SIGKILL, saving, "--resume", folder, "--quiet")]


def kill_early(env: str, folder: Path) -> list[Ended]:
    """Killed when there are rows, but no checkpoint yet."""
    arguments = anew(env, folder, every=NEVER)
    return [signalled(signal.SIGKILL, lambda: has_rows(folder), *arguments)]


def interrupt(env: str, folder: Path) -> list[Ended]:
    """Interrupted by Ctrl-C when there are rows."""
    arguments = anew(env, folder, every=NEVER)
    return [signalled(signal.SIGINT, lambda: has_rows(folder), *arguments)]


def terminate(env: str, folder: Path) -> list[Ended]:
    """Asked to end when there are rows, as a scheduler asks."""
    arguments = anew(env, folder, every=NEVER)
    return [signalled(signal.SIGTERM, lambda: has_rows(folder), *arguments)]


Story = Callable[[str, Path], list[Ended]]
Stories = dict[tuple[Story, str], Future[tuple[Path, list[Ended]]]]


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    """All processes, two at a time, since most of their time goes into importing."""
    parent = tmp_path_factory.mktemp("crash")

    def play(story: Story, env: str) -> tuple[Path, list[Ended]]:
        folder = parent / f"{story.__name__}-{env.replace('/', '-')}"
        return folder, story(env, folder)

    with ThreadPoolExecutor(2) as pool:
        yield {
            (story, env): pool.submit(play, story, env)
            for story, env in (
                *((kill_twice, env) for env in ENVS),
                (kill_early, "CartPole-v1"),
                (interrupt, "MinAtar/Breakout"),
                (terminate, "MinAtar/Breakout"),
            )
        }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    parent = tmp_path_factory.mktemp("uninterrupted")
    return {
        env: train(
            small(env, updates=UPDATES, checkpoint_every=EVERY),
            parent / env.replace("/", "-"),
            quiet=True,
        )
        for env in ENVS
    }


@pytest.mark.parametrize("env", ENVS)
def test_a_run_that_was_killed_twice_ends_like_one_that_was_not(
    env: str, stories: Stories, uninterrupted: dict[str, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, ended = stories[kill_twice, env].result()
    assert [process.status for process in ended] == [-signal.SIGKILL] * 2
    assert not load(folder).finished
    assert resume(folder, quiet=True).finished
    assert "goes on from step" in capsys.readouterr().out
    assert_same_run(folder, uninterrupted[env].folder)


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(
    stories: Stories, uninterrupted: dict[str, Run], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, ended = stories[kill_early, "CartPole-v1"].result()
    assert [process.status for process in ended] == [-signal.SIGKILL]
    assert available(folder) == []
    assert resume(folder, quiet=True).finished
    assert "no checkpoint yet: starting from the beginning" in capsys.readouterr().out
    assert_same_run(folder, uninterrupted["CartPole-v1"].folder)


@pytest.mark.parametrize("story", [interrupt, terminate])
def test_ctrl_c_and_sigterm_save_the_run_and_say_how_to_go_on(
    story: Story, stories: Stories, uninterrupted: dict[str, Run]
) -> None:
    folder, (ended,) = stories[story, "MinAtar/Breakout"].result()
    assert ended.status == 130
    assert f"relval train --resume {folder}" in ended.err
    assert "Traceback" not in ended.err
    assert len(available(folder)) == 1
    assert not load(folder).finished
    assert resume(folder, quiet=True).finished
    assert_same_run(folder, uninterrupted["MinAtar/Breakout"].folder)
