"""One value per state from value differences, by anchoring each trajectory (Sec. 3.2 and 4).

All return `[num_states]` values. If `delta` is true they equal the true values up to a constant:
one for each trajectory (`telescoped_values`, `direct_values`), or one for all (`ranked_values`).
"""

import torch
from torch import Tensor

from relval.relative._checks import check_one_per_state
from relval.relative.delta import Delta, LinearDelta
from relval.relative.trajectories import Trajectories

_PAIRS_AT_A_TIME = 2**20


def start_states(traj: Trajectories) -> Tensor:
    """The states at which a trajectory begins: row 0, and each one after an episode's end (Eq. 23).

    Row T counts, where it holds the first state of an episode. An invalid row starts nothing.

    Returns:
      State numbers in ascending order, `[M]`.
    """
    return traj.states[_begins(traj)]


def _begins(traj: Trajectories) -> Tensor:
    """Which states of the grid begin a trajectory, bool `[T + 1, N]`."""
    can_begin = torch.cat([traj.valid, traj.last_valid[None]])
    return (traj.origin[traj.states] == traj.states) & can_begin


def telescoped_values(delta: Delta, traj: Trajectories) -> Tensor:
    """Relative values, summed step by step from zero at the start of each trajectory (Eq. 9).

    V(s_0) = 0, V(s_{t+1}) = V(s_t) + Δ(s_{t+1}, s_t).
    """
    grid = traj.states
    differences = delta(grid[1:], grid[:-1])
    rows = [torch.zeros_like(differences[0])]
    for leads_on, difference in zip(traj.leads_on, differences, strict=True):
        rows.append(torch.where(leads_on, rows[-1] + difference, 0))
    values = torch.cat(rows)
    if traj.num_states == len(values):
        return values
    return traj.with_appended(values, values[grid[:-1]] + delta(traj.successor, grid[:-1]))


def direct_values(delta: Delta, traj: Trajectories) -> Tensor:
    """Relative values, each one the difference to the start of its trajectory (Sec. 3.2).

    V(s_t) = Δ(s_t, s_0). For a linear head the same as `telescoped_values`, for others not.
    """
    states = torch.arange(traj.num_states, device=traj.device)
    return delta(states, traj.origin)


def ranked_values(delta: Delta, traj: Trajectories) -> Tensor:
    """Relative values whose trajectories are ranked by their start states (Eq. 25 and 26).

    V(s) = O(start of s) − min O + Δ(s, start of s), where O(s) is the mean over all start states s'
    of Δ(s, s'). For a linear head this is its score minus the smallest score of a start state, and
    is computed as that.
    """
    if isinstance(delta, LinearDelta):
        check_one_per_state("scores", delta.scores, traj.num_states)
        lowest = delta.scores[traj.states].masked_fill(~_begins(traj), torch.inf).min()
        return delta.scores[: traj.num_states] - lowest
    starts = start_states(traj)
    from_origin = direct_values(delta, traj)
    origins = (
        (traj.origin == torch.arange(traj.num_states, device=traj.device)).nonzero().squeeze(1)
    )
    chunks = origins.split(max(1, _PAIRS_AT_A_TIME // len(starts)))
    means = torch.cat([delta(chunk[:, None], starts).mean(1) for chunk in chunks])
    offsets = torch.zeros_like(from_origin).index_put((origins,), means)
    return offsets[traj.origin] - offsets[starts].min() + from_origin
