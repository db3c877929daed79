import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relval.relative import DiscountedPairwiseBellman, PairwiseBellman
from tests.relative.strategies import assert_close

seeds = st.integers(0, 2**32)
state_counts = st.integers(1, 6)
CONDITIONING = 1e-10
"""A discount close to 1 magnifies the rounding of a linear solve."""
contractions = st.sampled_from([0.0, 0.3, 0.9, 0.99])


def random_process(states: int, seed: int) -> tuple[Tensor, Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    transition = torch.rand(states, states, dtype=torch.float64, generator=generator) ** 4
    transition /= transition.sum(1, keepdim=True)
    return transition, torch.randn(states, dtype=torch.float64, generator=generator), generator


def random_antisymmetric(states: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(states, states, dtype=torch.float64, generator=generator)
    return x - x.T


@given(state_counts, seeds, contractions)
def test_the_operator_is_the_expected_target_of_every_pair(
    states: int, seed: int, gamma: float
) -> None:
    transition, reward, generator = random_process(states, seed)
    delta = random_antisymmetric(states, generator)
    result = PairwiseBellman(transition, reward, gamma)(delta)
    for i in range(states):
        for j in range(states):
            expected = reward[i] - reward[j]
            for a in range(states):
                for b in range(states):
                    expected = expected + gamma * transition[i, a] * transition[j, b] * delta[a, b]
            assert_close(result[i, j], expected)


@given(state_counts, seeds, contractions)
def test_the_operator_contracts_and_keeps_antisymmetry(
    states: int, seed: int, gamma: float
) -> None:
    transition, reward, generator = random_process(states, seed)
    operator = PairwiseBellman(transition, reward, gamma)
    one, two = (random_antisymmetric(states, generator) for _ in range(2))
    assert_close(operator(one), -operator(one).T)
    distance = (operator(one) - operator(two)).abs().max()
    assert distance <= gamma * (one - two).abs().max() + 1e-12


@given(state_counts, seeds, contractions)
def test_the_fixed_point_is_the_difference_of_true_values(
    states: int, seed: int, gamma: float
) -> None:
    transition, reward, _ = random_process(states, seed)
    operator = PairwiseBellman(transition, reward, gamma)
    values = operator.values()
    assert_close(values, reward + gamma * transition @ values)
    assert_close(operator.fixed_point(), values[:, None] - values[None, :], CONDITIONING)
    assert_close(operator(operator.fixed_point()), operator.fixed_point())


@given(state_counts, seeds, contractions)
def test_the_discounted_operator_has_the_discounted_difference_as_fixed_point(
    states: int, seed: int, gamma: float
) -> None:
    transition, reward, generator = random_process(states, seed)
    operator = DiscountedPairwiseBellman(transition, reward, gamma)
    values = operator.values()
    expected = gamma * values[:, None] - values[None, :]
    assert_close(operator.fixed_point(), expected, CONDITIONING)
    assert_close(operator(expected), expected)
    one, two = torch.randn(2, states, states, dtype=torch.float64, generator=generator)
    distance = (operator(one) - operator(two)).abs().max()
    assert distance <= gamma * (one - two).abs().max() + 1e-12


def test_a_terminal_state_is_absorbing_and_worth_nothing() -> None:
    transition = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    operator = PairwiseBellman(transition, torch.tensor([3.0, 0.0]), 0.9)
    assert_close(operator.values(), torch.tensor([3.0, 0.0]))
    assert_close(operator.fixed_point(), torch.tensor([[0.0, 3.0], [-3.0, 0.0]]))


def test_bad_input_is_refused_with_a_reason() -> None:
    identity, reward = torch.eye(2), torch.zeros(2)
    with pytest.raises(ValueError, match=r"shapes \[S\] and \[S, S\]"):
        PairwiseBellman(identity, torch.zeros(3), 0.9)
    with pytest.raises(ValueError, match=r"shapes \[S\] and \[S, S\]"):
        PairwiseBellman(identity, torch.zeros(2, 1), 0.9)
    with pytest.raises(TypeError, match="reward must be a floating-point tensor"):
        PairwiseBellman(identity, torch.zeros(2, dtype=torch.long), 0.9)
    for wrong in (0.5 * identity, torch.tensor([[2.0, -1.0], [0.0, 1.0]])):
        with pytest.raises(ValueError, match="absorbing state"):
            PairwiseBellman(wrong, reward, 0.9)
    with pytest.raises(ValueError, match="gamma must lie"):
        PairwiseBellman(identity, reward, 1.1)
    with pytest.raises(ValueError, match=r"delta must have shape \[2, 2\]"):
        PairwiseBellman(identity, reward, 0.9)(torch.zeros(3, 3))
    undiscounted = PairwiseBellman(identity, reward, 1.0)
    for compute in (undiscounted.values, undiscounted.fixed_point):
        with pytest.raises(ValueError, match="gamma below 1"):
            compute()
