import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from relval.envs import Normaliser, Settled
from relval.envs.normalise import RunningMoments

GAMMA = 0.9


def make(*, obs: bool = True, rewards: bool = True, num_envs: int = 4) -> Normaliser:
    return Normaliser((3,), num_envs, GAMMA, obs=obs, rewards=rewards)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.floats(-100, 100),
    st.floats(0.1, 50),
    st.integers(0, 1000),
)
def test_running_moments_are_those_of_all_batches(
    sizes: list[int], mean: float, spread: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    batches = [random.normal(mean, spread, size=(size, 2, 3)) for size in sizes]
    moments = RunningMoments((2, 3))
    for batch in batches:
        moments.update(batch)
    together = np.concatenate(batches)
    weight = 1e-4 / moments.count
    assert moments.count == pytest.approx(len(together), abs=1e-3)
    expected = together.mean(0)
    assert_allclose(moments.mean, expected, atol=2 * weight * np.abs(expected).max() + 1e-9)
    slack = 2 * weight * (1 + np.square(expected).max() + together.var(0).max()) + 1e-9
    assert_allclose(moments.variance, together.var(0), atol=slack)


def test_constant_input_has_no_variance() -> None:
    moments = RunningMoments()
    for _ in range(50):
        moments.update(np.full(1000, 3.0))
    assert moments.mean == pytest.approx(3.0)
    assert moments.variance == pytest.approx(0.0, abs=1e-6)


def test_observations_are_brought_to_mean_zero_and_spread_one() -> None:
    random = np.random.default_rng(0)
    seen = random.normal([5, -3, 0], [2, 0.1, 30], size=(500, 4, 3))
    normaliser = make()
    for batch in seen:
        normaliser.observe(batch)
    scaled = normaliser.observations(seen.reshape(-1, 3))
    assert scaled.dtype == np.float32
    assert_allclose(scaled.mean(0), 0, atol=1e-3)
    assert_allclose(scaled.std(0), 1, atol=1e-3)


def test_looking_at_observations_teaches_nothing() -> None:
    normaliser = make()
    normaliser.observe(np.ones((4, 3)))
    before = normaliser.capture()
    normaliser.observations(np.full((4, 3), 7.0))
    assert normaliser.capture() == before


def test_observations_and_rewards_are_clipped_to_ten() -> None:
    normaliser = make()
    random = np.random.default_rng(0)
    for _ in range(100):
        normaliser.observe(random.normal(size=(4, 3)))
        normaliser.rewards(random.normal(size=4), np.ones(4, dtype=np.bool_))
    assert_array_equal(normaliser.observations(np.full((1, 3), 1e6)), np.full((1, 3), 10))
    assert_array_equal(normaliser.observations(np.full((1, 3), -1e6)), np.full((1, 3), -10))
    last = normaliser.rewards(np.array([1e3, -1e3, 0, 0]), np.zeros(4, dtype=np.bool_))
    assert np.abs(last).max() <= 10


def test_rewards_are_divided_by_the_spread_of_discounted_returns() -> None:
    random = np.random.default_rng(0)
    rewards, ended = random.normal(1, 3, size=(300, 4)), random.random((300, 4)) < 0.1
    normaliser = make()
    running, returns = np.zeros(4), []
    for reward, end in zip(rewards, ended, strict=True):
        running = GAMMA * running + reward
        returns.append(running.copy())
        scaled = normaliser.rewards(reward, end)
        running = np.where(end, 0, running)
    assert_allclose(scaled, rewards[-1] / np.std(returns), rtol=1e-3)
    assert_array_equal(np.sign(scaled), np.sign(rewards[-1]))


def test_without_normalisation_everything_passes() -> None:
    normaliser = make(obs=False, rewards=False)
    observations, rewards = np.full((4, 3), 77, np.uint8), np.full(4, 1e6)
    assert normaliser.observe(observations) is observations
    assert normaliser.rewards(rewards, np.zeros(4, dtype=np.bool_)) is rewards


@pytest.mark.parametrize("obs", [False, True])
@pytest.mark.parametrize("rewards", [False, True])
def test_statistics_survive_json(obs: bool, rewards: bool) -> None:
    random = np.random.default_rng(0)
    one, other = (make(obs=obs, rewards=rewards) for _ in range(2))

    def feed(normaliser: Normaliser, seed: int) -> list[np.ndarray]:
        random = np.random.default_rng(seed)
        ended = random.random(4) < 0.3
        return [
            normaliser.observe(random.normal(size=(4, 3))),
            normaliser.rewards(random.normal(size=4), ended),
        ]

    for seed in random.integers(1000, size=20):
        feed(one, int(seed))
    other.restore(json.loads(json.dumps(one.capture())))
    for seed in range(20):
        for ours, theirs in zip(feed(one, seed), feed(other, seed), strict=True):
            assert_array_equal(ours, theirs)
    assert one.capture() == other.capture()


def test_settled_statistics_are_those_that_were_learned_and_learn_nothing() -> None:
    random = np.random.default_rng(0)
    learned = make()
    for _ in range(5):
        learned.observe(random.normal(size=(4, 3)))
        learned.rewards(random.normal(size=4), np.zeros(4, dtype=np.bool_))
    settled, before = Settled(learned), learned.capture()
    obs, rewards, ended = random.normal(size=(7, 3)), random.normal(size=7), np.ones(7, np.bool_)
    assert_array_equal(settled.observe(obs), learned.observations(obs))
    assert_array_equal(settled.rewards(rewards, ended), learned.scaled(rewards))
    assert settled.capture() == learned.capture() == before


@pytest.mark.parametrize("scaled", [False, True])
def test_a_gauge_adds_to_rewards_after_all_else(scaled: bool) -> None:
    random = np.random.default_rng(0)
    plain = Normaliser((3,), 4, GAMMA, obs=False, rewards=scaled)
    shifted = Normaliser((3,), 4, GAMMA, obs=False, rewards=scaled, gauge=50.0)
    ended = np.zeros(4, dtype=bool)
    for _ in range(20):
        rewards = random.normal(size=4)
        expected = plain.rewards(rewards, ended) + (1 - GAMMA) * 50
        assert_allclose(shifted.rewards(rewards, ended), expected)
