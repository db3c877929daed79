import pytest
import torch
from hypothesis import given

from relval.relative import (
    Delta,
    LinearDelta,
    Trajectories,
    direct_values,
    ranked_values,
    start_states,
    telescoped_values,
)
from tests.relative import reference
from tests.relative.strategies import (
    assert_close,
    critics,
    odd_head,
    pointwise,
    random_scores,
    trajectories,
)


def plain(scores: torch.Tensor) -> Delta:
    """A linear critic that does not say so."""
    return lambda a, b: scores[a] - scores[b]


@given(trajectories())
def test_start_states_equal_the_reference(traj: Trajectories) -> None:
    assert start_states(traj).tolist() == reference.start_states(traj)


@given(trajectories())
def test_relative_values_equal_the_reference(traj: Trajectories) -> None:
    for delta in critics(traj):
        for ours, theirs in (
            (telescoped_values, reference.telescoped_values),
            (direct_values, reference.direct_values),
            (ranked_values, reference.ranked_values),
        ):
            values = ours(delta, traj)
            expected = theirs(pointwise(delta), traj)
            assert values.shape == (traj.num_states,)
            states = torch.tensor(list(expected))
            assert_close(values[states], torch.tensor(list(expected.values()), dtype=torch.float64))


@given(trajectories())
def test_a_linear_head_makes_telescoped_and_direct_values_equal(traj: Trajectories) -> None:
    delta = LinearDelta(random_scores(traj))
    states = torch.tensor([s for history in reference.histories(traj) for s in history])
    assert_close(telescoped_values(delta, traj)[states], direct_values(delta, traj)[states])


def test_an_odd_head_does_not() -> None:
    traj = Trajectories(torch.zeros(5, 1), torch.zeros(5, 1, dtype=torch.bool))
    delta = odd_head(traj)
    assert not torch.allclose(telescoped_values(delta, traj), direct_values(delta, traj))


@given(trajectories())
def test_a_linear_head_ranks_by_its_scores(traj: Trajectories) -> None:
    scores = random_scores(traj)
    expected = scores - scores[start_states(traj)].min()
    assert_close(ranked_values(LinearDelta(scores), traj), expected)
    assert_close(ranked_values(plain(scores), traj), expected)


def test_ranking_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    traj = Trajectories(torch.zeros(4, 5), torch.ones(4, 5, dtype=torch.bool))
    delta = odd_head(traj)
    whole = ranked_values(delta, traj)
    monkeypatch.setattr("relval.relative.values._PAIRS_AT_A_TIME", 60)
    assert_close(ranked_values(delta, traj), whole)


def test_start_states_by_hand() -> None:
    ends = torch.tensor([[False, True], [False, False], [True, False]])
    # Row 0; the state after env 1's first step; the state after env 0's last step, in row T.
    assert start_states(Trajectories(torch.zeros(3, 2), ends)).tolist() == [0, 1, 3, 6]


def test_next_step_auto_reset_starts_one_row_later() -> None:
    ends = torch.tensor([[False], [True], [False], [False]])
    valid = torch.tensor([[True], [True], [False], [True]])
    traj = Trajectories(torch.zeros(4, 1), ends, valid=valid)
    assert start_states(traj).tolist() == [0, 3]


def test_the_last_state_of_an_ended_episode_begins_nothing() -> None:
    ends = torch.tensor([[False, False], [True, True]])
    last_valid = torch.tensor([True, False])
    traj = Trajectories(torch.zeros(2, 2), ends, last_valid=last_valid)
    assert start_states(traj).tolist() == [0, 1, 4]


def test_a_truncated_state_in_the_next_row_belongs_to_the_trajectory_that_led_to_it() -> None:
    scores = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    truncated = torch.tensor([[False], [True], [False], [True]])
    valid = torch.tensor([[True], [True], [False], [True]])
    successor = torch.tensor([[1], [2], [3], [4]])
    traj = Trajectories(torch.zeros(4, 1), ~valid & truncated, truncated, successor, valid)
    assert start_states(traj).tolist() == [0, 3]
    expected = torch.tensor([0.0, 1.0, 3.0, 0.0, 8.0])
    assert_close(direct_values(plain(scores), traj), expected)
    assert_close(telescoped_values(plain(scores), traj), expected)


@given(trajectories(max_steps=4, max_envs=2))
def test_relative_values_differentiate(traj: Trajectories) -> None:
    scores = random_scores(traj).requires_grad_()
    for values in (telescoped_values, direct_values, ranked_values):
        torch.autograd.gradcheck(lambda u, values=values: values(plain(u), traj), scores)


def test_too_few_scores_are_refused() -> None:
    traj = Trajectories(torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="one number for each of the 6 states"):
        ranked_values(LinearDelta(torch.zeros(5)), traj)
