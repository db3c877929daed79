"""The pairwise Bellman operator on finite decision processes (Sec. 3.1)."""

import torch
from torch import Tensor

from relval.relative._checks import check_floating, check_unit_interval


class PairwiseBellman:
    """T Δ(i, j) = r_i − r_j + γ E[Δ(i', j')], i' and j' drawn independently (Eq. 8).

    A γ-contraction whose only fixed point is V_i − V_j (Theorem 3.1). Call it on a matrix of value
    differences. A terminal state is a state that leads to itself with reward zero.

    Args:
      transition: Probabilities of the next state under the policy, `[S, S]`, each row summing to 1.
      reward: Expected reward in each state under the policy, `[S]`.
      gamma: Discount in [0, 1]; the fixed point needs one below 1.
    """

    def __init__(self, transition: Tensor, reward: Tensor, gamma: float) -> None:
        check_floating("transition", transition)
        check_floating("reward", reward)
        check_unit_interval("gamma", gamma)
        states = len(reward) if reward.ndim == 1 else 0
        if states == 0 or transition.shape != (states, states):
            raise ValueError(
                "reward and transition must have shapes [S] and [S, S] with S >= 1, "
                f"got {list(reward.shape)} and {list(transition.shape)}"
            )
        rows = transition.sum(1)
        if (transition < 0).any() or not torch.allclose(rows, torch.ones_like(rows), atol=1e-5):
            raise ValueError(
                "each row of transition must be a distribution; where an episode terminates, lead "
                "to an absorbing state with reward zero"
            )
        self.transition = transition
        self.reward = reward
        self.gamma = gamma

    def __call__(self, delta: Tensor) -> Tensor:
        """One application of the operator to a matrix of pairs, `[S, S]`."""
        if delta.shape != self.transition.shape:
            raise ValueError(
                f"delta must have shape {list(self.transition.shape)}, got {list(delta.shape)}"
            )
        expected = self.transition @ delta @ self.transition.T
        return self.differences(self.reward) + self.gamma * expected

    def differences(self, x: Tensor) -> Tensor:
        """x_i − x_j for every pair of states, `[S, S]`."""
        return x[:, None] - x[None, :]

    def fixed_point(self) -> Tensor:
        """The operator's fixed point Σ_m γ^m P^m D (Pᵀ)^m, D the differences of rewards, `[S, S]`.

        Found without reference to values, by doubling the number of terms until the rest vanishes.
        """
        self._check_contraction()
        total = self.differences(self.reward)
        power, discount = self.transition, self.gamma
        while discount > torch.finfo(total.dtype).tiny:
            total = total + discount * (power @ total @ power.T)
            power, discount = power @ power, discount**2
        return total

    def values(self) -> Tensor:
        """V = (I − γP)⁻¹ r, the values in the ordinary sense (Eq. 3), `[S]`."""
        self._check_contraction()
        identity = torch.eye(len(self.reward), dtype=self.reward.dtype, device=self.reward.device)
        solution: Tensor = torch.linalg.solve(identity - self.gamma * self.transition, self.reward)
        return solution

    def _check_contraction(self) -> None:
        if self.gamma >= 1:
            raise ValueError(
                f"values and fixed point exist for a gamma below 1 only, got {self.gamma}"
            )


class DiscountedPairwiseBellman(PairwiseBellman):
    """T Δ(i, j) = γ r_i − r_j + γ E[Δ(i', j')], the operator of Δ_γ(i, j) = γ V_i − V_j (Eq. 14).

    A γ-contraction on all functions of pairs, antisymmetric or not.
    """

    def differences(self, x: Tensor) -> Tensor:
        """γ x_i − x_j for every pair of states, `[S, S]`."""
        return self.gamma * x[:, None] - x[None, :]
