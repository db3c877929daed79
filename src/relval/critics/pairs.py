"""Minibatches of pairs, for critics of differences."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relval.critics.base import Minibatch
from relval.relative import Trajectories, sample_pairs

Judge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From pairs of transitions to what their differences should be, and what they were."""


@dataclass(frozen=True, eq=False)
class Pairs(Minibatch):
    """Transitions, and the differences to learn from them."""

    target: Tensor
    old: Tensor
    """The differences of the behaviour parameters."""
    partners: Tensor | None = None
    """Where in what is encoded the partners are; by default they are its second half."""


def some_pairs(transitions: Tensor) -> tuple[Tensor, Tensor]:
    """Each transition with another one, about half a rollout away."""
    return transitions, transitions.roll(len(transitions) // 2 + 1)


def with_partners(
    parts: Sequence[Tensor],
    traj: Trajectories,
    judge: Judge,
    *,
    same_episode: float,
    generator: torch.Generator,
) -> Iterator[Pairs]:
    """Each part with a partner for each of its transitions, all drawn and judged together."""
    i = torch.cat(list(parts))
    j = sample_pairs(traj, i, same_episode=same_episode, generator=generator)
    sizes = [len(part) for part in parts]
    pieces = (whole.split(sizes) for whole in (j, *judge(i, j)))
    for part, partners, target, old in zip(parts, *pieces, strict=True):
        yield Pairs(part, torch.cat([part, partners]), target, old)
