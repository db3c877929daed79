"""The paper's remark: the discounted difference Δ_γ, which needs no anchor (Eq. 14)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from relval.critics.base import (
    Critic,
    CriticConfig,
    Evaluation,
    Minibatch,
    Rollout,
    shuffled_parts,
)
from relval.networks import value_head
from relval.relative import Trajectories, discounted_targets, gae, pair_loss, sample_pairs


@dataclass(frozen=True)
class DiscountedConfig(CriticConfig):
    """Discounted differences γ V(s) − V(s'), learned from pairs with the mean squared error."""

    coefficient: float = 0.3
    """Weight of the critic's loss."""
    pairs: Literal["random", "biased"] = "biased"
    """Partners drawn from the batch, or some of them from the own episode."""
    same_episode: float = 0.33
    """With biased pairs: the probability of a partner from the own episode."""
    n: int = 5
    """Steps of the targets."""
    clip: float | None = 0.15
    """Largest departure from the old difference that the loss rewards; None for no limit."""


@dataclass(frozen=True, eq=False)
class _Pairs(Minibatch):
    j: Tensor


@dataclass(frozen=True, eq=False)
class _Prepared:
    traj: Trajectories
    old: Tensor
    advantages: Tensor
    gamma: float


class DiscountedCritic(Critic[_Prepared]):
    """A score with a bias, trained through γ u(s) − u(s'); GAE from it as it is."""

    def __init__(self, config: DiscountedConfig, features: int, actions: int) -> None:
        super().__init__()
        self.config: DiscountedConfig = config
        self.head = value_head(features)

    def remember(self, features: Tensor) -> Tensor:
        """The score."""
        scores: Tensor = self.head(features).squeeze(-1)
        return scores

    def prepare(self, rollout: Rollout, *, gamma: float, lam: float) -> _Prepared:
        """Advantages from δ = r + Δ_γ(s', s), which is GAE on the scores."""
        advantages = gae(rollout.traj, rollout.memory, gamma=gamma, lam=lam).flatten()
        return _Prepared(rollout.traj, rollout.memory, advantages, gamma)

    def minibatches(
        self, rollout: Rollout, prepared: _Prepared, size: int, generator: torch.Generator
    ) -> Iterator[Minibatch]:
        """Shuffled transitions, each part with its partners, drawn anew in each epoch."""
        p = self.config.same_episode if self.config.pairs == "biased" else 0.0
        for part in shuffled_parts(rollout.traj.transitions, size, generator):
            j = sample_pairs(rollout.traj, part, same_episode=p, generator=generator)
            yield _Pairs(part, torch.cat([part, j]), j)

    def evaluate(self, prepared: _Prepared, minibatch: Minibatch, features: Tensor) -> Evaluation:
        """The loss over the minibatch's pairs."""
        assert isinstance(minibatch, _Pairs)
        i, j, gamma = minibatch.transitions, minibatch.j, prepared.gamma
        target = discounted_targets(prepared.old, prepared.traj, i, j, n=self.config.n, gamma=gamma)
        first, second = self.remember(features).chunk(2)
        old = gamma * prepared.old[i] - prepared.old[j]
        loss = pair_loss(gamma * first - second, target, old=old, clip=self.config.clip)
        return Evaluation(loss, self.scale(prepared.advantages[i]))
