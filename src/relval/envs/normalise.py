"""Running statistics of observations and returns."""

from typing import Any

import numpy as np

_LIMIT = 10.0


class RunningMoments:
    """Mean and variance of all that was seen, updated a batch at a time (Chan et al., 1979)."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = 1e-4

    def update(self, batch: np.ndarray) -> None:
        """Takes in a batch, `[B, *shape]`."""
        if len(batch) == 0:
            return
        mean, variance, count = batch.mean(0), batch.var(0), len(batch)
        difference, total = mean - self.mean, self.count + count
        self.variance = (
            self.variance * self.count
            + variance * count
            + difference**2 * self.count * count / total
        ) / total
        self.mean = self.mean + difference * count / total
        self.count = total

    def capture(self) -> dict[str, Any]:
        """The moments, as JSON holds them."""
        return {
            "mean": self.mean.tolist(),
            "variance": self.variance.tolist(),
            "count": self.count,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Puts captured moments back."""
        self.mean, self.variance = np.array(state["mean"]), np.array(state["variance"])
        self.count = state["count"]


class Normaliser:
    """Observations and rewards as the agent sees them, clipped to 10 standard deviations.

    Args:
      shape: Of an observation.
      num_envs: How many environments there are.
      gamma: Discount.
      obs: Whether observations are normalised.
      rewards: Whether rewards are.
      gauge: What is added to the value of a policy in every state, where nothing terminates:
        1 − γ of it is added to each reward.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        num_envs: int,
        gamma: float,
        *,
        obs: bool,
        rewards: bool,
        gauge: float = 0.0,
    ) -> None:
        self.obs = RunningMoments(shape) if obs else None
        self.returns = RunningMoments() if rewards else None
        self.running = np.zeros(num_envs)
        self.gamma = gamma
        self.gauge = gauge

    def observe(self, obs: np.ndarray) -> np.ndarray:
        """Learns from observations, and returns them normalised."""
        if self.obs is not None:
            self.obs.update(obs)
        return self.observations(obs)

    def observations(self, obs: np.ndarray) -> np.ndarray:
        """Observations as the agent sees them; nothing is learned."""
        if self.obs is None:
            return obs
        scaled = (obs - self.obs.mean) / np.sqrt(self.obs.variance + 1e-8)
        return np.clip(scaled, -_LIMIT, _LIMIT).astype(np.float32)

    def rewards(
        self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray | None = None
    ) -> np.ndarray:
        """Learns from rewards, where they are valid, and returns them as the agent sees them."""
        if self.returns is not None:
            self.running = self.gamma * self.running + rewards
            self.returns.update(self.running if valid is None else self.running[valid])
            self.running[ended] = 0.0
        return self.scaled(rewards)

    def scaled(self, rewards: np.ndarray) -> np.ndarray:
        """Rewards as the agent sees them, in the gauge; nothing is learned."""
        if self.returns is not None:
            rewards = np.clip(rewards / np.sqrt(self.returns.variance + 1e-8), -_LIMIT, _LIMIT)
        return rewards + (1 - self.gamma) * self.gauge if self.gauge else rewards

    def capture(self) -> dict[str, Any]:
        """The statistics, as JSON holds them."""
        return {
            "obs": self.obs.capture() if self.obs else None,
            "returns": self.returns.capture() if self.returns else None,
            "running": self.running.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Puts captured statistics back."""
        if self.obs:
            self.obs.restore(state["obs"])
        if self.returns:
            self.returns.restore(state["returns"])
        self.running = np.array(state["running"])


class Settled(Normaliser):
    """Statistics that learn nothing more, for any number of environments."""

    def __init__(self, learned: Normaliser) -> None:
        vars(self).update(vars(learned))

    def observe(self, obs: np.ndarray) -> np.ndarray:
        """Observations as the agent sees them."""
        return self.observations(obs)

    def rewards(
        self, rewards: np.ndarray, ended: np.ndarray, valid: np.ndarray | None = None
    ) -> np.ndarray:
        """Rewards as the agent sees them."""
        return self.scaled(rewards)
