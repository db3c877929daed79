"""A run in memory: all that changes while it learns, and how to save and restore it."""

import time
from collections import deque
from typing import Any

import numpy as np
import torch

from relval import envs
from relval.envs import Episode
from relval.ppo import Agent, Collector, make_optimizer, update
from relval.runs.checkpoint import Checkpoint
from relval.runs.config import Config

_WINDOW = 100
"""Episodes over which the score is the mean."""


class Trainer:
    """Collects and learns, one update at a time."""

    def __init__(self, config: Config) -> None:
        if config.device != "cpu" and not torch.cuda.is_available():
            raise RuntimeError(
                f"device {config.device!r} was asked for, but PyTorch sees no CUDA device here; "
                "use --device cpu"
            )
        self.config = config
        weights_seed, noise_seed, envs_seed = (
            int(child.generate_state(1)[0])
            for child in np.random.SeedSequence(config.seed).spawn(3)
        )
        self.envs = envs.make(config.env, config.envs)
        torch.set_num_threads(1)  # initial weights depend on the number, in the last digits
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(weights_seed)
            self.agent = Agent(
                self.envs.single_observation_space,
                self.envs.single_action_space,
                config.network,
                config.critic,
            ).to(config.device)
        self.optimizer = make_optimizer(self.agent, config.ppo)
        self.generator = torch.Generator(config.device).manual_seed(noise_seed)
        self.normaliser = make_normaliser(config, self.envs.single_observation_space.shape or ())
        self.collector = Collector(self.envs, self.normaliser, seed=envs_seed)
        self.step = 0
        self.episodes = 0
        self.seconds = 0.0
        self.last_scores: deque[float] = deque(maxlen=_WINDOW)

    @property
    def score(self) -> float | None:
        """Mean score of the last 100 episodes; None before the first has ended."""
        return float(np.mean(self.last_scores)) if self.last_scores else None

    def iterate(self) -> tuple[dict[str, float], dict[str, float], list[Episode]]:
        """One rollout and one update: its metrics, the seconds of each phase, its episodes."""
        config = self.config.ppo
        left = max(0.0, 1 - self.step / self.config.total_steps)
        rate = config.learning_rate * (left if config.anneal_learning_rate else 1.0)
        clip = config.clip * (left if config.anneal_clip else 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        begin = time.perf_counter()
        torch.set_num_threads(1)  # acting is on a few observations: more threads only wait
        rollout = self.collector.collect(self.agent, config.steps, self.generator)
        torch.set_num_threads(self.config.threads)
        before = time.perf_counter()
        metrics = update(self.agent, self.optimizer, rollout, config, self.generator, clip=clip)
        end = time.perf_counter()
        self.step += config.steps * self.config.envs.num_envs
        self.episodes += len(rollout.episodes)
        self.last_scores.extend(episode.score for episode in rollout.episodes)
        self.seconds += end - begin
        return metrics, {**rollout.seconds, "learn": end - before}, rollout.episodes

    def capture(self) -> Checkpoint:
        """Everything, to go on from here."""
        tensors = {f"agent.{name}": value for name, value in self.agent.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        tensors["generator"] = self.generator.get_state()
        tensors["observations"] = torch.from_numpy(self.collector.observations)
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
        optimizer = self.optimizer.state_dict()
        for name, value in tensors.items():
            match name.split(".", 2):
                case ["optimizer", index, key]:
                    optimizer["state"].setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict(optimizer)
        self.generator.set_state(tensors["generator"])
        self.step, self.episodes = state["step"], state["episodes"]
        self.seconds = state["seconds"]
        self.last_scores.extend(state["last_scores"])
        self.normaliser.restore(state["normaliser"])
        if state["envs"] is None:
            return self._begin_anew()
        envs.restore(self.envs, state["envs"])
        self.collector.observations = tensors["observations"].numpy()
        self.collector.counter.restore(state["counter"])
        return []

    def _begin_anew(self) -> list[str]:
        """New episodes, other than those that the run began with."""
        seed = np.random.SeedSequence([self.config.seed, self.step])
        self.collector = Collector(self.envs, self.normaliser, seed=int(seed.generate_state(1)[0]))
        return [f"the episodes in progress: {self.config.env} offers no way to restore them"]


def make_normaliser(config: Config, shape: tuple[int, ...]) -> envs.Normaliser:
    """The statistics that a configuration asks for, still empty."""
    return envs.Normaliser(
        shape,
        config.envs.num_envs,
        config.ppo.gamma,
        obs=config.envs.normalise_observations,
        rewards=config.envs.normalise_rewards,
    )


def restore_agent(agent: Agent, checkpoint: Checkpoint) -> None:
    """Loads the parameters of a checkpoint."""
    prefix = "agent."
    state: dict[str, Any] = {
        name.removeprefix(prefix): value
        for name, value in checkpoint.tensors.items()
        if name.startswith(prefix)
    }
    agent.load_state_dict(state)
