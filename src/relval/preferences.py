"""Rewards from comparisons: a teacher who prefers segments, and a model of what it prefers.

After Christiano et al. (2017), "Deep reinforcement learning from human preferences". Segments are
equally long, so a constant added to all rewards changes no comparison: the model leaves it open.
"""

from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from relval._bounds import Count, Natural, Positive, Weight
from relval.networks import NetworkConfig, initialised, make_encoder
from relval.ppo import Collected


@dataclass(frozen=True)
class PreferenceConfig:
    """Learning from comparisons in place of rewards."""

    comparisons: Natural = 0
    """Pairs of segments that the teacher compares after each rollout; 0 to learn from rewards."""
    segment: Count = 25
    """Steps of a segment, all within one episode."""
    certainty: Weight = 3.0
    """β, how well the teacher tells returns apart: it prefers the higher one with probability
    σ(β d), where d is how much higher it is, in standard deviations of those that it sees."""
    remembered: Count = 1_000
    """Comparisons that the model of rewards is learned from, the newest ones."""
    batches: Count = 20
    """Gradient steps of the model after each rollout, on 64 comparisons each."""
    learning_rate: Positive = 1e-3
    """Of the model."""


_BATCH = 64


class RewardModel(nn.Module):
    """What a step is worth, from its observation and action."""

    def __init__(
        self,
        observation_space: gym.Space[np.ndarray],
        action_space: gym.Space[Any],
        network: NetworkConfig,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, network)
        self.choices = (
            int(action_space.n) if isinstance(action_space, gym.spaces.Discrete) else None
        )
        width = self.choices or int(np.prod(action_space.shape or ()))
        self.head = nn.Sequential(
            initialised(nn.Linear(self.encoder.features + width, 64), 1.0),
            nn.Tanh(),
            initialised(nn.Linear(64, 1), 1.0),
        )

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Rewards of steps, `[B]`."""
        features = self.encoder(observations)
        chosen = functional.one_hot(actions, self.choices) if self.choices else actions.flatten(1)
        rewards: Tensor = self.head(torch.cat([features, chosen.to(features)], 1)).squeeze(-1)
        return rewards


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Pairs of segments, and which of each pair was preferred."""

    observations: Tensor
    """`[M, 2, L, ...]`."""
    actions: Tensor
    """`[M, 2, L, ...]`."""
    first_preferred: Tensor
    """0 or 1, `[M]`."""

    def __len__(self) -> int:
        return len(self.first_preferred)

    def __getitem__(self, places: "Tensor | slice[int, None, None]") -> "Comparisons":
        return Comparisons(
            self.observations[places], self.actions[places], self.first_preferred[places]
        )

    def __add__(self, others: "Comparisons") -> "Comparisons":
        return Comparisons(
            torch.cat([self.observations, others.observations]),
            torch.cat([self.actions, others.actions]),
            torch.cat([self.first_preferred, others.first_preferred]),
        )


def compare(
    rollout: Collected, config: PreferenceConfig, generator: torch.Generator
) -> Comparisons | None:
    """A teacher's verdicts on pairs of segments of a rollout; it alone sees the rewards.

    P(first preferred) = σ(β (R − R') / spread of all R), with R and R' the sums of rewards (Bradley
    and Terry, 1952). None where no episode is as long as a segment.
    """
    traj = rollout.traj
    starts = (traj.remaining >= config.segment).nonzero().squeeze(1)
    if not len(starts):
        return None
    chosen = starts[torch.randint(len(starts), (config.comparisons, 2), generator=generator)]
    steps = chosen[..., None] + traj.envs * torch.arange(config.segment)
    returns = traj.rewards.flatten()[steps].sum(-1)
    higher = (returns[:, 0] - returns[:, 1]) / returns.std(correction=0).clamp(min=1e-12)
    preferred = torch.bernoulli(torch.sigmoid(config.certainty * higher), generator=generator)
    return Comparisons(rollout.observations[steps], rollout.actions[steps], preferred)


class Preferences:
    """Puts the model's rewards in the place of those that were collected, and keeps it learning.

    Args:
      config: How.
      observation_space: What the model sees.
      action_space: The same.
      network: The shape of its encoder.
      seed: Of its weights, of the teacher's doubts, and of minibatches.
    """

    def __init__(
        self,
        config: PreferenceConfig,
        observation_space: gym.Space[np.ndarray],
        action_space: gym.Space[Any],
        network: NetworkConfig,
        *,
        seed: int,
    ) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = RewardModel(observation_space, action_space, network)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.learning_rate)
        self.known: Comparisons | None = None
        """The comparisons that are remembered."""

    def reward(self, rollout: Collected) -> tuple[Collected, dict[str, float]]:
        """The rollout as the model rewards it, and how well the model knows the teacher."""
        new = compare(rollout, self.config, self.generator)
        if new is not None:
            known = new if self.known is None else self.known + new
            self.known = known[-self.config.remembered :]
        metrics = {"reward_loss": 0.0 if self.known is None else self._learn(self.known)}
        with torch.no_grad():
            rewards = self.model(rollout.observations, rollout.actions)
        true = rollout.traj.rewards.flatten()
        both = torch.stack([rewards, true])[:, rollout.traj.transitions]
        metrics["reward_mean"] = float(both[0].mean())
        metrics["reward_correlation"] = float(both.corrcoef()[0, 1].nan_to_num())
        traj = rollout.traj.changed(rewards=rewards.view_as(rollout.traj.rewards))
        return replace(rollout, traj=traj), metrics

    def _learn(self, known: Comparisons) -> float:
        """Some steps towards the teacher's verdicts; the mean loss."""
        losses = []
        for _ in range(self.config.batches):
            batch = known[torch.randint(len(known), (_BATCH,), generator=self.generator)]
            rewards = self.model(batch.observations.flatten(0, 2), batch.actions.flatten(0, 2))
            first, second = rewards.view(_BATCH, 2, -1).sum(-1).unbind(1)
            loss = functional.binary_cross_entropy_with_logits(
                first - second, batch.first_preferred
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        return float(torch.stack(losses).mean())
