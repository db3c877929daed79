"""What each lever of the GPU path gains: Pong at the paper's settings, from a plain loop on."""

import statistics
import time
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from gymnasium.vector import VectorEnv

from relval import envs
from relval._machine import cores
from relval.accelerated import DeviceCollector, finish, in_turn
from relval.envs.atari import workers
from relval.ppo import Collector
from relval.runs import PRESETS, configure, trainer
from relval.runs.trainer import Trainer

_WARM_UP = 3
"""Updates before the clock starts: the first compile and record."""
_UPDATES = 40
_ALL_PAIRS = {"pairs": "all", "clip": None}


@dataclass(frozen=True)
class Lever:
    """One more thing that is done than in the line before."""

    name: str
    on_device: bool = True
    """Rollout and preprocessing."""
    spin: bool = True
    """Workers stay awake during a rollout."""
    compiled: bool = True
    groups: int = 8
    settings: dict[str, Any] = field(default_factory=dict)


LEVERS = (
    Lever("plain loop: stacks from sleeping workers, eager", False, False, False, 1),
    Lever("rollout and preprocessing on the GPU", True, False, False, 1),
    Lever("workers that stay awake", True, True, False, 1),
    Lever("compiled, recorded as CUDA graphs", True, True, True, 1),
    Lever("games in 8 groups"),
    Lever("all pairs in place of sampled ones", settings={"critic_options": _ALL_PAIRS}),
    Lever("bf16 in place of tf32", settings={"critic_options": _ALL_PAIRS, "precision": "bf16"}),
    Lever("fp32 in place of tf32", settings={"critic_options": _ALL_PAIRS, "precision": "fp32"}),
)


def run(updates: int = _UPDATES) -> None:
    """Steps per second and milliseconds per update, lever by lever; then other runs as fast."""
    if not torch.cuda.is_available():
        raise RuntimeError("this benchmark needs a GPU, and PyTorch sees none here")
    print(
        f"{torch.cuda.get_device_name()}, {cores()} cores, torch {torch.__version__}; "
        f"preset paper, {updates} updates after {_WARM_UP}\n"
    )
    print(f"{'Pong, relative':<52}{'steps/s':>10}{'update, ms':>12}")
    for lever in LEVERS:
        _print(lever.name, *_measure(_trainer(lever), updates))
    for env, critic in (("Pong", "absolute"), ("Breakout", "absolute"), ("Breakout", "relative")):
        options = _ALL_PAIRS if critic == "relative" else {}
        fast = Lever(f"{env}, {critic}", settings={"critic_options": options})
        _print(fast.name, *_measure(_trainer(fast, env, critic), updates))
    for what, each in (("core", None), ("game", PRESETS["paper"].envs.num_envs)):
        _print(f"4 seeds at once, all pairs, a worker for each {what}", _together(4, each, updates))


def _print(name: str, speed: float, update: float | None = None) -> None:
    shown = "" if update is None else f"{1e3 * update:.1f}"
    print(f"  {name:<50}{speed:>10,.0f}{shown:>12}", flush=True)


def _trainer(
    lever: Lever, env: str = "Pong", critic: str = "relative", *, seed: int = 1, runs: int = 1
) -> Trainer:
    config = configure(
        env,
        critic,
        preset="paper" if critic == "relative" else "relval",  # the same loop
        seed=seed,
        total_steps=10**9,
        device="cuda",
        compile="on" if lever.compiled else "off",
        **lever.settings,
    )
    with (
        mock.patch.object(workers, "_SPIN", workers._SPIN if lever.spin else 0.0),
        mock.patch.object(trainer, "GROUPS", lever.groups),
    ):
        return (Trainer if lever.on_device else _Plain)(config, runs=runs)


class _Plain(Trainer):
    """Observations come from the host, a step at a time."""

    def _make_envs(self, config: envs.EnvConfig) -> VectorEnv[Any, Any, Any]:
        return envs.make(self.config.env, config)

    def _make_collector(self, seed: int) -> Collector | DeviceCollector:
        return Collector(self.envs, self.normaliser, seed=seed)


def _measure(learner: Trainer, updates: int) -> tuple[float, float]:
    """Steps per second, and the median seconds of an update."""
    for _ in range(_WARM_UP):
        learner.iterate()
    steps, begin = learner.step, time.perf_counter()
    learning = [learner.iterate()[1]["learn"] for _ in range(updates)]
    speed = (learner.step - steps) / (time.perf_counter() - begin)
    learner.envs.close()
    return speed, statistics.median(learning)


def _together(count: int, each: int | None, updates: int) -> float:
    """Steps per second of several runs in one process, each with so many workers.

    With None they share the cores.
    """
    settings = {"critic_options": _ALL_PAIRS, "envs": {"workers": each}}
    fast = Lever("", settings=settings)
    learners = [_trainer(fast, seed=seed, runs=count) for seed in range(1, count + 1)]

    def iterate(learner: Trainer, times: int) -> Any:
        for _ in range(times):
            yield from learner.iterating()

    finish(in_turn([iterate(learner, _WARM_UP) for learner in learners]))
    before, begin = sum(learner.step for learner in learners), time.perf_counter()
    finish(in_turn([iterate(learner, updates) for learner in learners]))
    speed = (sum(learner.step for learner in learners) - before) / (time.perf_counter() - begin)
    for learner in learners:
        learner.envs.close()
    return speed
