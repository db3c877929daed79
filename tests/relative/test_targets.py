import itertools
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relval.experiments.theory.finite import FiniteProcess, expected_target
from relval.relative import (
    LinearDelta,
    Trajectories,
    discounted_targets,
    lambda_targets,
    n_step_targets,
    one_step_targets,
)
from relval.relative.targets import BothTerminal
from tests.relative import reference
from tests.relative.strategies import (
    all_pairs,
    assert_close,
    critics,
    discounts,
    pointwise,
    random_scores,
    trajectories,
)

both_terminal_rules = st.sampled_from(["zero", "derived"])
step_counts = st.integers(1, 9)


@given(trajectories(), step_counts, discounts, both_terminal_rules)
def test_n_step_targets_equal_the_reference(
    traj: Trajectories, n: int, gamma: float, rule: BothTerminal
) -> None:
    i, j = all_pairs(traj)
    for delta in critics(traj):
        expected = [
            reference.n_step_target(pointwise(delta), traj, a, b, n, gamma, rule)
            for a, b in zip(i.flatten().tolist(), j.flatten().tolist(), strict=True)
        ]
        targets = n_step_targets(delta, traj, i, j, n=n, gamma=gamma, both_terminal=rule)
        assert_close(targets, torch.tensor(expected, dtype=torch.float64).view(i.shape))


@given(trajectories(max_steps=5, max_envs=2), discounts, discounts, both_terminal_rules)
def test_lambda_targets_equal_the_reference(
    traj: Trajectories, lam: float, gamma: float, rule: BothTerminal
) -> None:
    i, j = all_pairs(traj)
    for delta in critics(traj):
        expected = [
            reference.lambda_target(pointwise(delta), traj, a, b, lam, gamma, rule)
            for a, b in zip(i.flatten().tolist(), j.flatten().tolist(), strict=True)
        ]
        targets = lambda_targets(delta, traj, i, j, lam=lam, gamma=gamma, both_terminal=rule)
        assert_close(targets, torch.tensor(expected, dtype=torch.float64).view(i.shape))


@given(trajectories(), step_counts, discounts)
def test_discounted_targets_equal_the_reference(traj: Trajectories, n: int, gamma: float) -> None:
    i, j = all_pairs(traj)
    values = random_scores(traj)
    expected = [
        reference.discounted_target(values.tolist(), traj, a, b, n, gamma)
        for a, b in zip(i.flatten().tolist(), j.flatten().tolist(), strict=True)
    ]
    targets = discounted_targets(values, traj, i, j, n=n, gamma=gamma)
    assert_close(targets, torch.tensor(expected, dtype=torch.float64).view(i.shape))


@given(trajectories(), discounts, discounts, both_terminal_rules)
def test_targets_reduce_to_each_other_in_their_limits(
    traj: Trajectories, gamma: float, lam: float, rule: BothTerminal
) -> None:
    i, j = all_pairs(traj)
    for delta in critics(traj):
        one_step = one_step_targets(delta, traj, i, j, gamma=gamma, both_terminal=rule)
        n_step, longest = (
            n_step_targets(delta, traj, i, j, n=n, gamma=gamma, both_terminal=rule)
            for n in (1, traj.steps)
        )
        lambda_0, lambda_1 = (
            lambda_targets(delta, traj, i, j, lam=lam, gamma=gamma, both_terminal=rule)
            for lam in (0.0, 1.0)
        )
        assert_close(n_step, one_step)
        assert_close(lambda_0, one_step)
        assert_close(lambda_1, longest)


@given(trajectories(), step_counts, discounts, discounts, both_terminal_rules)
def test_targets_are_antisymmetric_to_the_last_bit(
    traj: Trajectories, n: int, gamma: float, lam: float, rule: BothTerminal
) -> None:
    i, j = all_pairs(traj)
    for delta in critics(traj):
        for targets in (
            one_step_targets(delta, traj, i, j, gamma=gamma, both_terminal=rule),
            n_step_targets(delta, traj, i, j, n=n, gamma=gamma, both_terminal=rule),
            lambda_targets(delta, traj, i, j, lam=lam, gamma=gamma, both_terminal=rule),
        ):
            assert torch.equal(targets, -targets.T)
            assert torch.equal(targets.diagonal(), torch.zeros(len(targets), dtype=targets.dtype))


@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from(["zero", "derived"]))
def test_expected_targets_satisfy_the_pairwise_bellman_identity(
    seed: int, n: int, rule: BothTerminal
) -> None:
    process = process_that_terminates_surely(seed)
    for first, second in itertools.product(range(3), repeat=2):
        truth = (process.values[first] - process.values[second]).item()
        for steps, targets in (
            (1, partial(one_step_targets, gamma=process.gamma, both_terminal=rule)),
            (n, partial(n_step_targets, n=n, gamma=process.gamma, both_terminal=rule)),
            (2, partial(lambda_targets, lam=0.7, gamma=process.gamma, both_terminal=rule)),
        ):
            expected = expected_target(process, first, second, steps=steps, targets=targets)
            assert expected == pytest.approx(truth, abs=1e-12)


def process_that_terminates_surely(seed: int) -> FiniteProcess:
    """Three states: two wander at random, the third terminates whatever the action."""
    generator = torch.Generator().manual_seed(seed)
    transition = torch.rand(3, 2, 3, dtype=torch.float64, generator=generator)
    transition /= transition.sum(-1, keepdim=True)
    transition[2] = 0.0
    reward, logits = torch.randn(2, 3, 2, dtype=torch.float64, generator=generator)
    return FiniteProcess(transition, reward, logits, gamma=0.9)


