import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from numpy.testing import assert_array_equal

from relval import envs
from relval.envs import EnvConfig
from relval.envs.minatar import MinAtarVectorEnv
from relval.runs import configure


def play(made: Any, steps: int, seed: int = 0) -> list[np.ndarray]:
    """What follows random actions."""
    random = np.random.default_rng(seed)
    seen = []
    for move in random.integers(made.single_action_space.n, size=(steps, made.num_envs)):
        seen += made.step(move)[:4]
    return seen


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("CartPole-v1", AutoresetMode.NEXT_STEP),
        ("Pendulum-v1", AutoresetMode.SAME_STEP),
        ("Acrobot-v1", AutoresetMode.SAME_STEP),
        ("MinAtar/Breakout", AutoresetMode.SAME_STEP),
    ],
)
def test_an_environment_is_made_and_names_its_auto_reset(name: str, mode: AutoresetMode) -> None:
    made = envs.make(name, EnvConfig(num_envs=3))
    assert made.num_envs == 3
    assert envs.autoreset_mode(made) is mode
    observations, _ = made.reset(seed=0)
    assert observations.shape == (3, *(made.single_observation_space.shape or ()))
    made.close()


@pytest.mark.parametrize("mode", [None, AutoresetMode.DISABLED])
def test_another_auto_reset_is_refused(mode: AutoresetMode | None) -> None:
    made = envs.make("MinAtar/Breakout", EnvConfig(num_envs=1))
    made.metadata = {"autoreset_mode": mode}
    with pytest.raises(ValueError, match="next-step or same-step, got"):
        envs.autoreset_mode(made)


def test_minatar_is_made_as_configured() -> None:
    made = envs.make("MinAtar/Asterix", EnvConfig(2, sticky_actions=0.25, ramping=False))
    assert isinstance(made, MinAtarVectorEnv)
    assert made.sticky_actions == 0.25
    assert not made.games[0].ramping


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("Cartpole", "CartPole"),
        ("Pendulum-v9", "Pendulum-v1"),
        ("Breakot", "Breakout"),
        ("MinAtar/Breakot", "did you mean MinAtar/Breakout?"),
        ("MinAtar-Breakout", "MinAtar/Breakout"),
        ("CARTPOLE-V1", "did you mean CartPole-v1?"),
        ("brekout", "did you mean Breakout?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"no .* {wrong!r}") as error:
        envs.make(wrong, EnvConfig())
    assert hint in str(error.value)


def test_a_name_like_no_other_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no environment '\?{30}'; `relval envs` lists"):
        envs.make(30 * "?", EnvConfig())


class Plain(gym.Env[np.ndarray, np.int64]):
    """An environment that takes no options."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        pass


def needy(**_: Any) -> gym.Env[Any, Any]:
    raise gym.error.DependencyNotInstalled("install the package xyzzy")


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[str]:
    """An environment that only this test knows."""
    gym.register("Registered-v0", entry_point=request.param)
    yield "Registered-v0"
    del gym.registry["Registered-v0"]


@pytest.mark.parametrize("registered", [needy], indirect=True)
def test_a_missing_package_is_named(registered: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"{registered} needs .* the package xyzzy"):
        envs.make(registered, EnvConfig())


@pytest.mark.parametrize("registered", [Plain], indirect=True)
def test_an_environment_that_knows_no_render_mode_is_made(registered: str) -> None:
    assert envs.make(registered, EnvConfig(num_envs=2)).num_envs == 2


@pytest.mark.parametrize("name", ["CartPole-v1", "MinAtar/Seaquest"])
def test_a_state_survives_json(name: str) -> None:
    made, other = (envs.make(name, EnvConfig(num_envs=5)) for _ in range(2))
    made.reset(seed=1)
    other.reset(seed=2)
    play(made, 61)
    saved = json.dumps(envs.capture(made))
    expected = play(made, 400, seed=1)
    assert any(array.dtype == np.bool_ and array.any() for array in expected)
    envs.restore(other, json.loads(saved))
    for ours, theirs in zip(play(other, 400, seed=1), expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert_array_equal(ours, theirs)


def test_cartpole_is_captured_in_the_step_that_ends_an_episode() -> None:
    made, other = (envs.make("CartPole-v1", EnvConfig(num_envs=8)) for _ in range(2))
    made.reset(seed=1)
    other.reset(seed=2)
    ends = np.zeros(8, dtype=np.bool_)
    while not ends.any():
        ends = made.step(np.zeros(8, dtype=np.int64))[2]
    envs.restore(other, json.loads(json.dumps(envs.capture(made))))
    for ours, theirs in zip(play(other, 50), play(made, 50), strict=True):
        assert_array_equal(ours, theirs)


def test_an_environment_without_a_state_to_capture_has_none() -> None:
    made = envs.make("Pendulum-v1", EnvConfig(num_envs=1))
    made.reset(seed=1)
    assert envs.capture(made) is None
    made.close()


def test_an_environment_of_your_own_is_named_with_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_envs.py").write_text(
        "import gymnasium as gym\n"
        "entry = 'gymnasium.envs.classic_control.acrobot:AcrobotEnv'\n"
        "gym.register('MyAcrobot-v0', entry, max_episode_steps=7)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = envs.make("my_own_envs:MyAcrobot-v0", EnvConfig(num_envs=2))
    assert made.single_observation_space.shape == (6,)
    made.close()
    config = configure("my_own_envs:MyAcrobot-v0")
    assert (config.env, config.preset) == ("my_own_envs:MyAcrobot-v0", "classic")
    del gym.registry["MyAcrobot-v0"]


def test_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match="asks for the module 'nowhere'"):
        envs.make("nowhere:MyEnv-v0", EnvConfig())
