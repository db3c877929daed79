"""Which differences to learn, and the losses that learn them (Sec. 5, App. D)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from relval.relative._checks import (
    check_floating,
    check_one_per_state,
    check_same_shape,
    check_steps,
    check_unit_interval,
)
from relval.relative.targets import BothTerminal, check_both_terminal, gathered_in_steps
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
    lam: float = 1.0,
    both_terminal: BothTerminal = "zero",
) -> Tensor:
    """The mean of `pair_loss` over all ordered pairs, for a linear head.

    Exactly mean over a, b of (scores_a − scores_b − y(i_a, i_b))², y from `n_step_targets` with
    Δ = old[·] − old[·], in time and memory O(n B) in place of O(B²). With `lam` below 1, y is the
    mean of targets of 1 to n steps, weighted geometrically: `lambda_targets`, where n is as long
    as the rollout.

    Args:
      scores: Current scores of the states of the transitions `i`, `[B]`; the gradient flows through
        these alone.
      old: Scores of all states under the behaviour parameters, `[S]`.
      traj: The rollout.
      i: Transition numbers, `[B]`.
      n: Steps at most, at least 1.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1]; 1, the default, gives n-step targets.
      both_terminal: As in `one_step_targets`.

    Returns:
      A scalar.
    """
    shared = AllPairs(old, traj, n=n, gamma=gamma, lam=lam, both_terminal=both_terminal)
    return shared.loss(scores, i)


class AllPairs:
    """`all_pairs_loss` for many minibatches of one rollout, with all that they share done once.

    Pairs are grouped by the number of steps k that they share. For one k every target separates,
    y = g_a − g_b, so a pair's error is a difference of e = scores − g. Let S hold the transitions
    with at least k steps left, A those with exactly k (or n, if k = n), C the rest of S. The pairs
    that share k steps are A × A, A × C and C × A. With e centred over S, a and s the fractions of A
    and S in the minibatch, and σ the sum of e over A divided by B, their squared errors sum to
    ½ Σ e ∂, with the gradient ∂ = 4/B s e on A and ∂ = 4/B (a e − σ) on C.

    With "zero", two transitions that both terminate at k have no last bootstrap: their squares are
    taken of e without it.

    The loss is quadratic in the scores. It is expanded around the old ones, where all that depends
    on rewards and bootstraps is constant.

    Args:
      old: Scores of all states under the behaviour parameters, `[S]`.
      traj: The rollout.
      n: Steps at most, at least 1.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1], as in `all_pairs_loss`.
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
        lam: float = 1.0,
        both_terminal: BothTerminal = "zero",
    ) -> None:
        check_one_per_state("old", old, traj.num_states)
        check_steps("n", n)
        check_unit_interval("gamma", gamma)
        check_unit_interval("lam", lam)
        check_both_terminal(both_terminal)
        n = min(n, traj.steps)
        self._traj = traj
        self._old = old.detach()
        self._shared = torch.arange(1, n + 1, device=traj.device)[:, None]  # k, one row each
        self._length = traj.remaining.clamp(max=n)
        # A constant common to all scores changes no difference but costs digits: take it off first.
        centred = self._old - self._old[: traj.num_states].mean()
        gathered, bootstrap = gathered_in_steps(centred, traj, n=n, gamma=gamma, lam=lam)
        self._unbootstrapped = centred[traj.states[:-1].flatten()] - gathered
        self._errors = self._unbootstrapped - bootstrap
        terminates = traj.terminated.flatten()[traj.last] & (traj.remaining == self._shared)
        self._terminal = terminates if both_terminal == "zero" else None

    def loss(self, scores: Tensor, i: Tensor) -> Tensor:
        """The loss of one minibatch: scores `[B]` of the transitions `i`, `[B]`."""
        check_same_shape("scores", scores, "i", i)
        check_floating("scores", scores)
        if i.ndim != 1 or len(i) == 0:
            raise ValueError(f"i must have shape [B] with B >= 1, got {list(i.shape)}")
        return self.expand(i).loss(scores)

    @torch.no_grad()
    def expand(self, i: Tensor) -> "Expansion":
        """The loss of minibatches of transitions `i`, `[..., B]`, expanded around old scores."""
        check_transitions("i", i, self._traj)
        length = self._length[i]
        shared = self._shared.view(-1, *[1] * i.ndim)
        exact, within = length == shared, length >= shared  # [n, ..., B], as all that follows
        errors = _centred(self._errors[:, i], within)
        in_a, in_s = exact.to(errors.dtype), within.to(errors.dtype)
        in_c = in_s - in_a
        a, s = in_a.mean(-1, keepdim=True), in_s.mean(-1, keepdim=True)
        sigma = (errors * in_a).mean(-1, keepdim=True)
        weights = s * in_a + a * in_c
        slopes = weights * errors - sigma * in_c
        half_loss = (errors * slopes).mean(-1).sum(0)
        gradient = slopes.sum(0)
        if self._terminal is not None:
            both = self._terminal[:, i]
            z = both.to(errors.dtype).mean(-1, keepdim=True)
            without, errors = _centred(self._unbootstrapped[:, i], both), _centred(errors, both)
            half_loss += (z * (without.square() - errors.square())).mean(-1).sum(0)
            gradient += (z * (without - errors)).sum(0)
        return Expansion(
            old=self._old[i],
            value=2 * half_loss,
            gradient=4 / i.shape[-1] * gradient,
            weights=4 / i.shape[-1] * weights.sum(0),
            sums=4 / i.shape[-1] ** 2 * torch.cat([in_s, in_a]).movedim(0, -2),
            spread=torch.cat([in_a, in_c]).movedim(0, -2),
        )


