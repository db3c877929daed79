"""Direct Advantage Estimation (Pan et al., 2022): advantages as a head of their own.

Details follow the authors' code, with two departures. A truncated segment bootstraps from its true
successor, where theirs takes zero. And no segments are dropped: those left over at an epoch's end
join the last minibatch, since with few environments they would be many.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from relval._bounds import Weight
from relval.critics.base import Critic, CriticConfig, Evaluation, Minibatch, Rollout, moments
from relval.networks import advantage_head, value_head


@dataclass(frozen=True)
class DAEConfig(CriticConfig):
    """Advantages A(s, a), centred under the behaviour policy, fitted jointly with values."""

    coefficient: Weight = 1.5
    """Weight of the critic's loss (CustomPPO_atari.yml of the authors' code)."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    probabilities: Tensor
    """Of all actions under the behaviour policy, `[T * N, A]`."""
    actions: Tensor
    rewards: Tensor
    start: Tensor
    """The first transition of each transition's segment, `[T * N]`."""
    remaining: Tensor
    tail: Tensor
    """What a transition's segment ends in: the old value of the last successor, discounted."""
    gamma: float


class DAECritic(Critic[_Prepared]):
    """One residual fits advantages and values; no λ, no importance weights, no clipping."""

    discrete_only = True

    def __init__(self, config: DAEConfig, features: int, actions: int) -> None:
        super().__init__()
        self.config: DAEConfig = config
        self.value = value_head(features)
        self.advantage = advantage_head(features, actions)

    @property
    def static(self) -> bool:
        """False: minibatches hold whole segments."""
        return False

    def remember(self, features: Tensor) -> Tensor:
        """The value, from which cut segments bootstrap."""
        values: Tensor = self.value(features).squeeze(-1)
        return values

    def prepare(self, rollout: Rollout, *, gamma: float, lam: float) -> _Prepared:
        """What each segment bootstraps from, and the behaviour policy to centre with."""
        traj = rollout.traj
        first = traj.states[:-1].flatten()
        following = torch.where(traj.terminated, 0, rollout.memory[traj.successor]).flatten()
        return _Prepared(
            probabilities=rollout.policy_outputs.softmax(-1),
            actions=rollout.actions,
            rewards=traj.rewards.flatten(),
            start=first - traj.elapsed * traj.envs,
            remaining=traj.remaining,
            tail=gamma ** traj.remaining.to(following.dtype) * following[traj.last],
            gamma=gamma,
        )

    def minibatches(
        self, rollout: Rollout, prepared: _Prepared, size: int, generator: torch.Generator
    ) -> Iterator[Minibatch]:
        """Whole segments in random order, gathered until there are at least `size` transitions."""
        traj = rollout.traj
        valid = traj.transitions
        heads = valid[traj.elapsed[valid] == 0]
        heads = heads[torch.randperm(len(heads), generator=generator, device=heads.device)]
        lengths = traj.remaining[heads].tolist()
        left = sum(lengths)
        group: list[Tensor] = []
        count = 0
        for head, length in zip(heads.tolist(), lengths, strict=True):
            group.append(torch.arange(head, head + length * traj.envs, traj.envs))
            count += length
            left -= length
            if left == 0 or (count >= size and left >= size):
                part = torch.cat(group).to(valid.device)
                yield Minibatch(part, part)
                group, count = [], 0

    def evaluate(self, prepared: _Prepared, minibatch: Minibatch, features: Tensor) -> Evaluation:
        """The residual G_i − V(s_i), with G backed up through each segment without advantages.

        G_i = Σ_{k>=i} γ^(k−i) (r_k − A(s_k, a_k)) + γ^(L−i) V_old(s_L), L the segment's end.
        """
        i = minibatch.transitions
        raw = self.advantage(features)
        probabilities = prepared.probabilities[i]
        advantages = raw - (probabilities * raw).sum(-1, keepdim=True)
        taken = advantages.gather(-1, prepared.actions[i].unsqueeze(-1)).squeeze(-1)

        steps = prepared.remaining[i, None] - prepared.remaining[None, i]  # from i on to k
        same = prepared.start[i, None] == prepared.start[None, i]
        discounts = torch.where(same & (steps >= 0), prepared.gamma ** steps.to(raw.dtype), 0)
        backed_up = discounts @ (prepared.rewards[i] - taken) + prepared.tail[i]
        loss = (backed_up - self.value(features).squeeze(-1)).square().mean()

        taken, advantages = taken.detach(), advantages.detach()
        scale = 1.0
        if self.config.normalise_advantages:
            spread = (probabilities * advantages.square()).sum(-1).mean().sqrt()
            scale = 1 / (spread + 1e-5)
        return Evaluation(loss, scale * taken, moments(taken))
