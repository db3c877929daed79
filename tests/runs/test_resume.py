"""Runs that go on after they were stopped in this process."""

from pathlib import Path

import pandas as pd
import pytest

from relval.critics import CRITICS
from relval.runs import Config, Run, load, resume, train
from relval.runs.trainer import Trainer
from tests.runs.helpers import (
    UPDATE,
    assert_same_run,
    available,
    contents,
    small,
    tensorboard,
    train_until,
)


@pytest.fixture
def halted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of CartPole that was stopped after update 10 of 16, with checkpoints of 8 and 10."""
    train_until(monkeypatch, small("CartPole-v1"), tmp_path / "run", update=10)
    return tmp_path / "run"


def assert_goes_on(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, *, update: int
) -> None:
    train_until(monkeypatch, config, folder / "halted", update=update)
    assert resume(folder / "halted", quiet=True).finished
    train(config, folder / "whole", quiet=True)
    assert_same_run(folder / "halted", folder / "whole")


@pytest.mark.parametrize("critic", CRITICS)
def test_any_critic_goes_on_as_if_nothing_had_happened(
    critic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(
        "CartPole-v1",
        critic,
        ppo={"anneal_clip": True},
        envs={"normalise_observations": True, "normalise_rewards": True},
    )
    assert_goes_on(config, tmp_path, monkeypatch, update=7)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_shared_encoder_goes_on_as_if_nothing_had_happened(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("CartPole-v1", network={"shared": True}, critic_options={"head": head})
    assert_goes_on(config, tmp_path, monkeypatch, update=7)


@pytest.mark.parametrize("game", ["Asterix", "Freeway", "Seaquest", "SpaceInvaders"])
def test_any_game_goes_on_as_if_nothing_had_happened(
    game: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_goes_on(small(f"MinAtar/{game}"), tmp_path, monkeypatch, update=7)


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    halted: Path, cartpole: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [path.name for path in available(halted)] == ["step_000000000512", "step_000000000640"]
    (available(halted)[-1] / "tensors.safetensors").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="step_000000000640 cannot be read"):
        resume(halted, quiet=True)
    assert "goes on from step 512" in capsys.readouterr().out
    assert_same_run(halted, cartpole.folder)


def test_a_run_that_crashed_before_its_summary_gets_one(tmp_path: Path, cartpole: Run) -> None:
    folder = train(small("CartPole-v1"), tmp_path, quiet=True).folder
    (folder / "summary.json").unlink()
    summary = resume(folder, quiet=True).summary
    assert summary["steps"] == 16 * UPDATE
    assert summary["score"] == cartpole.summary["score"]
    assert_same_run(folder, cartpole.folder)


def test_an_environment_that_cannot_be_restored_begins_new_episodes_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small("Pendulum-v1", updates=64)
    train_until(monkeypatch, config, tmp_path / "run", update=10)
    assert resume(tmp_path / "run", quiet=True).finished
    shown = capsys.readouterr().out
    assert "not restored: the episodes in progress: Pendulum-v1 offers no way" in shown
    episodes = pd.read_csv(load(tmp_path / "run").episodes)
    assert len(episodes) > 0
    assert (episodes["length"] == 200).all()


def test_new_episodes_begin_without_the_returns_of_those_before() -> None:
    config = small("Pendulum-v1", envs={"normalise_rewards": True})
    one, other = Trainer(config), Trainer(config)
    one.iterate()
    assert one.normaliser.running.all()
    other.restore(one.capture())
    assert not other.normaliser.running.any()
    assert one.normaliser.returns is not None
    assert other.normaliser.capture()["returns"] == one.normaliser.returns.capture()


def test_a_finished_run_says_so_and_is_left_alone(
    cartpole: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(cartpole.folder)
    assert resume(cartpole.folder) == cartpole
    assert "has finished already" in capsys.readouterr().out
    assert contents(cartpole.folder) == before


def test_a_folder_that_holds_another_run_is_refused_and_left_alone(cartpole: Run) -> None:
    before = contents(cartpole.folder)
    with pytest.raises(FileExistsError, match="nothing is overwritten"):
        train(small("CartPole-v1", seed=2), cartpole.folder, quiet=True)
    assert contents(cartpole.folder) == before


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no environment"):
        train(small("CartPole-v9"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_run_that_has_not_finished_has_no_summary_but_a_policy(halted: Path) -> None:
    run = load(halted)
    assert not run.finished
    with pytest.raises(FileNotFoundError, match="relval train --resume"):
        run.summary  # noqa: B018
    assert run.policy.agent is not None


@pytest.mark.parametrize("begin", [resume, load])
def test_a_folder_without_a_run_is_refused(begin: object, tmp_path: Path) -> None:
    assert callable(begin)
    with pytest.raises(FileNotFoundError, match="holds no run"):
        begin(tmp_path)


def test_tensorboard_shows_every_update_once_after_a_resume(halted: Path) -> None:
    resume(halted, quiet=True)
    seen = [step for step, _ in tensorboard(halted, "entropy")]
    assert seen == pd.read_csv(halted / "metrics.csv")["step"].tolist()
