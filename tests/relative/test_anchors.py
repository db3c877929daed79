import pytest
import torch
from hypothesis import assume, given
from torch import Tensor

from relval.relative import (
    LinearDelta,
    Trajectories,
    constant_part,
    gae,
    gauge_slope,
    mean_offset,
    minvar_offset,
    ranked_values,
    terminal_offset,
)
from tests.relative import reference
from tests.relative.strategies import assert_close, discounts, random_scores, trajectories


def deterministic_values(traj: Trajectories, gamma: float) -> Tensor:
    """Values along paths that could not have gone otherwise; what is cut off goes on somehow."""
    values = random_scores(traj)
    for segment in reference.segments(traj):
        for i in reversed(segment):
            following = 0.0
            if not reference.is_terminated(traj, i):
                following = float(values[reference.successor(traj, i)])
            values[i] = reference.reward(traj, i) + gamma * following
    return values


def terminating(traj: Trajectories) -> list[list[int]]:
    return [s for s in reference.segments(traj) if reference.is_terminated(traj, s[-1])]


@given(trajectories(), discounts, discounts)
def test_the_terminal_offset_by_hand(traj: Trajectories, gamma: float, decay: float) -> None:
    values = random_scores(traj)
    lacking = weights = 0.0
    for segment in terminating(traj):
        returns = 0.0
        for distance, i in enumerate(reversed(segment)):
            returns = reference.reward(traj, i) + gamma * returns
            lacking += decay**distance * (returns - float(values[i]))
            weights += decay**distance
    offset = float(terminal_offset(traj, values, gamma=gamma, decay=decay))
    assert offset == pytest.approx(lacking / weights if weights else torch.nan, nan_ok=True)


@given(trajectories(), discounts, discounts, discounts)
def test_where_nothing_is_random_terminations_tell_the_constant(
    traj: Trajectories, gamma: float, lam: float, decay: float
) -> None:
    assume(terminating(traj))
    values = deterministic_values(traj, gamma)
    scores = values - 7.5
    anchored = scores + terminal_offset(traj, scores, gamma=gamma, decay=decay)
    expected = gae(traj, values, gamma=gamma, lam=lam)
    assert_close(gae(traj, anchored, gamma=gamma, lam=lam), expected, 1e-9)


def test_where_a_segment_terminates_ranks_are_biased_and_terminations_are_not() -> None:
    rewards, over = torch.tensor([[-1.0], [-1.0], [-1.0]]), torch.zeros(3, 1, dtype=torch.bool)
    over[2] = True
    traj = Trajectories(rewards.double(), over)
    values = deterministic_values(traj, 0.9)
    ranked = ranked_values(LinearDelta(values), traj)
    assert float(gae(traj, ranked, gamma=0.9, lam=0.8).abs().min()) > 0.5
    anchored = ranked + terminal_offset(traj, ranked, gamma=0.9, decay=0.9)
    assert_close(gae(traj, anchored, gamma=0.9, lam=0.8), torch.zeros(3, 1).double())


@given(trajectories(), discounts, discounts)
def test_no_other_constant_makes_advantages_smaller(
    traj: Trajectories, gamma: float, lam: float
) -> None:
    values = random_scores(traj)
    best = minvar_offset(traj, values, gamma=gamma, lam=lam)

    def size(offset: Tensor) -> float:
        return float(gae(traj, values + offset, gamma=gamma, lam=lam).square().sum())

    slope = gauge_slope(traj, gamma=gamma, lam=lam)
    for step in (-1.0, -1e-3, 1e-3, 1.0):
        expected = step**2 * float(slope.square().sum())  # a parabola around its lowest point
        assert size(best + step) - size(best) == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert bool(slope.any()) or float(best) == 0


@given(trajectories(), discounts, discounts)
def test_advantages_can_be_centred_by_a_constant(
    traj: Trajectories, gamma: float, lam: float
) -> None:
    values = random_scores(traj)
    offset = mean_offset(traj, values, gamma=gamma, lam=lam)
    centred = gae(traj, values + offset, gamma=gamma, lam=lam).sum()
    if bool(gauge_slope(traj, gamma=gamma, lam=lam).any()):
        assert_close(centred, torch.zeros_like(centred), 1e-9)
    else:
        assert float(offset) == 0


def test_of_random_ends_only_the_mean_tells_the_constant() -> None:
    """Each step gives 1 and is the last with probability 0.1. Paths that have ended had bad luck.

    `terminal` sees only these, and `minvar` them most: with true values both find these too high.
    """
    gamma, lam = 0.99, 0.95
    generator = torch.Generator().manual_seed(0)
    over = torch.rand(128, 4_000, generator=generator) < 0.1
    traj = Trajectories(torch.ones(over.shape, dtype=torch.float64), over)
    values = torch.full((traj.num_states,), 1 / (1 - 0.9 * gamma), dtype=torch.float64)
    assert float(mean_offset(traj, values, gamma=gamma, lam=lam)) == pytest.approx(0, abs=0.1)
    assert float(minvar_offset(traj, values, gamma=gamma, lam=lam)) < -1
    assert float(terminal_offset(traj, values, gamma=gamma, decay=lam)) < -1


@given(trajectories(), discounts, discounts)
def test_offsets_undo_any_constant(traj: Trajectories, gamma: float, lam: float) -> None:
    values = random_scores(traj)
    if bool(gauge_slope(traj, gamma=gamma, lam=lam).any()):
        for offset in (mean_offset, minvar_offset):
            one, other = (offset(traj, v, gamma=gamma, lam=lam) for v in (values, values + 40))
            assert_close(one, other + 40, 1e-9)
    if terminating(traj):
        one, other = (
            terminal_offset(traj, v, gamma=gamma, decay=lam) for v in (values, values + 40)
        )
        assert_close(one, other + 40, 1e-9)


@given(trajectories(), discounts, discounts)
def test_the_part_that_a_constant_explains_is_what_the_best_one_removes(
    traj: Trajectories, gamma: float, lam: float
) -> None:
    values = random_scores(traj)
    before = gae(traj, values, gamma=gamma, lam=lam)
    offset = minvar_offset(traj, values, gamma=gamma, lam=lam)
    after = gae(traj, values + offset, gamma=gamma, lam=lam)
    assert_close(constant_part(traj, before, gamma=gamma, lam=lam), before - after, 1e-9)


def test_bad_input_is_refused_with_a_reason() -> None:
    traj = Trajectories(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="decay must lie"):
        terminal_offset(traj, torch.zeros(6), gamma=0.9, decay=1.1)
    with pytest.raises(ValueError, match="one number for each of the 6 states"):
        minvar_offset(traj, torch.zeros(5), gamma=0.9, lam=0.9)