@dataclass(frozen=True, eq=False)
class Expansion:
    """A loss over all pairs as a quadratic function of scores, around the old ones.

    Its curvature, applied to x, is weights * x − (sums @ x) @ spread.
    """

    old: Tensor
    """`[..., B]`."""
    value: Tensor
    """The loss at the old scores, `[...]`."""
    gradient: Tensor
    """Its gradient there, `[..., B]`."""
    weights: Tensor
    """`[..., B]`."""
    sums: Tensor
    """`[..., 2 n, B]`."""
    spread: Tensor
    """`[..., 2 n, B]`."""

    def loss(self, scores: Tensor) -> Tensor:
        """The loss of a single minibatch at its current scores, `[B]`."""
        check_same_shape("scores", scores, "old", self.old)
        change = scores - self.old
        curvature = self.weights * change - (self.sums @ change) @ self.spread
        return self.value + change @ (self.gradient + 0.5 * curvature)

    def unbind(self) -> "list[Expansion]":
        """The minibatches along the first dimension, one by one."""
        parts = (getattr(self, name).unbind() for name in self.__dataclass_fields__)
        return [Expansion(*fields) for fields in zip(*parts, strict=True)]


@dataclass(frozen=True, eq=False)
class SeparablePairs:
    """The mean over all pairs where targets separate, y(i, j) = g_i − g_j: 2 Var(scores − g).

    It is expanded as `AllPairs` is, and then asked as `Expansion` is.
    """

    targets: Tensor
    """g, of all transitions, `[T * N]`, or of minibatches, `[..., B]`."""

    def expand(self, i: Tensor) -> "SeparablePairs":
        """For minibatches of transitions `i`, `[..., B]`."""
        return SeparablePairs(self.targets[i])

    def loss(self, scores: Tensor) -> Tensor:
        """The loss of a single minibatch at its current scores, `[B]`."""
        check_same_shape("scores", scores, "targets", self.targets)
        # Their constants cancel, but in single precision not before they have cost digits.
        errors = (scores - scores.mean()) - (self.targets - self.targets.mean())
        return 2 * errors.var(correction=0)

    def unbind(self) -> "list[SeparablePairs]":
        """The minibatches along the first dimension, one by one."""
        return [SeparablePairs(targets) for targets in self.targets.unbind()]


def _centred(x: Tensor, members: Tensor) -> Tensor:
    """Along the last dimension, members minus their mean, and zero elsewhere."""
    count = members.sum(-1, keepdim=True).clamp(min=1)
    mean = torch.where(members, x, 0).sum(-1, keepdim=True) / count
    return torch.where(members, x - mean, 0)