def two_episodes() -> Trajectories:
    """Env 0 terminates with its second step; env 1 goes on for all three."""
    rewards = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    terminated = torch.tensor([[False, False], [True, False], [False, False]])
    return Trajectories(rewards, terminated)


def test_targets_by_hand() -> None:
    traj = two_episodes()
    delta = LinearDelta(torch.tensor([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0]))
    i, j = torch.tensor([0]), torch.tensor([1])
    # Transition 0 starts in state 0 and has two steps to its end, transition 1 has three.
    one_step = (1 - 10) + 0.5 * (2 - 3)
    # After two steps env 0 has terminated: state 2 and its reward take the terminal state's place.
    two_step = (1 - 10) + 0.5 * (2 - 20) + 0.25 * ((2 - 8) - 2)
    assert one_step_targets(delta, traj, i, j, gamma=0.5).item() == one_step
    assert n_step_targets(delta, traj, i, j, n=2, gamma=0.5).item() == two_step
    assert n_step_targets(delta, traj, i, j, n=5, gamma=0.5).item() == two_step
    mixed = 0.25 * one_step + 0.75 * two_step
    assert lambda_targets(delta, traj, i, j, lam=0.75, gamma=0.5).item() == mixed


def test_two_terminal_successors_follow_the_chosen_rule() -> None:
    traj = Trajectories(torch.tensor([[1.0, 3.0]]), torch.tensor([[True, True]]))
    delta = LinearDelta(torch.tensor([5.0, 7.0, 0.0, 0.0]))
    i, j = torch.tensor([0]), torch.tensor([1])
    zero = one_step_targets(delta, traj, i, j, gamma=0.5)
    derived = one_step_targets(delta, traj, i, j, gamma=0.5, both_terminal="derived")
    assert zero.item() == 1 - 3
    assert derived.item() == (1 - 3) + 0.5 * ((5 - 7) + 3 - 1)


def test_a_terminal_successor_is_never_evaluated() -> None:
    traj = two_episodes()
    scores = torch.zeros(traj.num_states)
    scores[4] = torch.nan  # the state after env 0's termination begins another episode
    asked = torch.tensor([2]), torch.tensor([3])
    assert one_step_targets(LinearDelta(scores), traj, *asked, gamma=0.9).isfinite()


def test_targets_carry_no_gradient() -> None:
    traj = two_episodes()
    delta = LinearDelta(torch.zeros(traj.num_states, requires_grad=True))
    i = j = traj.transitions
    assert not one_step_targets(delta, traj, i, j, gamma=0.9).requires_grad
    assert not n_step_targets(delta, traj, i, j, n=3, gamma=0.9).requires_grad
    assert not lambda_targets(delta, traj, i, j, lam=0.9, gamma=0.9).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_keep_shape_and_precision(dtype: torch.dtype) -> None:
    traj = two_episodes()
    traj = Trajectories(traj.rewards.to(dtype), traj.terminated)
    delta = LinearDelta(random_scores(traj).to(dtype))
    i = torch.zeros(2, 1, 3, dtype=torch.long)
    for targets in (
        one_step_targets(delta, traj, i, i, gamma=0.9),
        n_step_targets(delta, traj, i, i, n=5, gamma=0.9),
        lambda_targets(delta, traj, i, i, lam=0.9, gamma=0.9),
    ):
        assert targets.shape == i.shape
        assert targets.dtype == dtype


def test_bad_input_is_refused_with_a_reason() -> None:
    traj = two_episodes()
    delta = LinearDelta(torch.zeros(traj.num_states))
    i = torch.tensor([0, 1])

    def matrix(a: Tensor, b: Tensor) -> Tensor:
        return torch.zeros(len(a), len(b))

    with pytest.raises(ValueError, match="i and j must have the same shape"):
        one_step_targets(delta, traj, i, i[:1], gamma=0.9)
    with pytest.raises(TypeError, match="i must be an int64 or int32 tensor"):
        one_step_targets(delta, traj, i.float(), i, gamma=0.9)
    for wrong in (-1, 6):
        with pytest.raises(ValueError, match="transition numbers from 0 to 5"):
            one_step_targets(delta, traj, i, torch.tensor([0, wrong]), gamma=0.9)
    for gamma, lam in itertools.product((-0.1, 0.9, 1.1, float("nan")), repeat=2):
        if (gamma, lam) != (0.9, 0.9):
            with pytest.raises(ValueError, match=r"(gamma|lam) must lie in \[0, 1\]"):
                lambda_targets(delta, traj, i, i, lam=lam, gamma=gamma)
    for n in (0, -1, 1.5):
        with pytest.raises(ValueError, match="n must be a whole number of at least 1"):
            n_step_targets(delta, traj, i, i, n=n, gamma=0.9)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both_terminal must be one of 'zero', 'derived'"):
        one_step_targets(delta, traj, i, i, gamma=0.9, both_terminal="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the result of delta"):
        one_step_targets(matrix, traj, i, i, gamma=0.9)


def test_an_ignored_action_is_refused() -> None:
    valid = torch.tensor([[True], [False], [True]])
    traj = Trajectories(torch.zeros(3, 1), torch.tensor([[True], [False], [False]]), valid=valid)
    delta = LinearDelta(torch.zeros(traj.num_states))
    with pytest.raises(ValueError, match="action was ignored"):
        one_step_targets(delta, traj, torch.tensor([0]), torch.tensor([1]), gamma=0.9)
