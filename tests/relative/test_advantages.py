import pytest
import torch
from hypothesis import given

from relval.relative import (
    LinearDelta,
    Trajectories,
    gae,
    gauge_slope,
    telescoped_values,
    trajectory_constant,
)
from tests.relative import reference
from tests.relative.strategies import assert_close, discounts, random_scores, trajectories, unending


@given(trajectories(), discounts, discounts)
def test_gae_equals_the_reference(traj: Trajectories, gamma: float, lam: float) -> None:
    values = random_scores(traj)
    expected = reference.gae(traj, values.tolist(), gamma, lam)
    advantages = gae(traj, values, gamma=gamma, lam=lam)
    in_order = torch.tensor([expected[i] for i in sorted(expected)], dtype=torch.float64)
    assert_close(advantages.flatten(), in_order)
    assert (advantages[~traj.valid] == 0).all()


@given(unending, discounts, discounts)
def test_relative_gae_exceeds_gae_by_the_trajectory_constant(
    traj: Trajectories, gamma: float, lam: float
) -> None:
    values = random_scores(traj)
    relative = gae(traj, telescoped_values(LinearDelta(values), traj), gamma=gamma, lam=lam)
    excess = relative - gae(traj, values, gamma=gamma, lam=lam)
    for segment in reference.segments(traj):
        constant = trajectory_constant(values[segment[0]], len(segment), gamma=gamma, lam=lam)
        assert_close(excess.flatten()[segment], constant)


@given(trajectories(), discounts, discounts)
def test_relative_gae_is_biased_where_a_segment_terminates(
    traj: Trajectories, gamma: float, lam: float
) -> None:
    values = random_scores(traj)
    relative = gae(traj, telescoped_values(LinearDelta(values), traj), gamma=gamma, lam=lam)
    excess = (relative - gae(traj, values, gamma=gamma, lam=lam)).flatten()
    for segment in reference.segments(traj):
        if not reference.is_terminated(traj, segment[-1]):
            continue
        c, last = float(values[segment[0]]), len(segment) - 1
        for t, i in enumerate(segment):
            before_end = sum((gamma * lam) ** distance for distance in range(last - t))
            expected = (1 - gamma) * c * before_end + c * (gamma * lam) ** (last - t)
            assert float(excess[i]) == pytest.approx(expected)


@given(trajectories(), discounts, discounts)
def test_advantages_are_linear_in_a_constant(traj: Trajectories, gamma: float, lam: float) -> None:
    values, slope = random_scores(traj), gauge_slope(traj, gamma=gamma, lam=lam)
    for c in (-3.0, 0.5, 100.0):
        shifted = gae(traj, values + c, gamma=gamma, lam=lam)
        assert_close(shifted, gae(traj, values, gamma=gamma, lam=lam) + c * slope, 1e-10)


@given(unending, discounts, discounts)
def test_the_slope_is_that_of_the_trajectory_constant(
    traj: Trajectories, gamma: float, lam: float
) -> None:
    slope = gauge_slope(traj, gamma=gamma, lam=lam).flatten()
    for segment in reference.segments(traj):
        one = torch.tensor(1.0, dtype=torch.float64)
        constant = trajectory_constant(one, len(segment), gamma=gamma, lam=lam)
        assert_close(slope[segment], -constant)


def test_trajectory_constant_is_that_of_the_papers_table() -> None:
    constant = trajectory_constant(2.0, 6, gamma=0.9, lam=0.8)
    assert [round(b, 2) for b in constant.tolist()] == [0.61, 0.58, 0.52, 0.45, 0.34, 0.20]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.0, 0.5), (0.5, 0.0)])
def test_trajectory_constant_at_the_ends_of_its_range(gamma: float, lam: float) -> None:
    constant = trajectory_constant(torch.tensor(3.0).double(), 4, gamma=gamma, lam=lam)
    terms = [4, 3, 2, 1] if gamma == lam == 1 else [1, 1, 1, 1]
    assert_close(constant, 3 * (1 - gamma) * torch.tensor(terms).double())


def test_truncation_bootstraps_where_termination_does_not() -> None:
    rewards, ended = torch.tensor([[1.0], [1.0]]), torch.tensor([[False], [True]])
    values = torch.tensor([10.0, 20.0, 30.0, 40.0])
    successor = torch.tensor([[1], [3]])
    none = torch.zeros_like(ended)
    cut = Trajectories(rewards, none, ended, successor)
    over = Trajectories(rewards, ended)
    last_cut = 1 + 0.5 * 40 - 20
    last_over = 1 - 20
    assert gae(cut, values, gamma=0.5, lam=1.0).flatten().tolist() == [
        1 + 0.5 * 20 - 10 + 0.5 * last_cut,
        last_cut,
    ]
    assert gae(over, values, gamma=0.5, lam=1.0).flatten().tolist() == [
        1 + 0.5 * 20 - 10 + 0.5 * last_over,
        last_over,
    ]


@given(trajectories(max_steps=4, max_envs=2))
def test_gae_differentiates(traj: Trajectories) -> None:
    values = random_scores(traj).requires_grad_()
    torch.autograd.gradcheck(lambda v: gae(traj, v, gamma=0.9, lam=0.8), values)


@given(trajectories())
def test_nothing_leaks_out_of_an_invalid_row(traj: Trajectories) -> None:
    values = random_scores(traj)
    rewards = torch.where(traj.valid, traj.rewards, torch.nan)
    spoilt = Trajectories(rewards, traj.terminated, traj.truncated, traj.successor, traj.valid)
    clean = gae(traj, values, gamma=0.9, lam=0.8)
    assert_close(gae(spoilt, values, gamma=0.9, lam=0.8), clean)


def test_bad_input_is_refused_with_a_reason() -> None:
    traj = Trajectories(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="one number for each of the 6 states"):
        gae(traj, torch.zeros(5), gamma=0.9, lam=0.9)
    with pytest.raises(ValueError, match="one number for each of the 6 states"):
        gae(traj, torch.zeros(3, 2), gamma=0.9, lam=0.9)
    with pytest.raises(TypeError, match="values must be a floating-point tensor"):
        gae(traj, torch.zeros(6, dtype=torch.long), gamma=0.9, lam=0.9)
    with pytest.raises(ValueError, match="gamma must lie"):
        gae(traj, torch.zeros(6), gamma=1.01, lam=0.9)
    with pytest.raises(ValueError, match="lam must lie"):
        trajectory_constant(1.0, 3, gamma=0.9, lam=-1)
    with pytest.raises(ValueError, match="steps must be a whole number"):
        trajectory_constant(1.0, 0, gamma=0.9, lam=0.9)
