"""Anchors beyond the paper: estimates of the constant that relative values lack.

Values of one gauge, such as the scores of a linear head or `ranked_values`, are right but for a
constant. Each function here estimates it from the rollout; the sum of both is anchored.
"""

import torch
from torch import Tensor

from relval.relative._checks import check_unit_interval
from relval.relative.advantages import gae, gauge_slope
from relval.relative.trajectories import Trajectories


def terminal_offset(traj: Trajectories, values: Tensor, *, gamma: float, decay: float) -> Tensor:
    """The constant that values lack, judged by what was received on the way to terminations.

    c = Σ w (G − V(s)) / Σ w over the states of all segments that terminate, with the discounted
    return G to the end, d steps away, and w = ρ^{d−1}. Exact where values are right but for a
    constant and nothing is random. Elsewhere the paths that terminate within a rollout are a
    selection, and the estimate is biased towards them.

    Args:
      traj: The rollout.
      values: One value per state number, `[S]`.
      gamma: Discount in [0, 1].
      decay: ρ in [0, 1]: the smaller, the more the last steps before a termination count.

    Returns:
      A scalar; NaN where nothing terminates.
    """
    check_unit_interval("decay", decay)
    lacking = gae(traj, values, gamma=gamma, lam=1.0).flatten()  # G − V(s), if it terminates
    terminates = (traj.terminated & traj.valid).flatten()[traj.last]
    weights = torch.where(terminates, decay ** (traj.remaining - 1).to(lacking), 0)
    return (weights * lacking).sum() / weights.sum()


def mean_offset(traj: Trajectories, values: Tensor, *, gamma: float, lam: float) -> Tensor:
    """The constant with which advantages have mean zero, as those of true values have on average.

    On the states that a policy visits, the advantages of its own actions average to zero. No path
    is selected for this by how it ended.

    Args:
      traj: The rollout.
      values: Values that are wrong by a constant, one per state number, `[S]`.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].

    Returns:
      A scalar; 0 where no constant changes an advantage, that is γ = 1 and nothing terminates.
    """
    slope = gauge_slope(traj, gamma=gamma, lam=lam).sum()
    total = gae(traj, values, gamma=gamma, lam=lam).sum()
    return torch.where(slope < 0, -total / slope, 0)


def minvar_offset(traj: Trajectories, values: Tensor, *, gamma: float, lam: float) -> Tensor:
    """The constant that values lack, judged by what it makes of advantages: the smallest ones.

    argmin_c Σ A(V + c)², over all transitions. In closed form, because advantages are linear in c:
    A(V + c) = A(V) + c g, with g the `gauge_slope`.

    Args:
      traj: The rollout.
      values: One value per state number, `[S]`.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].

    Returns:
      A scalar; 0 where no constant changes an advantage, that is γ = 1 and nothing terminates.
    """
    advantages = gae(traj, values, gamma=gamma, lam=lam)
    return -_fitted(gauge_slope(traj, gamma=gamma, lam=lam), advantages)


def constant_part(traj: Trajectories, advantages: Tensor, *, gamma: float, lam: float) -> Tensor:
    """B, what a wrong constant of all values has added to advantages (Lemma 3.2), estimated.

    The part of the advantages that `gauge_slope` explains; `minvar_offset` is what removes it.

    Args:
      traj: The rollout.
      advantages: `[T, N]`.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].

    Returns:
      B, `[T, N]`, zero in invalid rows.
    """
    slope = gauge_slope(traj, gamma=gamma, lam=lam)
    return _fitted(slope, advantages) * slope


def _fitted(slope: Tensor, advantages: Tensor) -> Tensor:
    """The multiple of the slope that is nearest to advantages; 0 where there is no slope."""
    square = slope.square().sum()
    return torch.where(square > 0, (slope * advantages).sum() / square, 0)
