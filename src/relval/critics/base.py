"""What a critic is: the one part of PPO that you choose."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from relval._bounds import Weight
from relval.relative import Delta, LinearDelta, Trajectories, constant_part

Prepared = TypeVar("Prepared")
"""What a critic makes of a rollout, once."""


@dataclass(frozen=True)
class CriticConfig:
    """What all critics can be told."""

    coefficient: Weight = 0.5
    """Weight of the critic's loss beside the policy's."""
    normalise_advantages: bool = True
    """Bring the advantages of each minibatch to a common scale."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """What was collected with the behaviour parameters, as a critic sees it."""

    traj: Trajectories
    actions: Tensor
    """`[T * N, ...]`."""
    policy_outputs: Tensor
    """What described the behaviour policy in each transition, `[T * N, outputs]`."""
    memory: Tensor
    """What the critic remembered of each state, `[S, ...]`."""


@dataclass(frozen=True, eq=False)
class Minibatch:
    """Transitions that the policy learns from, and those whose states are encoded for it."""

    transitions: Tensor
    """`[B]`."""
    encode: Tensor
    """Transition numbers, `[M]`, M >= B; the first B are `transitions`."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A critic's verdict on a minibatch."""

    loss: Tensor
    """A scalar, not yet weighted with the coefficient."""
    advantages: Tensor
    """What the policy learns from, `[B]`, scaled, without a gradient."""
    metrics: dict[str, Tensor]
    """What is worth a look."""


class Critic(nn.Module, ABC, Generic[Prepared]):
    """Learns from rollouts, and tells the policy how good its actions were.

    While a rollout is collected the critic remembers something of each state. Then `prepare` does
    what is to be done once with the behaviour parameters; in each epoch `minibatches` deals out the
    rollout, and `evaluate` judges each minibatch with the current parameters.
    """

    config: CriticConfig
    discrete_only: ClassVar[bool] = False

    @property
    def gauge(self) -> str:
        """What `values` are, in words."""
        return "the critic's own"

    @property
    def static(self) -> bool:
        """Whether shapes never depend on what was collected, so that updates can be recorded."""
        return True

    @abstractmethod
    def remember(self, features: Tensor) -> Tensor:
        """What to keep of states with these features, `[B, ...]`."""

    @abstractmethod
    def prepare(self, rollout: Rollout, *, gamma: float, lam: float) -> Prepared:
        """Targets, advantages and all else that a rollout fixes."""

    @abstractmethod
    def evaluate(self, prepared: Prepared, minibatch: Minibatch, features: Tensor) -> Evaluation:
        """The loss and the advantages; `features` are those of `minibatch.encode`."""

    def minibatches(
        self, rollout: Rollout, prepared: Prepared, size: int, generator: torch.Generator
    ) -> Iterator[Minibatch]:
        """One epoch: all valid transitions, shuffled, in parts of about `size`."""
        for part in shuffled_parts(rollout.traj.transitions, size, generator):
            yield Minibatch(part, part)

    @property
    def refreshes(self) -> bool:
        """Whether each epoch after the first begins with `refresh`."""
        return False

    def refresh(
        self, prepared: Prepared, rollout: Rollout, *, gamma: float, lam: float
    ) -> Prepared:
        """What was prepared, renewed; `rollout.memory` is by now of the parameters of now."""
        raise NotImplementedError

    def diagnose(
        self, rollout: Rollout, prepared: Prepared, *, gamma: float, lam: float
    ) -> dict[str, Tensor]:
        """What of a rollout is worth a look, once."""
        return {}

    def delta(self, memory: Tensor) -> Delta:
        """Value differences between states, from what was remembered of them, which is a value."""
        return LinearDelta(memory)

    def values(self, memory: Tensor, traj: Trajectories, *, gamma: float, lam: float) -> Tensor:
        """One value for each state, all on one scale, `[num_states]`."""
        return memory

    def judged(self, loss: Tensor, advantages: Tensor) -> Evaluation:
        """A verdict, with advantages brought to scale, and how they were before."""
        return Evaluation(loss, self.scale(advantages), moments(advantages))

    def scale(self, advantages: Tensor) -> Tensor:
        """Advantages with mean 0 and standard deviation 1, if the configuration wants that."""
        if not self.config.normalise_advantages:
            return advantages
        return (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)


def moments(advantages: Tensor) -> dict[str, Tensor]:
    """Their mean, which is zero where values are right, and their spread."""
    return {
        "advantage_mean": advantages.mean(),
        "advantage_spread": advantages.std(correction=0),
    }


def estimated_constant(
    traj: Trajectories, advantages: Tensor, *, gamma: float, lam: float
) -> dict[str, Tensor]:
    """Mean and spread of `constant_part` in advantages, `[T * N]`."""
    grid = advantages.view_as(traj.rewards)
    constant = constant_part(traj, grid, gamma=gamma, lam=lam).flatten()[traj.transitions]
    return {
        "trajectory_constant_mean": constant.mean(),
        "trajectory_constant_spread": constant.std(correction=0),
    }


def explained_variance(targets: Tensor, predictions: Tensor) -> Tensor:
    """1 − Var(y − ŷ) / Var(y), or 0 where targets do not differ."""
    variance = targets.var(correction=0)
    rest = (targets - predictions).var(correction=0)
    return torch.where(variance > 0, 1 - rest / variance, 0.0)


def shuffled_parts(
    transitions: Tensor, size: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """The transitions in random order, split into parts that differ by one in size at most."""
    order = torch.randperm(len(transitions), generator=generator, device=transitions.device)
    count = max(1, round(len(transitions) / size))
    return transitions[order].tensor_split(count)
