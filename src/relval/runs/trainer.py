"""A run in memory: all that changes while it learns, and how to save and restore it."""

import os
import time
import warnings
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from relval import envs
from relval._machine import cores
from relval.accelerated import GROUPS, DeviceCollector, Recorded, Waiting, finish, go_to
from relval.envs import Episode
from relval.optimizer import Compiler, as_it_is, make_optimizer, set_rate
from relval.ppo import Agent, Collected, Collector, fetch, learn
from relval.preferences import Comparisons, Preferences
from relval.runs import files
from relval.runs.checkpoint import Checkpoint
from relval.runs.config import Config

_WINDOW = 100
"""Episodes over which the score is the mean."""

Iteration = tuple[dict[str, float], dict[str, float], list[Episode]]
"""What a rollout and an update gave: metrics, the seconds of each phase, finished episodes."""


class Trainer:
    """Collects and learns, one update at a time.

    Args:
      config: What to train.
      runs: How many share this process, and so its cores.
    """

    def __init__(self, config: Config, *, runs: int = 1) -> None:
        if config.device != "cpu" and not torch.cuda.is_available():
            raise RuntimeError(
                f"device {config.device!r} was asked for, but PyTorch sees no CUDA device here; "
                "use --device cpu"
            )
        self.config = config
        weights_seed, noise_seed, envs_seed, preferences_seed = (
            int(child.generate_state(1)[0])
            for child in np.random.SeedSequence(config.seed).spawn(4)
        )
        self.device = torch.device(config.device)
        on_gpu = self.device.type == "cuda"
        made = config.envs
        if made.workers is None and runs > 1:
            made = replace(made, workers=max(1, cores() // runs))
        self._runs = runs
        self.envs = self._make_envs(made)
        if on_gpu:
            _warn_of_few_cores(self.envs)
        else:
            _warn_of_idle_gpu(self.envs)
        space = envs.seen_space(self.envs, config.envs)
        torch.set_num_threads(1)  # initial weights depend on the number, in the last digits
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(weights_seed)
            self.agent = Agent(
                space,
                self.envs.single_action_space,
                config.network,
                config.critic,
            ).to(self.device)
        self.stream = torch.cuda.Stream() if on_gpu else None
        with torch.cuda.stream(self.stream):
            self._set_precision()
            self.optimizer = make_optimizer(
                self.agent,
                rate=config.ppo.learning_rate,
                eps=config.ppo.adam_eps,
                compiled=self._compiler,
            )
            self.clip: float | Tensor = (
                torch.tensor(config.ppo.clip, device=self.device) if on_gpu else config.ppo.clip
            )
            self.generator = torch.Generator(self.device).manual_seed(noise_seed)
            self.normaliser = make_normaliser(config, space.shape or ())
            self.collector = self._make_collector(envs_seed)
        self.preferences = self._make_preferences(preferences_seed, space)
        self._threads = config.threads or _threads_by_default(self.envs)
        self._rollout: Collected | None = None
        self._learn = Recorded(
            self._learn_from_rollout,
            self.generator,
            enabled=config.compile == "on"
            and isinstance(self.collector, DeviceCollector)
            and self.agent.critic.static,
        )
        self.step = 0
        self.episodes = 0
        self.seconds = 0.0
        self.last_scores: deque[float] = deque(maxlen=_WINDOW)

    @property
    def score(self) -> float | None:
        """Mean score of the last 100 episodes; None before the first has ended."""
        return float(np.mean(self.last_scores)) if self.last_scores else None

    def iterate(self) -> Iteration:
        """One rollout and one update."""
        return finish(self.iterating())

    def iterating(self) -> Waiting[Iteration]:
        """One rollout and one update, giving way whenever it would have to wait."""
        work = self._iterating()
        while True:
            go_to(self.stream)
            try:
                next(work)
            except StopIteration as stop:
                iteration: Iteration = stop.value
                return iteration
            yield

    def _iterating(self) -> Waiting[Iteration]:
        config = self.config.ppo
        self._anneal()
        begin = time.perf_counter()
        if isinstance(self.collector, DeviceCollector):
            rollout = yield from self.collector.collecting()
        else:
            torch.set_num_threads(1)  # acting is on a few observations: more threads only wait
            rollout = self.collector.collect(self.agent, config.steps, self.generator)
            torch.set_num_threads(self._threads)
        before = time.perf_counter()
        compared: dict[str, float] = {}
        if self.preferences is not None:
            rollout, compared = self.preferences.reward(rollout)
        self._rollout = rollout
        means = self._learn()
        if self.stream is not None:
            learned = torch.cuda.Event()
            learned.record()
            while not learned.query():
                yield
        metrics = fetch(means) | compared
        end = time.perf_counter()
        self.step += config.steps * self.config.envs.num_envs
        self.episodes += len(rollout.episodes)
        self.last_scores.extend(episode.score for episode in rollout.episodes)
        self.seconds += end - begin
        return metrics, {**rollout.seconds, "learn": end - before}, rollout.episodes

    def _anneal(self) -> None:
        """Lets learning rate and clip range fall, where the configuration wants that."""
        config = self.config.ppo
        left = max(0.0, 1 - self.step / self.config.total_steps)
        rate = config.learning_rate * (left if config.anneal_learning_rate else 1.0)
        clip = config.clip * (left if config.anneal_clip else 1.0)
        if isinstance(self.clip, Tensor):
            self.clip.fill_(clip)
        else:
            self.clip = clip
        set_rate(self.optimizer, rate)

    def _make_envs(self, config: envs.EnvConfig) -> VectorEnv[Any, Any, Any]:
        return envs.make(self.config.env, config, screens=self.device.type == "cuda")

    def _make_collector(self, seed: int) -> Collector | DeviceCollector:
        if self.device.type == "cuda" and isinstance(self.envs, envs.AtariPool):
            _check_seen_as_they_are(self.config.envs)
            return DeviceCollector(
                self.envs,
                self.agent,
                self.config.ppo.steps,
                self.generator,
                seed=seed,
                record=self.config.compile == "on",
                compiled=self._compiler,
                groups=max(1, GROUPS // self._runs),
            )
        return Collector(self.envs, self.normaliser, seed=seed)

    def _make_preferences(self, seed: int, space: gym.Space[np.ndarray]) -> Preferences | None:
        config = self.config.preferences
        if not config.comparisons:
            return None
        if self.device.type != "cpu":
            raise ValueError("preferences are learned on a CPU only: use --device cpu")
        actions = self.envs.single_action_space
        return Preferences(config, space, actions, self.config.network, seed=seed)

    @property
    def _compiler(self) -> Compiler:
        """On a GPU, what fuses the operations of a function into few kernels."""
        if self.device.type == "cpu" or self.config.compile == "off":
            return as_it_is
        return partial(torch.compile, dynamic=False)

    def _set_precision(self) -> None:
        """How encoders compute, and on a GPU all matrix products and convolutions."""
        for encoder in {self.agent.encoder, self.agent.critic_encoder}:
            encoder.bf16 = self.config.precision == "bf16"
        if self.device.type == "cuda":
            reduced = self.config.precision != "fp32"
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = reduced
            torch.backends.cudnn.benchmark = True

    def _learn_from_rollout(self) -> dict[str, Tensor]:
        assert self._rollout is not None
        return learn(
            self.agent,
            self.optimizer,
            self._rollout,
            self.config.ppo,
            self.generator,
            clip=self.clip,
            compiled=self._compiler if self.agent.critic.static else as_it_is,
        )

    def capture(self) -> Checkpoint:
        """Everything, to go on from here."""
        tensors = {
            "generator": self.generator.get_state(),
            "observations": torch.from_numpy(self.collector.observations),
            **_named("agent", self.agent.state_dict()),
            **_named("optimizer", _moments(self.optimizer)),
        }
        if self.preferences is not None:
            tensors |= _named("preferences", _preferred(self.preferences))
        return Checkpoint(
            tensors,
            {
                "step": self.step,
                "episodes": self.episodes,
                "seconds": self.seconds,
                "last_scores": list(self.last_scores),
                "normaliser": self.normaliser.capture(),
                "envs": envs.capture(self.envs),
                "counter": self.collector.counter.capture(),
            },
        )

    def restore(self, checkpoint: Checkpoint) -> list[str]:
        """Puts everything back, and says what could not be."""
        tensors, state = checkpoint.tensors, checkpoint.state
        restore_agent(self.agent, checkpoint)
        _restore_moments(self.optimizer, _under("optimizer", tensors))
        if self.preferences is not None:
            _restore_preferred(self.preferences, _under("preferences", tensors))
        self.step, self.episodes = state["step"], state["episodes"]
        self.seconds = state["seconds"]
        self.last_scores.extend(state["last_scores"])
        self.normaliser.restore(state["normaliser"])
        envs_seed, noise_seed = (
            int(seed)
            for seed in np.random.SeedSequence([self.config.seed, self.step]).generate_state(2)
        )
        lost = self._restore_noise(tensors["generator"], noise_seed)
        if state["envs"] is None:
            return lost + self._begin_anew(envs_seed)
        observations = tensors["observations"].numpy()
        envs.restore(self.envs, state["envs"], seen=observations)
        self.collector.observations = observations
        self.collector.counter.restore(state["counter"])
        return lost

    def _restore_noise(self, state: Tensor, seed: int) -> list[str]:
        """Goes on with the random numbers; with others, if another kind of device drew them."""
        if state.shape == self.generator.get_state().shape:
            self.generator.set_state(state)
            return []
        self.generator.manual_seed(seed)
        return ["the random numbers, which another kind of device drew"]

    def _begin_anew(self, seed: int) -> list[str]:
        """New episodes, other than those that the run began with."""
        self.normaliser.running[:] = 0.0  # returns of the episodes that are lost
        self.collector = self._make_collector(seed)
        return [f"the episodes in progress: {self.config.env} offers no way to restore them"]


def _check_seen_as_they_are(config: envs.EnvConfig) -> None:
    """Refuses what is done to rewards and observations on the way from the host only."""
    for name in ("normalise_observations", "normalise_rewards", "gauge"):
        if getattr(config, name):
            raise ValueError(f"envs.{name} is not for Atari on a GPU: use --device cpu")


def _warn_of_few_cores(vector: Any) -> None:
    """Says why a GPU will be idle, where games are emulated."""
    if isinstance(vector, envs.AtariPool) and cores() < vector.num_envs:
        warnings.warn(
            f"{vector.num_envs} games share {cores()} cores, so the GPU will mostly wait for them; "
            "give the run more cores",
            stacklevel=3,
        )


def _warn_of_idle_gpu(vector: Any) -> None:
    """Says what would make learning from images many times as fast."""
    if isinstance(vector, envs.AtariPool) and torch.cuda.is_available():
        warnings.warn(
            "there is a GPU, and this run does not use it: --device cuda makes it many times as "
            "fast",
            stacklevel=3,
        )


def _threads_by_default(vector: Any) -> int:
    """One, since more cost more than they gain on small observations."""
    if not isinstance(vector, envs.AtariPool):
        return 1
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(told) if told else cores()


def make_normaliser(config: Config, shape: tuple[int, ...]) -> envs.Normaliser:
    """The statistics that a configuration asks for, still empty."""
    return envs.Normaliser(
        shape,
        config.envs.num_envs,
        config.ppo.gamma,
        obs=config.envs.normalise_observations,
        rewards=config.envs.normalise_rewards,
        gauge=config.envs.gauge,
    )


def restore_agent(agent: Agent, checkpoint: Checkpoint) -> None:
    """Loads the parameters of a checkpoint."""
    try:
        agent.load_state_dict(_under("agent", checkpoint.tensors))
    except RuntimeError as error:
        raise ValueError(
            f"the checkpoint is not of the network that {files.CONFIG} describes; if that was "
            f"changed, change it back: {error}"
        ) from error


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin so, named as they are without it."""
    return {
        name.removeprefix(f"{prefix}."): tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{prefix}.")
    }


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that an optimiser has gathered, by the number of the parameter and by name."""
    return {
        f"{index}.{name}": value
        for index, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def _restore_moments(optimizer: torch.optim.Optimizer, moments: dict[str, Tensor]) -> None:
    whole = optimizer.state_dict()
    for name, value in moments.items():
        index, key = name.split(".", 1)
        whole["state"].setdefault(int(index), {})[key] = value
    optimizer.load_state_dict(whole)


def _preferred(preferences: Preferences) -> dict[str, Tensor]:
    """All that changes while preferences are learned."""
    known = preferences.known
    return {
        "generator": preferences.generator.get_state(),
        **_named("model", preferences.model.state_dict()),
        **_named("optimizer", _moments(preferences.optimizer)),
        **_named("known", {} if known is None else vars(known)),
    }


def _restore_preferred(preferences: Preferences, tensors: dict[str, Tensor]) -> None:
    preferences.generator.set_state(tensors["generator"])
    preferences.model.load_state_dict(_under("model", tensors))
    _restore_moments(preferences.optimizer, _under("optimizer", tensors))
    known = _under("known", tensors)
    preferences.known = Comparisons(**known) if known else None
