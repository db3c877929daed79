import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from relval.runs import Run, load
from tests.runs.conftest import Finished
from tests.runs.helpers import contents

Relval = Callable[..., Finished]
SHORT = ("--total-steps", 100, "--ppo.steps", 16, "--ppo.minibatch", 64, "--quiet")


def test_a_run_is_trained_evaluated_and_filmed(relval: Relval, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ("--critic", "relative", "--critic.head", "mlp", "--total-steps", 3000)
    trained = relval("train", "CartPole-v1", *options, "--out", folder)
    assert trained.status == 0, trained.err
    *progress, report = trained.out.splitlines()
    assert re.match(r"run: step 3,072 of 3,000, score [\d.]+ \(\d+ episodes\)", progress[-1])
    assert "\x1b" not in trained.out
    assert re.fullmatch(
        rf"score [\d.]+ after 3,072 steps; the run is in {re.escape(str(folder))}", report
    )
    config = load(folder).config
    assert (config.env, config.total_steps, config.preset) == ("CartPole-v1", 3000, "classic")
    assert getattr(config.critic, "head", None) == "mlp"

    evaluated = relval("eval", folder, "--episodes", 5)
    assert evaluated.status == 0, evaluated.err
    assert re.match(r"score [\d.]+ ± [\d.]+ \(mean of 5 episodes, 95%\)", evaluated.out)
    assert relval("eval", folder, "--episodes", 5).out == evaluated.out

    filmed = relval("video", folder)
    assert filmed.status == 0, filmed.err
    assert str(folder / "video.gif") in filmed.out
    assert (folder / "video.gif").exists()

    again = relval("train", "--resume", folder)
    assert again.status == 0, again.err
    assert "has finished already" in again.out


def test_a_quiet_run_shows_its_report_alone(relval: Relval, tmp_path: Path) -> None:
    trained = relval("train", "CartPole-v1", *SHORT, "--out", tmp_path / "run")
    assert trained.status == 0, trained.err
    assert len(trained.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["CartPol-v1"], "CartPole-v1"),
        (["MinAtar/Breakot"], "did you mean MinAtar/Breakout?"),
        (["Breakot"], "Breakout"),
        (["CartPole-v1", "--critic", "relatve"], "did you mean relative?"),
        (["CartPole-v1", "--preset", "clasic"], "did you mean classic?"),
        (["CartPole-v1", "--ppo.learning-rat", "1"], "--ppo.learning-rate"),
        (["CartPole-v1", "--critic.head", "cubic"], "mlp"),
        (["CartPole-v1", "--total-steps", "0"], "total_steps must be at least 1"),
        (["CartPole-v1", "--total-steps", "1.5"], "a whole number was expected, such as"),
        (["CartPole-v1", "--total-steps", "inf"], "a whole number was expected, such as"),
        ([], "which environment?"),
        (["Pendulum-v1", "--critic", "dae"], "'dae' has one output per action, so it needs"),
        (["--resume", "nowhere"], "nowhere holds no run"),
        (["CartPole-v1", "--resume", "nowhere"], "so leave out CartPole-v1"),
        (["--resume", "nowhere", "--critic", "dae"], "so leave out --critic"),
        (["--resume", "nowhere", "--preset", "paper", "--seeds", "1-4"], "--preset, --seeds"),
    ],
)
def test_a_mistake_is_refused_with_what_may_have_been_meant(
    arguments: list[str],
    hint: str,
    relval: Relval,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    finished = relval("train", *arguments)
    assert finished.status == 2
    assert hint in finished.err
    assert "Traceback" not in finished.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["eval", "video"])
def test_a_folder_without_a_run_is_refused(command: str, relval: Relval, tmp_path: Path) -> None:
    finished = relval(command, tmp_path / "nowhere")
    assert finished.status == 2
    assert "holds no run" in finished.err
    assert list(tmp_path.iterdir()) == []


def test_out_that_holds_another_run_is_refused_and_left_alone(
    relval: Relval, cartpole: Run
) -> None:
    before = contents(cartpole.folder)
    finished = relval("train", "CartPole-v1", "--seed", 9, "--out", cartpole.folder)
    assert finished.status == 2
    assert f"relval train --resume {cartpole.folder}" in finished.err
    assert f"relval.resume('{cartpole.folder}')" in finished.err
    assert contents(cartpole.folder) == before


@pytest.mark.parametrize("asked", [["--help"], ["CartPole-v1", "--help"]])
def test_help_tells_critics_presets_and_settings(asked: list[str], relval: Relval) -> None:
    finished = relval("train", *asked)
    assert finished.status == 0
    for word in ("absolute", "minatar", "--ppo.learning-rate", "--critic.n", "--resume"):
        assert word in finished.out


def test_environments_are_listed_with_what_they_need(relval: Relval) -> None:
    listed = relval("envs")
    assert listed.status == 0, listed.err
    words = " ".join(listed.out.split())
    assert 'HalfCheetah-v5 and its like need `pip install "relval[mujoco]"`' in words
    assert "MinAtar/Breakout" in words


def test_a_module_in_the_current_folder_names_an_environment(
    relval: Relval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_module.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('Mine-v0', 'gymnasium.envs.classic_control.acrobot:AcrobotEnv')\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    trained = relval("train", "my_module:Mine-v0", *SHORT)
    assert trained.status == 0, trained.err
    assert (tmp_path / "runs" / "my_module-mine-v0-relative-1" / "summary.json").exists()
    del gym.registry["Mine-v0"], sys.modules["my_module"]


def test_whole_numbers_may_be_written_with_an_exponent(relval: Relval, tmp_path: Path) -> None:
    trained = relval("train", "CartPole-v1", *SHORT, "--seed", "2e0", "--out", tmp_path / "run")
    assert trained.status == 0, trained.err
    assert load(tmp_path / "run").config.seed == 2
    assert relval("suite", "show").err.startswith("relval: which suite? `relval suite list`")


class Failing(gym.Env[np.ndarray, Any]):
    """An environment with an error in it."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        raise ValueError("out of cheese")


def test_an_error_of_an_environment_can_be_traced(
    relval: Relval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gym.register("Failing-v0", lambda **_: Failing(), disable_env_checker=True)
    arguments = ("train", "Failing-v0", *SHORT, "--out", tmp_path / "run")
    told = relval(*arguments).err
    assert told.startswith("relval: out of cheese (RELVAL_TRACEBACK=1 shows")
    assert "RELVAL_TRACEBACK" not in relval("train", "--resume", tmp_path / "nowhere").err
    monkeypatch.setenv("RELVAL_TRACEBACK", "1")
    with pytest.raises(ValueError, match=r"^out of cheese$"):
        relval(*arguments)
    del gym.registry["Failing-v0"]
