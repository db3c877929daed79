"""What a value difference should be, from rewards and differences at successors (Sec. 3.3).

Targets are constants of a rollout: no gradient flows through them. Those of Δ are antisymmetric to
the last bit, y(i, j) = −y(j, i), when `delta` is.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from relval.relative._checks import (
    check_one_per_state,
    check_same_shape,
    check_steps,
    check_unit_interval,
)
from relval.relative.delta import Delta, LinearDelta
from relval.relative.trajectories import Trajectories, check_transitions

BothTerminal = Literal["zero", "derived"]


@torch.no_grad()
def one_step_targets(
    delta: Delta,
    traj: Trajectories,
    i: Tensor,
    j: Tensor,
    *,
    gamma: float,
    both_terminal: BothTerminal = "zero",
) -> Tensor:
    """One-step targets for the differences between the states of transitions `i` and `j`.

    y = r_i − r_j + γ D(i, j), with D the difference of the successors (Eq. 19 and 20).

    Args:
      delta: Value differences of the behaviour parameters.
      traj: The rollout.
      i: Transition numbers, any shape.
      j: Transition numbers, the shape of `i`.
      gamma: Discount in [0, 1].
      both_terminal: D where both successors are terminal. "zero", the paper's default: both are
        worth nothing. "derived": Δ(s_i, s_j) + r_j − r_i, the last case of Eq. 20.

    Returns:
      Targets in the shape of `i`.
    """
    _check_pairs(traj, i, j)
    check_both_terminal(both_terminal)
    check_unit_interval("gamma", gamma)
    rewards = traj.rewards.flatten()
    return (
        rewards[i] - rewards[j] + gamma * _successor_differences(delta, traj, i, j, both_terminal)
    )


@torch.no_grad()
def n_step_targets(
    delta: Delta,
    traj: Trajectories,
    i: Tensor,
    j: Tensor,
    *,
    n: int,
    gamma: float,
    both_terminal: BothTerminal = "zero",
) -> Tensor:
    """n-step targets, cut where the first of the two segments ends (Eq. 21).

    y = Σ_{m<k} γ^m (r_{i+m} − r_{j+m}) + γ^k D(i+k−1, j+k−1), where k is the smallest of n and the
    steps left to either transition, i+m is the transition m steps after i, and D is as in
    `one_step_targets`. Time and memory grow with the number of pairs, times the number of steps
    for time.

    Args:
      delta: Value differences of the behaviour parameters.
      traj: The rollout.
      i: Transition numbers, any shape.
      j: Transition numbers, the shape of `i`.
      n: Steps at most, at least 1.
      gamma: Discount in [0, 1].
      both_terminal: As in `one_step_targets`.

    Returns:
      Targets in the shape of `i`.
    """
    _check_pairs(traj, i, j)
    check_both_terminal(both_terminal)
    check_unit_interval("gamma", gamma)
    check_steps("n", n)
    last = _shared_steps(traj, i, j).clamp(max=n) - 1
    total = _reward_differences(traj, i, j, last, n=n, gamma=gamma)
    i, j = i + last * traj.envs, j + last * traj.envs
    discount = _powers(gamma, traj.steps + 1, like=traj.rewards)[last + 1]
    return total + discount * _successor_differences(delta, traj, i, j, both_terminal)


@torch.no_grad()
def lambda_targets(
    delta: Delta,
    traj: Trajectories,
    i: Tensor,
    j: Tensor,
    *,
    lam: float,
    gamma: float,
    both_terminal: BothTerminal = "zero",
) -> Tensor:
    """λ-return targets: n-step targets of all lengths, weighted geometrically (Eq. 22).

    y = (1 − λ) Σ_{n<K} λ^(n−1) y_n + λ^(K−1) y_K, where K is the number of steps that both segments
    have left. Computed as y = G_0 by the recursion

      G_m = r_{i+m} − r_{j+m} + γ ((1 − λ) D_m + λ G_{m+1}),
      G_{K−1} = r_{i+K−1} − r_{j+K−1} + γ D_{K−1},

    with D_m = D(i+m, j+m) as in `one_step_targets`; for a `LinearDelta` from sums over all of the
    rollout, which need no recursion for each pair.

    Args:
      delta: Value differences of the behaviour parameters.
      traj: The rollout.
      i: Transition numbers, any shape.
      j: Transition numbers, the shape of `i`.
      lam: λ in [0, 1]: 0 gives one-step targets, 1 the longest n-step targets.
      gamma: Discount in [0, 1].
      both_terminal: As in `one_step_targets`.

    Returns:
      Targets in the shape of `i`.
    """
    _check_pairs(traj, i, j)
    check_both_terminal(both_terminal)
    check_unit_interval("gamma", gamma)
    check_unit_interval("lam", lam)
    rewards = traj.rewards.flatten()
    last = _shared_steps(traj, i, j) - 1
    if isinstance(delta, LinearDelta):
        scores = delta.scores - delta.scores[: traj.num_states].mean()
        gathered, bootstrap = gathered_in_steps(scores, traj, n=traj.steps, gamma=gamma, lam=lam)
        difference = bootstrap[last, i] - bootstrap[last, j]
        if both_terminal == "zero":
            ahead = last * traj.envs
            terminal = traj.terminated.flatten()
            difference = torch.where(terminal[i + ahead] & terminal[j + ahead], 0, difference)
        return gathered[last, i] - gathered[last, j] + difference
    target = torch.zeros_like(rewards[i])
    for m in reversed(range(traj.steps)):
        ahead = last.clamp(max=m) * traj.envs
        i_m, j_m = i + ahead, j + ahead
        bootstrap = _successor_differences(delta, traj, i_m, j_m, both_terminal)
        blend = torch.where(m < last, (1 - lam) * bootstrap + lam * target, bootstrap)
        target = rewards[i_m] - rewards[j_m] + gamma * blend
    return target


@torch.no_grad()
def discounted_targets(
    values: Tensor, traj: Trajectories, i: Tensor, j: Tensor, *, n: int, gamma: float
) -> Tensor:
    """n-step targets for the discounted difference Δ_γ(i, j) = γ V(s_i) − V(s_j) (Eq. 14).

    y = Σ_{m<k} γ^m (γ r_{i+m} − r_{j+m}) + γ^k (γ v_i − v_j), where k is as in `n_step_targets`
    and v is the value of the state after the last of the k transitions, zero if it is terminal.
    Not antisymmetric: y(i, i) is not zero.

    Args:
      values: One value per state number under the behaviour parameters, `[S]`.
      traj: The rollout.
      i: Transition numbers, any shape.
      j: Transition numbers, the shape of `i`.
      n: Steps at most, at least 1.
      gamma: Discount in [0, 1].

    Returns:
      Targets in the shape of `i`.
    """
    _check_pairs(traj, i, j)
    check_one_per_state("values", values, traj.num_states)
    check_unit_interval("gamma", gamma)
    check_steps("n", n)
    last = _shared_steps(traj, i, j).clamp(max=n) - 1
    total = _reward_differences(traj, i, j, last, n=n, gamma=gamma, weight=gamma)
    i, j = i + last * traj.envs, j + last * traj.envs
    following = torch.where(traj.terminated, 0, values[traj.successor]).flatten()
    discount = _powers(gamma, traj.steps + 1, like=traj.rewards)[last + 1]
    return total + discount * (gamma * following[i] - following[j])


def gathered_in_steps(
    scores: Tensor, traj: Trajectories, *, n: int, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """What goes into a transition's part of λ-return targets of k steps, for k = 1 to n.

    For scores targets separate: y(i, j) = g_i − g_j, where g is the sum of what is returned, at the
    k that `i` and `j` share.

    Args:
      scores: One score per state, `[S]`.
      traj: The rollout.
      n: Steps at most, from 1 to those of the rollout.
      gamma: Discount in [0, 1].
      lam: λ in [0, 1].

    Returns:
      All but the last bootstrap, and the last bootstrap, `[n, T * N]` each. Rows beyond the end of
      a transition's segment mean nothing.
    """
    step = torch.arange(n, device=traj.device)[:, None]
    last = traj.states[:-1].flatten() + step.minimum((traj.remaining - 1).clamp(min=0)) * traj.envs
    rewards = traj.rewards.flatten()[last]
    terminated = traj.terminated.flatten()[last]
    following = scores[traj.bootstrap[last]] - torch.where(terminated, rewards, 0)
    decay = _powers(gamma * lam, n, like=rewards)[:, None]
    bootstrap = gamma * decay * following
    earlier = bootstrap.cumsum(0) - bootstrap
    return (decay * rewards).cumsum(0) + (1 - lam) * earlier, bootstrap


def _reward_differences(
    traj: Trajectories,
    i: Tensor,
    j: Tensor,
    last: Tensor,
    *,
    n: int,
    gamma: float,
    weight: float = 1.0,
) -> Tensor:
    """Σ_{m<=last} γ^m (weight r_{i+m} − r_{j+m})."""
    rewards = traj.rewards.flatten()
    total = torch.zeros_like(rewards[i])
    for m in range(min(n, traj.steps)):
        ahead = last.clamp(max=m) * traj.envs
        difference = gamma**m * (weight * rewards[i + ahead] - rewards[j + ahead])
        total += torch.where(m <= last, difference, 0)
    return total


def _successor_differences(
    delta: Delta, traj: Trajectories, i: Tensor, j: Tensor, both_terminal: BothTerminal
) -> Tensor:
    """D(i, j) ≈ V(successor of i) − V(successor of j), no terminal state evaluated (Eq. 20).

    Δ knows no terminal state, so V(s_i) − r_i, which is zero where s_i terminates surely, takes the
    place of a terminal successor's value: Δ is evaluated at s_i, and r_i subtracted.
    """
    difference = delta(traj.bootstrap[i], traj.bootstrap[j])
    check_same_shape("the result of delta", difference, "the transition numbers", i)
    terminal_i, terminal_j = traj.terminated.flatten()[i], traj.terminated.flatten()[j]
    rewards = traj.rewards.flatten()
    difference = difference + (
        torch.where(terminal_j, rewards[j], 0) - torch.where(terminal_i, rewards[i], 0)
    )
    if both_terminal == "zero":
        difference = torch.where(terminal_i & terminal_j, 0, difference)
    return difference


def _shared_steps(traj: Trajectories, i: Tensor, j: Tensor) -> Tensor:
    """The number of steps for which the segments of `i` and `j` both go on."""
    return torch.minimum(traj.remaining[i], traj.remaining[j])


def _powers(base: float, count: int, *, like: Tensor) -> Tensor:
    return base ** torch.arange(count, device=like.device, dtype=like.dtype)


def _check_pairs(traj: Trajectories, i: Tensor, j: Tensor) -> None:
    check_same_shape("i", i, "j", j)
    check_transitions("i", i, traj)
    check_transitions("j", j, traj)


def check_both_terminal(both_terminal: str) -> None:
    """Refuses an unknown rule for two terminal successors."""
    if both_terminal not in get_args(BothTerminal):
        raise ValueError(
            f"both_terminal must be one of {', '.join(map(repr, get_args(BothTerminal)))}, "
            f"got {both_terminal!r}"
        )
