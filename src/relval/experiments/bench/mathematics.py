"""The all-pairs loss and n-step targets against the plain form over all pairs."""

import math
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from relval.relative import (
    LinearDelta,
    Trajectories,
    all_pairs_loss,
    n_step_targets,
    pair_loss,
    sample_pairs,
)

_SIZES = (1_000, 10_000, 100_000)  # each ten times the one before
_STEPS, _GAMMA = 5, 0.99
_BYTES_PER_PAIR = 100
"""What the plain form needs at its peak, roughly; decides where it fits."""


def run() -> None:
    """Time and peak memory of the all-pairs loss and of n-step targets, and how they grow."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, float32")
    print(f"n = {_STEPS}, an episode's end in one step of 50; losses forward and backward\n")
    works = {
        "all_pairs_loss": closed_form,
        "the same over B^2 pairs": plain_form,
        "n_step_targets, B pairs": sampled_targets,
    }
    print(f"{'B':>8}" + "".join(f"{name:>30}" for name in works) + f"{'B^2 / all_pairs':>18}")
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for size in _SIZES:
        print(f"{size:>8,}", end="", flush=True)
        for name, work in works.items():
            if work is plain_form and not _fits(size):
                print(f"{'does not fit':>30}", end="", flush=True)
                continue
            elapsed, peak = _measure(work, size)
            seconds[name].append(elapsed)
            print(f"{1e3 * elapsed:>16,.2f} ms {peak / 2**20:>6,.0f} MiB", end="", flush=True)
        closed, plain = seconds["all_pairs_loss"], seconds["the same over B^2 pairs"]
        print(f"{plain[-1] / closed[-1]:>17,.0f}x" if len(plain) == len(closed) else "")
    print("\nTime grows over the last two sizes as")
    for name, times in seconds.items():
        if len(times) > 1:
            exponent = math.log10(times[-1] / times[-2])
            print(f"  {name:<24} B^{exponent:.2f}")


def closed_form(size: int) -> Callable[[], Tensor]:
    """The mean over all pairs by `all_pairs_loss`, with its gradient."""
    traj, old, scores = _problem(size)
    i = traj.transitions

    def run() -> Tensor:
        loss = all_pairs_loss(scores, old, traj, i, n=_STEPS, gamma=_GAMMA)
        return torch.autograd.grad(loss, scores)[0]

    return run


def sampled_targets(size: int) -> Callable[[], Tensor]:
    """Targets for one sampled partner per transition."""
    traj, old, _ = _problem(size)
    i = traj.transitions
    j = sample_pairs(traj, i, same_episode=0.33)
    return lambda: n_step_targets(LinearDelta(old), traj, i, j, n=_STEPS, gamma=_GAMMA)


def plain_form(size: int) -> Callable[[], Tensor]:
    """The mean over all pairs as it is defined, with its gradient."""
    traj, old, scores = _problem(size)

    def run() -> Tensor:
        i, j = torch.meshgrid(traj.transitions, traj.transitions, indexing="ij")
        target = n_step_targets(LinearDelta(old), traj, i, j, n=_STEPS, gamma=_GAMMA)
        loss = pair_loss(scores[:, None] - scores[None, :], target)
        return torch.autograd.grad(loss, scores)[0]

    return run


def _problem(size: int) -> tuple[Trajectories, Tensor, Tensor]:
    """A rollout of `size` transitions, the old scores of its states, and new ones."""
    generator = torch.Generator().manual_seed(0)
    steps = 125
    rewards = torch.randn(steps, size // steps, generator=generator)
    traj = Trajectories(rewards, torch.rand(rewards.shape, generator=generator) < 0.02)
    old = torch.randn(traj.num_states, generator=generator)
    return traj, old, (old[:size] + 0.1).requires_grad_()


def _fits(size: int) -> bool:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return size**2 * _BYTES_PER_PAIR < memory / 2


def _measure(prepare: Callable[[int], Callable[[], Tensor]], size: int) -> tuple[float, int]:
    """Median seconds, and bytes at the peak, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_measure_here, args=(there, prepare, size))
    process.start()
    there.close()
    result: tuple[float, int] = here.recv()
    process.join()
    return result


def _measure_here(
    connection: Connection, prepare: Callable[[int], Callable[[], Tensor]], size: int
) -> None:
    prepare(_SIZES[0])()
    before = _peak_memory()
    run = prepare(size)
    seconds: list[float] = []
    while sum(seconds) < 1.0:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    connection.send((statistics.median(seconds), _peak_memory() - before))


def _peak_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
