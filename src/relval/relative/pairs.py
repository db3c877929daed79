"""Which differences to learn, and the losses that learn them (Sec. 5, App. D)."""

import torch
from torch import Tensor

from relval.relative._checks import (
    check_floating,
    check_one_per_state,
    check_same_shape,
    check_steps,
    check_unit_interval,
)
from relval.relative.targets import BothTerminal, check_both_terminal
from relval.relative.trajectories import Trajectories, check_transitions


def sample_pairs(
    traj: Trajectories,
    i: Tensor,
    *,
    same_episode: float,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draws a partner for each transition, the paper's μ (Eq. 28, App. D).

    With probability `same_episode` uniform over the transition's own segment, otherwise uniform
    over all valid transitions. The transition itself may be drawn, either way.

    Args:
      traj: The rollout.
      i: Transition numbers, any shape.
      same_episode: A probability. 0 is the paper's "random", 0.33 its setting for Atari.
      generator: Source of random numbers, on the rollout's device.

    Returns:
      Transition numbers in the shape of `i`.
    """
    check_unit_interval("same_episode", same_episode)
    check_transitions("i", i, traj)

    def uniform() -> Tensor:
        return torch.rand(i.shape, dtype=torch.float64, device=traj.device, generator=generator)

    elapsed = traj.elapsed[i]
    length = elapsed + traj.remaining[i]
    within_segment = i + ((uniform() * length).long() - elapsed) * traj.envs
    anywhere = traj.transitions[(uniform() * len(traj.transitions)).long()]
    return torch.where(uniform() < same_episode, within_segment, anywhere)


def pair_loss(
    prediction: Tensor, target: Tensor, *, old: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """Mean squared error of predicted differences, clipped as PPO clips values (Eq. 28, App. D).

    mean (Δ − y)²; with `clip`, mean max((Δ − y)², (Δ_clip − y)²), where Δ_clip departs from the
    behaviour parameters' prediction by at most `clip`.

    Args:
      prediction: Predicted differences Δ, any shape; the gradient flows through these alone.
      target: Targets y, the shape of `prediction`.
      old: The differences that the behaviour parameters predicted, the shape of `prediction`.
        Needed for clipping.
      clip: Largest departure from `old`, above 0. By default nothing is clipped.

    Returns:
      A scalar.
    """
    check_same_shape("prediction", prediction, "target", target)
    check_floating("prediction", prediction)
    target = target.detach()
    error = (prediction - target).square()
    if clip is not None:
        if not clip > 0:
            raise ValueError(f"clip must be above 0, got {clip}; for no clipping pass clip=None")
        if old is None:
            raise ValueError("clip needs `old`, the differences that the old parameters predicted")
        check_same_shape("prediction", prediction, "old", old)
        old = old.detach()
        clipped = old + (prediction - old).clamp(-clip, clip)
        error = torch.maximum(error, (clipped - target).square())
    return error.mean()


def all_pairs_loss(
    scores: Tensor,
    old: Tensor,
    traj: Trajectories,
    i: Tensor,
    *,
    n: int,
    gamma: float,
    both_terminal: BothTerminal = "zero",
) -> Tensor:
    """The mean of `pair_loss` over all ordered pairs, for a linear head and n-step targets.

    Exactly mean over a, b of (scores_a − scores_b − y(i_a, i_b))², y from `n_step_targets` with
    Δ = old[·] − old[·], in time and memory O(n B) in place of O(B²).

    Args:
      scores: Current scores of the states of the transitions `i`, `[B]`; the gradient flows through
        these alone.
      old: Scores of all states under the behaviour parameters, `[S]`.
      traj: The rollout.
      i: Transition numbers, `[B]`.
      n: Steps at most, at least 1.
      gamma: Discount in [0, 1].
      both_terminal: As in `one_step_targets`.

    Returns:
      A scalar.
    """
    return AllPairs(old, traj, n=n, gamma=gamma, both_terminal=both_terminal).loss(scores, i)


class AllPairs:
    """`all_pairs_loss` for many minibatches of one rollout, with all that they share done once.

    Pairs are grouped by the number of steps k that they share. For one k every target separates,
    y = g_a − g_b, so a pair's error is a difference of e = scores − g. Let S hold the transitions
    with at least k steps left, A those with exactly k (or n, if k = n), C the rest of S. The pairs
    that share k steps are A × A, A × C and C × A. With e centred over S, a and s the fractions of A
    and S in the minibatch, and σ the sum of e over A divided by B, their squared errors sum to
    ½ Σ e ∂, with the gradient ∂ = 4/B s e on A and ∂ = 4/B (a e − σ) on C.

    With "zero", two transitions that both terminate at k bootstrap from nothing: their squares are
    taken of scores − R, R the discounted rewards, in place of e.

    Args:
      old: Scores of all states under the behaviour parameters, `[S]`.
      traj: The rollout.
      n: Steps at most, at least 1.
      gamma: Discount in [0, 1].
      both_terminal: As in `one_step_targets`.
    """

    @torch.no_grad()
    def __init__(
        self,
        old: Tensor,
        traj: Trajectories,
        *,
        n: int,
        gamma: float,
        both_terminal: BothTerminal = "zero",
    ) -> None:
        check_one_per_state("old", old, traj.num_states)
        check_steps("n", n)
        check_unit_interval("gamma", gamma)
        check_both_terminal(both_terminal)
        n = min(n, traj.steps)
        self._traj = traj
        # A constant common to all scores changes no difference but costs digits: take it off first.
        self._pivot = old[: traj.num_states].mean()
        self._shared = torch.arange(1, n + 1, device=traj.device)[:, None]  # k, one row each
        self._length = traj.remaining.clamp(max=n)

        # Tables [n, T * N]: of each transition, what it gathers in k steps.
        first = traj.states[:-1].flatten()
        last = first + (self._shared.minimum(self._length) - 1).clamp(min=0) * traj.envs
        rewards = traj.rewards.flatten()[last]
        terminated = traj.terminated.flatten()[last]
        discounts = gamma ** torch.arange(n + 1, device=traj.device, dtype=rewards.dtype)[:, None]
        within = self._shared <= self._length
        self._returns = torch.where(within, discounts[:-1] * rewards, 0).cumsum(0)
        bootstraps = (old - self._pivot)[traj.bootstrap[last]]
        bootstraps = bootstraps - torch.where(terminated, rewards, 0)
        self._bootstrapped = self._returns + discounts[1:] * bootstraps
        self._terminal = (
            terminated & (self._length == self._shared) if both_terminal == "zero" else None
        )

    def loss(self, scores: Tensor, i: Tensor) -> Tensor:
        """The loss of one minibatch.

        Args:
          scores: Current scores of the states of the transitions `i`, `[B]`; the gradient flows
            through these.
          i: Transition numbers, `[B]`.

        Returns:
          A scalar.
        """
        check_same_shape("scores", scores, "i", i)
        check_floating("scores", scores)
        if i.ndim != 1 or len(i) == 0:
            raise ValueError(f"i must have shape [B] with B >= 1, got {list(i.shape)}")
        check_transitions("i", i, self._traj)
        value, gradient = self._value_and_gradient(scores.detach(), i)
        # Equal to `value`, with `gradient` as its gradient.
        return value + ((scores - scores.detach()) * gradient).sum()

    @torch.no_grad()
    def _value_and_gradient(self, scores: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        scores = scores - self._pivot
        length = self._length[i]
        exact, within = length == self._shared, length >= self._shared
        errors = _centred(scores - self._bootstrapped[:, i], within)
        a = exact.to(scores.dtype).mean(1, keepdim=True)
        s = within.to(scores.dtype).mean(1, keepdim=True)
        sigma = torch.where(exact, errors, 0).mean(1, keepdim=True)
        slopes = torch.where(exact, s * errors, torch.where(within, a * errors - sigma, 0))
        value = 2 * (errors * slopes).sum() / len(i)
        gradient = slopes.sum(0)
        if self._terminal is not None:
            both = self._terminal[:, i]
            z = both.to(scores.dtype).mean(1, keepdim=True)
            without = _centred(scores - self._returns[:, i], both)
            errors = _centred(errors, both)
            value = value + 2 * (z * (without.square() - errors.square())).sum() / len(i)
            gradient = gradient + (z * (without - errors)).sum(0)
        return value, 4 / len(i) * gradient


def _centred(x: Tensor, members: Tensor) -> Tensor:
    """In each row, members minus their mean, and zero elsewhere."""
    count = members.sum(1, keepdim=True).clamp(min=1)
    mean = torch.where(members, x, 0).sum(1, keepdim=True) / count
    return torch.where(members, x - mean, 0)
