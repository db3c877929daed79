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

    Pairs are grouped by the number of steps k that they share. For one k every target separates,
    y = g_a − g_b, so the squared errors of a group sum to a variance of e = scores − g. Let S hold
    the transitions with at least k steps left, A those of S with exactly k (or n, if k = n), C the
    rest of S. The pairs with k shared steps are A × A, A × C and C × A. With SS the centred sum of
    squares, they sum to 2 (|A| + |C|) SS_A + 2 |A| SS_C + 2 |A| |C| (mean_A e − mean_C e)².
    With "zero", pairs within Z, the terminated part of A, bootstrap from nothing: their sum
    2 |Z| SS_Z(e) is exchanged for that of scores − R, R the discounted rewards.

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
    check_same_shape("scores", scores, "i", i)
    check_floating("scores", scores)
    if i.ndim != 1 or len(i) == 0:
        raise ValueError(f"i must have shape [B] with B >= 1, got {list(i.shape)}")
    check_transitions("i", i, traj)
    check_one_per_state("old", old, traj.num_states)
    check_steps("n", n)
    check_unit_interval("gamma", gamma)
    check_both_terminal(both_terminal)

    # A constant common to all scores changes no difference but costs digits: take it off first.
    pivot = scores.detach().mean()
    scores, old = scores - pivot, old.detach() - pivot

    n = min(n, traj.steps)
    shared = torch.arange(1, n + 1, device=i.device)[:, None]  # k, one row each
    length = traj.remaining[i].clamp(max=n)
    last = i + (shared.minimum(length) - 1) * traj.envs  # [n, B]: the k-th transition from i on
    rewards = traj.rewards.flatten()[last]
    terminated = traj.terminated.flatten()[last]
    discounts = gamma ** torch.arange(n + 1, device=i.device, dtype=rewards.dtype)[:, None]
    returns = torch.where(shared <= length, discounts[:-1] * rewards, 0).cumsum(0)
    bootstraps = old[traj.bootstrap[last]] - torch.where(terminated, rewards, 0)
    errors = scores - (returns + discounts[1:] * bootstraps)

    a, mean_a, spread_a = _moments(errors, length == shared)
    c, mean_c, spread_c = _moments(errors, length > shared)
    total = 2 * ((a + c) * spread_a + a * spread_c + a * c * (mean_a - mean_c).square()).sum()
    if both_terminal == "zero":
        both = terminated & (length == shared)
        z, _, spread_z = _moments(errors, both)
        _, _, spread_without_bootstrap = _moments(scores - returns, both)
        total = total + 2 * (z * (spread_without_bootstrap - spread_z)).sum()
    return total


def _moments(x: Tensor, members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each row: the fraction of members, their mean, and their centred sum of squares / B."""
    fraction = members.to(x.dtype).mean(1)
    mean = torch.where(members, x, 0).mean(1) / fraction.clamp(min=0.5 / x.shape[1])
    spread = torch.where(members, x - mean[:, None], 0).square().mean(1)
    return fraction, mean, spread
