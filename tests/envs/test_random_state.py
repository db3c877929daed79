import json
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from relval.envs import random_state

Random = np.random.Generator | np.random.RandomState
KINDS: list[Callable[[int], Random]] = [
    np.random.default_rng,
    np.random.RandomState,
    lambda seed: np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed))),
]


def draw(random: Random) -> np.ndarray:
    """Numbers of all kinds, an odd count of normal ones so that one of a pair stays behind."""
    normal = np.concatenate([random.normal(size=3), random.uniform(size=2)])
    return np.concatenate([normal, random.permutation(5), random.standard_normal(2)])


@pytest.mark.parametrize("make", KINDS)
def test_a_generator_s_state_survives_json(make: Callable[[int], Random]) -> None:
    random, other = make(1), make(2)
    draw(random)
    saved = json.loads(json.dumps(random_state.capture(random)))
    expected = [draw(random) for _ in range(300)]
    assert not np.array_equal(draw(other), expected[0])
    random_state.restore(other, saved)
    assert_array_equal([draw(other) for _ in range(300)], expected)


@pytest.mark.parametrize("make", KINDS)
def test_a_captured_state_does_not_change_with_the_generator(
    make: Callable[[int], Random],
) -> None:
    random = make(1)
    saved = random_state.capture(random)
    expected = draw(random)
    random_state.restore(random, saved)
    assert_array_equal(draw(random), expected)
