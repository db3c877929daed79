"""Environments that go wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from relval.ppo import NotFiniteError
from relval.runs import train
from tests.runs.conftest import Finished
from tests.runs.helpers import small

NAME = "Rotten-v0"


class Rotten(gym.Env[np.ndarray, np.int64]):
    """From its step 20 on, one of its numbers is not finite; it truncates after 20 more."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, what: str, value: float, render_mode: str | None = None) -> None:
        self.what, self.value, self.steps = what, value, 0
        self.render_mode = render_mode

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        rotten = self.value if self.steps >= 20 else 0.0
        truncated = self.steps >= (20 if self.what == "last observation" else 40)
        observation = np.zeros(2, np.float32)
        observation[1] = rotten if self.what.endswith("observation") else 0.0
        return observation, rotten if self.what == "reward" else 1.0, False, truncated, {}


@pytest.fixture
def rotten(request: pytest.FixtureRequest) -> Iterator[str]:
    """The quantity that is rotten."""
    what, value = request.param

    def make(**options: Any) -> Rotten:
        return Rotten(what, value, **options)

    gym.register(NAME, entry_point=make, disable_env_checker=True)
    yield what
    del gym.registry[NAME]


@pytest.mark.parametrize(
    "rotten",
    [
        ("reward", float("nan")),
        ("reward", float("inf")),
        ("observation", float("nan")),
        ("observation", float("-inf")),
        ("last observation", float("nan")),
    ],
    indirect=True,
)
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_number_that_is_not_finite_stops_the_run_by_name(
    rotten: str, normalise: bool, tmp_path: Path
) -> None:
    options = {"normalise_observations": normalise, "normalise_rewards": normalise}
    config = small(NAME, preset="classic", envs=options, network={"shared": False})
    with pytest.raises(NotFiniteError, match=rf"^{rotten.split()[-1]} is (nan|-?inf)"):
        train(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run/summary.json").exists()


@pytest.mark.parametrize("rotten", [("reward", float("nan"))], indirect=True)
def test_the_command_line_says_so_without_a_traceback(
    rotten: str, relval: Callable[..., Finished], tmp_path: Path
) -> None:
    finished = relval("train", NAME, "--preset", "classic", "--out", tmp_path / "run")
    assert finished.status == 2
    assert finished.err == "relval: reward is nan: learning stops before it spreads\n"
