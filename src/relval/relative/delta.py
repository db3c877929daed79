"""The critic as the mathematics sees it: a function of two state numbers."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from relval.relative._checks import check_floating


class Delta(Protocol):
    """Value differences Δ(a, b) ≈ V(a) − V(b), antisymmetric (Eq. 1).

    Called with two broadcastable tensors of state numbers, returns a tensor of their common shape.
    """

    def __call__(self, a: Tensor, b: Tensor, /) -> Tensor:
        """The differences between the states `a` and the states `b`."""
        ...


@dataclass(frozen=True, eq=False)
class LinearDelta:
    """Δ(a, b) = u[a] − u[b], the difference of one score per state (Eq. 30 with a linear head).

    A plain function of two state numbers serves everywhere; this one tells that it is separable,
    which makes `ranked_values` linear in the number of start states.
    """

    scores: Tensor
    """One score per state number, `[S]`."""

    def __post_init__(self) -> None:
        check_floating("scores", self.scores)
        if self.scores.ndim != 1:
            raise ValueError(
                f"scores must hold one number for each state, shape [S], got shape "
                f"{list(self.scores.shape)}"
            )

    def __call__(self, a: Tensor, b: Tensor, /) -> Tensor:
        """The differences between the scores of `a` and of `b`."""
        return self.scores[a] - self.scores[b]
