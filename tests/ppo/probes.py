"""Tiny vector environments whose values are known."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)


class AutoResettingVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Episodes side by side, begun anew in either of Gymnasium's ways.

    Same-step: the step that ends an episode returns the first observation of the next, and the
    infos hold the last one of the old. Next-step: it returns the last observation, and the step
    after it ignores its action, pays nothing, and returns the first one of the next.
    """

    def __init__(
        self,
        num_envs: int,
        observation_space: gym.Space[np.ndarray],
        action_space: gym.Space[Any],
        autoreset_mode: AutoresetMode,
    ) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.same_step = autoreset_mode is AutoresetMode.SAME_STEP
        self.over = np.zeros(num_envs, dtype=np.bool_)
        """Next-step: episodes whose next action is ignored."""

    @abstractmethod
    def begin(self, which: np.ndarray) -> None:
        """Starts an episode where `which` is true."""

    @abstractmethod
    def play(
        self, actions: np.ndarray, which: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Advances where `which` is true; rewards and flags are zero elsewhere."""

    @abstractmethod
    def observe(self) -> np.ndarray:
        """Observations of all current states, a new array."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.over[:] = False
        self.begin(np.ones(self.num_envs, dtype=np.bool_))
        return self.observe(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        ignoring = self.over
        rewards, terminated, truncated = self.play(actions, ~ignoring)
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if not self.same_step:
            self.begin(ignoring)
            self.over = ended
        elif ended.any():
            final = np.full(self.num_envs, None, dtype=object)
            for n, last in enumerate(self.observe()):
                if ended[n]:
                    final[n] = last
            infos = {"final_obs": final, "_final_obs": ended}
            self.begin(ended)
        return self.observe(), rewards, terminated, truncated, infos


TERMINAL = -1


@dataclass(frozen=True, eq=False)
class Probe:
    """A deterministic process, given as tables, and what is true of it."""

    name: str
    observations: list[list[float]]
    """Of each state."""
    following: list[list[int]]
    """The next state, for each state and action; or `TERMINAL`."""
    rewards: list[list[float]]
    """For each state and action."""
    values: list[float]
    """True values under the best policy, one for each state."""
    gamma: float
    right: dict[int, int] = field(default_factory=dict)
    """The right action, for each state in which actions differ."""
    limit: int | None = None
    """Steps after which an episode is truncated."""

    def make(
        self,
        num_envs: int,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        *,
        truncation_terminates: bool = False,
    ) -> "ProbeVectorEnv":
        return ProbeVectorEnv(self, num_envs, autoreset_mode, truncation_terminates)


class ProbeVectorEnv(AutoResettingVectorEnv):
    """A probe's episodes, each begun in a state drawn at random.

    With `truncation_terminates` an episode cut by the limit is reported as terminated: a lie.
    """

    def __init__(
        self,
        probe: Probe,
        num_envs: int,
        autoreset_mode: AutoresetMode,
        truncation_terminates: bool,
    ) -> None:
        self.observations = np.array(probe.observations, dtype=np.float32)
        self.following = np.array(probe.following)
        self.rewards = np.array(probe.rewards)
        self.limit = probe.limit
        self.truncation_terminates = truncation_terminates
        self.state = np.zeros(num_envs, dtype=np.int64)
        self.steps = np.zeros(num_envs, dtype=np.int64)
        super().__init__(
            num_envs,
            gym.spaces.Box(-1, 1, self.observations.shape[1:], np.float32),
            gym.spaces.Discrete(self.rewards.shape[1]),
            autoreset_mode,
        )

    def begin(self, which: np.ndarray) -> None:
        states = self.np_random.integers(len(self.observations), size=self.num_envs)
        self.state = np.where(which, states, self.state)
        self.steps[which] = 0

    def play(
        self, actions: np.ndarray, which: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rewards = np.where(which, self.rewards[self.state, actions], 0.0)
        following = self.following[self.state, actions]
        terminated = which & (following == TERMINAL)
        self.state = np.where(which & ~terminated, following, self.state)
        self.steps += which
        truncated = which & ~terminated & (self.steps == self.limit)
        if self.truncation_terminates:
            return rewards, terminated | truncated, np.zeros_like(truncated)
        return rewards, terminated, truncated

    def observe(self) -> np.ndarray:
        return self.observations[self.state]


CONSTANT = Probe(
    "one step that always pays 1",
    observations=[[1.0]],
    following=[[TERMINAL, TERMINAL]],
    rewards=[[1.0, 1.0]],
    values=[1.0],
    gamma=0.8,
)

OBSERVATION = Probe(
    "one step that pays what was observed",
    observations=[[-1.0], [1.0]],
    following=[[TERMINAL, TERMINAL], [TERMINAL, TERMINAL]],
    rewards=[[-1.0, -1.0], [1.0, 1.0]],
    values=[-1.0, 1.0],
    gamma=0.8,
)

DELAY = Probe(
    "two steps, of which the last pays 1",
    observations=[[-1.0], [1.0]],
    following=[[1, 1], [TERMINAL, TERMINAL]],
    rewards=[[0.0, 0.0], [1.0, 1.0]],
    values=[0.5, 1.0],
    gamma=0.5,
)

ACTION = Probe(
    "one step, whose second action is right",
    observations=[[1.0]],
    following=[[TERMINAL, TERMINAL]],
    rewards=[[-1.0, 1.0]],
    values=[1.0],
    gamma=0.8,
    right={0: 1},
)

BOTH = Probe(
    "one step, whose right action is the one observed",
    observations=[[-1.0], [1.0]],
    following=[[TERMINAL, TERMINAL], [TERMINAL, TERMINAL]],
    rewards=[[1.0, -1.0], [-1.0, 2.0]],
    values=[1.0, 2.0],
    gamma=0.8,
    right={0: 0, 1: 1},
)

UNENDING = Probe(
    "two states that pay 1 and 2 for ever, seen for three steps at a time",
    observations=[[-1.0], [1.0]],
    following=[[0, 0], [1, 1]],
    rewards=[[1.0, 1.0], [2.0, 2.0]],
    values=[5.0, 10.0],
    gamma=0.8,
    limit=3,
)

COST = Probe(
    "each step costs 1, and in the first state one action is a short cut",
    observations=[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    following=[[1, 2], [2, 2], [TERMINAL, TERMINAL]],
    rewards=[[-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0]],
    values=[-1.8, -1.8, -1.0],
    gamma=0.8,
    right={0: 1},
)

PROBES = (CONSTANT, OBSERVATION, DELAY, ACTION, BOTH, UNENDING, COST)
