"""Advantages from values of any gauge (Sec. 3.2)."""

import torch
from torch import Tensor

from relval.relative._checks import check_one_per_state, check_steps, check_unit_interval
from relval.relative.trajectories import Trajectories


def gae(traj: Trajectories, values: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimates; with relative values, the paper's R-GAE (Eq. 10 and 11).

    A_t = δ_t + γλ A_{t+1}, with δ_t = r_t + γ V(s_{t+1}) − V(s_t). A terminal successor is worth
    zero. At a truncation and at the rollout's end the recursion stops, and δ_t bootstraps from
    the true successor.

    Args:
      traj: The rollout.
      values: One value per state number, `[S]`.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].

    Returns:
      Advantages `[T, N]`, zero in invalid rows. Differentiable in `values`.
    """
    check_unit_interval("gamma", gamma)
    check_unit_interval("lam", lam)
    check_one_per_state("values", values, traj.num_states)
    following = torch.where(traj.terminated, 0, values[traj.successor])
    residuals = traj.rewards + gamma * following - values[traj.states[:-1]]
    return _accumulated(traj, residuals, decay=gamma * lam)


def lambda_returns(traj: Trajectories, values: Tensor, *, gamma: float, lam: float) -> Tensor:
    """λ-returns of each transition's state: its value plus its advantage, `[T, N]`.

    Their differences are targets for Δ to which an end is worth zero, as it is to the values.

    Args:
      traj: The rollout.
      values: One value per state number, `[S]`.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].
    """
    return gae(traj, values, gamma=gamma, lam=lam) + values[traj.states[:-1]]


def gauge_slope(traj: Trajectories, *, gamma: float, lam: float) -> Tensor:
    """By how much each advantage changes when 1 is added to all values.

    A(V + c) = A(V) + c g. Where a segment does not terminate, g_t = −(1 − γ) Σ_l (γλ)^l, so that
    −C g is Lemma 3.2's B; a termination adds −γ (γλ)^d, d steps before the last.

    Args:
      traj: The rollout.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].

    Returns:
      g, `[T, N]`, zero in invalid rows.
    """
    check_unit_interval("gamma", gamma)
    check_unit_interval("lam", lam)
    residuals = gamma * (~traj.terminated).to(traj.rewards) - 1
    return _accumulated(traj, residuals, decay=gamma * lam)


def _accumulated(traj: Trajectories, residuals: Tensor, *, decay: float) -> Tensor:
    """A_t = δ_t + γλ A_{t+1} within each segment, `[T, N]`."""
    residuals = torch.where(traj.valid, residuals, 0)
    decays = decay * traj.continues.to(residuals.dtype)
    advantages = list(residuals)
    for t in reversed(range(traj.steps - 1)):
        advantages[t] = torch.addcmul(residuals[t], decays[t], advantages[t + 1])
    return torch.stack(advantages)


def trajectory_constant(c: float | Tensor, steps: int, *, gamma: float, lam: float) -> Tensor:
    """B_t, by which R-GAE exceeds GAE when its values are too low by `c` (Lemma 3.2).

    B_t = (1 − γ) c Σ_{l=0}^{T−1−t} (γλ)^l for a segment of T rewards that does not terminate. (The
    lemma prints the sum up to T − t, one term too many; the paper's Table 2 has it right.)

    Args:
      c: The trajectory constant, V(s_0) where values are anchored at zero.
      steps: T.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].

    Returns:
      B_0 to B_{T−1}, `[steps]`.
    """
    check_unit_interval("gamma", gamma)
    check_unit_interval("lam", lam)
    check_steps("steps", steps)
    c = torch.as_tensor(c)
    dtype = c.dtype if c.is_floating_point() else torch.get_default_dtype()
    powers = (gamma * lam) ** torch.arange(steps, device=c.device, dtype=dtype)
    return (1 - gamma) * c * powers.cumsum(0).flip(0)
