"""Environments that Gymnasium allows, though few are like them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from relval.runs import evaluate, train
from relval.runs.trainer import Trainer
from tests.runs.helpers import small

NAME = "Unusual-v0"


class Unusual(gym.Env[np.ndarray, Any]):
    """Refuses actions that are not in its space."""

    def __init__(self, observations: gym.Space[np.ndarray], actions: gym.Space[Any]) -> None:
        self.observation_space, self.action_space, self.steps = observations, actions, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 7, False, {}


FLAT = gym.spaces.Box(-1, 1, (2,))
BYTES = gym.spaces.Box(0, 255, (12, 12, 3), np.uint8)
TWO = gym.spaces.Discrete(2)


@pytest.fixture
def unusual(request: pytest.FixtureRequest) -> Iterator[str]:
    observations, actions = request.param

    def make(**_: Any) -> Unusual:
        return Unusual(observations, actions)

    gym.register(NAME, entry_point=make, disable_env_checker=True)
    yield NAME
    del gym.registry[NAME]


@pytest.mark.parametrize(
    "unusual",
    [
        pytest.param((gym.spaces.Box(-1, 1, (2,), np.float64), TWO), id="float64 observations"),
        pytest.param((gym.spaces.Box(0, 9, (2,), np.int64), TWO), id="integer observations"),
        pytest.param((gym.spaces.Box(-1, 1, (2, 3)), TWO), id="observations in a matrix"),
        pytest.param((BYTES, TWO), id="images of another size"),
        pytest.param((FLAT, gym.spaces.Discrete(2, start=5)), id="actions from 5 on"),
        pytest.param((FLAT, gym.spaces.Box(-1, 1, (2, 2))), id="actions in a matrix"),
    ],
    indirect=True,
)
def test_an_unusual_environment_is_learned_and_played(unusual: str, tmp_path: Path) -> None:
    run = train(small(unusual, preset="classic", updates=2), tmp_path / "run", quiet=True)
    assert evaluate(run, 5).lengths == [7] * 5


@pytest.mark.parametrize("unusual", [(BYTES, TWO)], indirect=True)
@pytest.mark.parametrize("normalised", [False, True])
def test_bytes_are_scaled_unless_they_are_normalised(
    unusual: str, normalised: bool, tmp_path: Path
) -> None:
    config = small(unusual, updates=2, envs={"normalise_observations": normalised})
    policy = train(config, tmp_path / "run", quiet=True).policy
    assert policy.agent.encoder.scale == pytest.approx(1 if normalised else 1 / 255)
    assert Trainer(config).agent.encoder.scale == policy.agent.encoder.scale
