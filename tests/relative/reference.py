"""The specification once more, with explicit loops over single transitions and nothing shared."""

from collections.abc import Callable
from itertools import pairwise

from relval.relative import Trajectories

Difference = Callable[[int, int], float]


def numbers(traj: Trajectories) -> range:
    return range(traj.steps * traj.envs)


def is_valid(traj: Trajectories, i: int) -> bool:
    return bool(traj.valid[i // traj.envs, i % traj.envs])


def is_terminated(traj: Trajectories, i: int) -> bool:
    return bool(traj.terminated[i // traj.envs, i % traj.envs])


def is_truncated(traj: Trajectories, i: int) -> bool:
    return bool(traj.truncated[i // traj.envs, i % traj.envs])


def reward(traj: Trajectories, i: int) -> float:
    return float(traj.rewards[i // traj.envs, i % traj.envs])


def successor(traj: Trajectories, i: int) -> int:
    return int(traj.successor[i // traj.envs, i % traj.envs])


def segments(traj: Trajectories) -> list[list[int]]:
    """The transitions of each segment, in order."""
    found = []
    for env in range(traj.envs):
        current: list[int] = []
        for t in range(traj.steps):
            i = t * traj.envs + env
            if not is_valid(traj, i):
                if current:
                    found.append(current)
                current = []
                continue
            current.append(i)
            if is_terminated(traj, i) or is_truncated(traj, i):
                found.append(current)
                current = []
        if current:
            found.append(current)
    return found


def segment_from(traj: Trajectories, i: int) -> list[int]:
    """The transitions from `i` to the end of its segment."""
    for segment in segments(traj):
        if i in segment:
            return segment[segment.index(i) :]
    raise AssertionError(f"transition {i} is in no segment")


def n_step_target(
    delta: Difference, traj: Trajectories, i: int, j: int, n: int, gamma: float, both_terminal: str
) -> float:
    path_i, path_j = segment_from(traj, i), segment_from(traj, j)
    k = min(n, len(path_i), len(path_j))
    target = 0.0
    for m in range(k):
        target += gamma**m * (reward(traj, path_i[m]) - reward(traj, path_j[m]))
    a, b = path_i[k - 1], path_j[k - 1]
    match is_terminated(traj, a), is_terminated(traj, b):
        case False, False:
            difference = delta(successor(traj, a), successor(traj, b))
        case False, True:
            difference = delta(successor(traj, a), b) + reward(traj, b)
        case True, False:
            difference = delta(a, successor(traj, b)) - reward(traj, a)
        case _:
            difference = delta(a, b) + reward(traj, b) - reward(traj, a)
            if both_terminal == "zero":
                difference = 0.0
    return target + gamma**k * difference


def discounted_target(
    values: list[float], traj: Trajectories, i: int, j: int, n: int, gamma: float
) -> float:
    path_i, path_j = segment_from(traj, i), segment_from(traj, j)
    k = min(n, len(path_i), len(path_j))
    target = 0.0
    for m in range(k):
        target += gamma**m * (gamma * reward(traj, path_i[m]) - reward(traj, path_j[m]))
    following_i, following_j = (
        0.0 if is_terminated(traj, path[k - 1]) else values[successor(traj, path[k - 1])]
        for path in (path_i, path_j)
    )
    return target + gamma**k * (gamma * following_i - following_j)


def lambda_target(
    delta: Difference,
    traj: Trajectories,
    i: int,
    j: int,
    lam: float,
    gamma: float,
    both_terminal: str,
) -> float:
    longest = min(len(segment_from(traj, i)), len(segment_from(traj, j)))
    target = 0.0
    for n in range(1, longest + 1):
        weight = lam ** (n - 1) * (1.0 if n == longest else 1 - lam)
        target += weight * n_step_target(delta, traj, i, j, n, gamma, both_terminal)
    return target


def histories(traj: Trajectories) -> list[list[int]]:
    """The states of each trajectory, in order, a truncated one's true last state included.

    Assumes that a truncated transition leads to an appended state or, before an invalid row or the
    rollout's end, to the next row.
    """
    found = [list(segment) for segment in segments(traj)]
    for history in found:
        last = history[-1]
        if not is_terminated(traj, last):
            history.append(successor(traj, last))
    reached = {state for history in found for state in history}
    for env in range(traj.envs):
        final = traj.steps * traj.envs + env
        if final not in reached:
            found.append([final])
    return found


def start_states(traj: Trajectories) -> list[int]:
    return sorted(history[0] for history in histories(traj))


def telescoped_values(delta: Difference, traj: Trajectories) -> dict[int, float]:
    values = {}
    for history in histories(traj):
        values[history[0]] = 0.0
        for before, after in pairwise(history):
            values[after] = values[before] + delta(after, before)
    return values


def direct_values(delta: Difference, traj: Trajectories) -> dict[int, float]:
    return {s: delta(s, history[0]) for history in histories(traj) for s in history}


def ranked_values(delta: Difference, traj: Trajectories) -> dict[int, float]:
    starts = start_states(traj)
    offsets = {s: sum(delta(s, other) for other in starts) / len(starts) for s in starts}
    lowest = min(offsets.values())
    return {
        s: offsets[history[0]] - lowest + delta(s, history[0])
        for history in histories(traj)
        for s in history
    }


def gae(traj: Trajectories, values: list[float], gamma: float, lam: float) -> dict[int, float]:
    """Each advantage as the sum of Eq. 11, over the rest of its segment."""
    advantages = dict.fromkeys(numbers(traj), 0.0)
    for segment in segments(traj):
        for start, i in enumerate(segment):
            for distance, k in enumerate(segment[start:]):
                following = 0.0 if is_terminated(traj, k) else values[successor(traj, k)]
                residual = reward(traj, k) + gamma * following - values[k]
                advantages[i] += (gamma * lam) ** distance * residual
    return advantages
