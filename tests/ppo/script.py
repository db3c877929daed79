"""A vector environment that writes down all that it does."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from tests.ppo.probes import AutoResettingVectorEnv

_LENGTHS = ((1, 4), (2, 3), (5, 1), (3, 3), (40, 1))
_ENDINGS = ("terminated", "truncated", "both")


@dataclass(frozen=True)
class Played:
    """One step that was truly played."""

    env: int
    observation: np.ndarray
    action: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    following: np.ndarray
    """What was observed after it, before anything began anew."""


class ScriptedVectorEnv(AutoResettingVectorEnv):
    """Five environments whose episodes last as scripted, and end in all ways by turns.

    The last one ends after the rollouts of the tests. Observations (env, episode, step) are all
    different, rewards random.
    """

    def __init__(
        self,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        action_space: gym.Space[Any] | None = None,
    ) -> None:
        num_envs = len(_LENGTHS)
        self.played: list[Played] = []
        self.episode = np.full(num_envs, -1)
        self.steps = np.zeros(num_envs, dtype=np.int64)
        space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        super().__init__(num_envs, space, action_space or gym.spaces.Discrete(3), autoreset_mode)

    def begin(self, which: np.ndarray) -> None:
        self.episode += which
        self.steps[which] = 0

    def play(
        self, actions: np.ndarray, which: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        before = self.observe()
        rewards = np.where(which, self.np_random.normal(size=self.num_envs), 0.0)
        terminated, truncated = np.zeros_like(which), np.zeros_like(which)
        self.steps += which
        after = self.observe()
        for n in which.nonzero()[0]:
            episode = self.episode[n]
            if self.steps[n] == _LENGTHS[n][episode % 2]:
                ending = _ENDINGS[(episode + n) % 3]
                terminated[n], truncated[n] = ending != "truncated", ending != "terminated"
            flags = bool(terminated[n]), bool(truncated[n])
            step = Played(int(n), before[n], actions[n], float(rewards[n]), *flags, after[n])
            self.played.append(step)
        return rewards, terminated, truncated

    def observe(self) -> np.ndarray:
        rows = [np.arange(self.num_envs), self.episode, self.steps]
        return np.stack(rows, 1).astype(np.float32) / 4
