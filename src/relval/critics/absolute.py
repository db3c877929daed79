"""PPO's own critic: one value per state (Schulman et al., 2017)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from relval._bounds import Positive
from relval.critics.base import (
    Critic,
    CriticConfig,
    Evaluation,
    Minibatch,
    Rollout,
    estimated_constant,
    explained_variance,
)
from relval.networks import value_head
from relval.relative import gae


@dataclass(frozen=True)
class AbsoluteConfig(CriticConfig):
    """Values V(s), learned from λ-returns with half the mean squared error."""

    clip: Positive | None = None
    """Largest departure from the old value that the loss rewards; by default no limit."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    old: Tensor
    returns: Tensor
    advantages: Tensor


class AbsoluteCritic(Critic[_Prepared]):
    """Half the mean squared error between values and λ-returns."""

    def __init__(self, config: AbsoluteConfig, features: int, actions: int) -> None:
        super().__init__()
        self.config: AbsoluteConfig = config
        self.head = value_head(features)

    def remember(self, features: Tensor) -> Tensor:
        """The value."""
        values: Tensor = self.head(features).squeeze(-1)
        return values

    def prepare(self, rollout: Rollout, *, gamma: float, lam: float) -> _Prepared:
        """Advantages by GAE; returns are advantages plus values."""
        advantages = gae(rollout.traj, rollout.memory, gamma=gamma, lam=lam).flatten()
        old = rollout.memory[: len(advantages)]
        return _Prepared(old, advantages + old, advantages)

    def evaluate(self, prepared: _Prepared, minibatch: Minibatch, features: Tensor) -> Evaluation:
        """The loss of the values, clipped if the configuration says so."""
        i = minibatch.transitions
        values, returns = self.remember(features), prepared.returns[i]
        error = (values - returns).square()
        if self.config.clip is not None:
            old = prepared.old[i]
            clipped = old + (values - old).clamp(-self.config.clip, self.config.clip)
            error = torch.maximum(error, (clipped - returns).square())
        return self.judged(0.5 * error.mean(), prepared.advantages[i])

    def diagnose(
        self, rollout: Rollout, prepared: _Prepared, *, gamma: float, lam: float
    ) -> dict[str, Tensor]:
        """How well values explain returns, and how much they differ."""
        i = rollout.traj.transitions
        return {
            "explained_variance": explained_variance(prepared.returns[i], prepared.old[i]),
            "value_spread": prepared.old[i].std(correction=0),
            **estimated_constant(rollout.traj, prepared.advantages, gamma=gamma, lam=lam),
        }
