"""The paper's remark: the discounted difference Δ_γ, which needs no anchor (Eq. 14)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from relval._bounds import Count, Positive, Share, Weight
from relval.critics.base import (
    Critic,
    CriticConfig,
    Evaluation,
    Minibatch,
    Rollout,
    estimated_constant,
    explained_variance,
    shuffled_parts,
)
from relval.critics.pairs import Pairs, some_pairs, with_partners
from relval.networks import value_head
from relval.relative import Trajectories, discounted_targets, gae, pair_loss


@dataclass(frozen=True)
class DiscountedConfig(CriticConfig):
    """Discounted differences γ V(s) − V(s'), learned from pairs with the mean squared error."""

    coefficient: Weight = 0.3
    """Weight of the critic's loss."""
    pairs: Literal["random", "biased"] = "biased"
    """Partners drawn from the batch, or some of them from the own episode."""
    same_episode: Share = 0.33
    """With biased pairs: the probability of a partner from the own episode."""
    n: Count = 5
    """Steps of the targets."""
    clip: Positive | None = 0.15
    """Largest departure from the old difference that the loss rewards; None for no limit."""


@dataclass(frozen=True, eq=False)
class _Prepared:
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
        return _Prepared(rollout.memory, advantages, gamma)

    def minibatches(
        self, rollout: Rollout, prepared: _Prepared, size: int, generator: torch.Generator
    ) -> Iterator[Minibatch]:
        """Shuffled transitions, each part with its partners, drawn anew in each epoch."""
        traj = rollout.traj
        judge = partial(self._judge, traj, prepared)
        p = self.config.same_episode if self.config.pairs == "biased" else 0.0
        parts = shuffled_parts(traj.transitions, size, generator)
        yield from with_partners(parts, traj, judge, same_episode=p, generator=generator)

    def evaluate(self, prepared: _Prepared, minibatch: Minibatch, features: Tensor) -> Evaluation:
        """The loss over the minibatch's pairs."""
        assert isinstance(minibatch, Pairs)
        first, second = self.remember(features).chunk(2)
        loss = pair_loss(
            prepared.gamma * first - second,
            minibatch.target,
            old=minibatch.old,
            clip=self.config.clip,
        )
        return self.judged(loss, prepared.advantages[minibatch.transitions])

    def diagnose(
        self, rollout: Rollout, prepared: _Prepared, *, gamma: float, lam: float
    ) -> dict[str, Tensor]:
        """How well differences explain their targets, and how much scores differ."""
        i, j = some_pairs(rollout.traj.transitions)
        return {
            "explained_variance": explained_variance(*self._judge(rollout.traj, prepared, i, j)),
            "value_spread": prepared.old[i].std(correction=0),
            **estimated_constant(rollout.traj, prepared.advantages, gamma=gamma, lam=lam),
        }

    def _judge(
        self, traj: Trajectories, prepared: _Prepared, i: Tensor, j: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What differences should be, and what they were."""
        scores, gamma = prepared.old, prepared.gamma
        target = discounted_targets(scores, traj, i, j, n=self.config.n, gamma=gamma)
        return target, gamma * scores[i] - scores[j]
