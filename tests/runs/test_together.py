"""Several runs in one process."""

import csv
import warnings
from pathlib import Path

import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from relval import envs
from relval.runs import train, train_together, trainer
from relval.runs.trainer import Iteration, Trainer
from tests.runs.helpers import assert_same_run, small


@pytest.mark.parametrize("env", ["CartPole-v1", "Pong"])
def test_a_run_among_others_is_the_run_alone(env: str, tmp_path: Path) -> None:
    configs = [small(env, updates=3, seed=seed) for seed in (1, 2)]
    together = train_together(configs, [tmp_path / "1", tmp_path / "2"], quiet=True)
    for number, (config, run) in enumerate(zip(configs, together, strict=True)):
        alone = train(config, tmp_path / f"alone-{number}", quiet=True)
        assert_same_run(run.folder, alone.folder)


def test_a_run_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterate = Trainer.iterating

    def failing(trainer: Trainer) -> Iteration:
        if trainer.config.seed == 1 and trainer.step:
            raise ArithmeticError("reward is nan")
        return iterate(trainer)  # type: ignore[return-value]

    monkeypatch.setattr(Trainer, "iterating", failing)
    configs = [small("CartPole-v1", updates=3, seed=seed) for seed in (1, 2)]
    folders = [tmp_path / "1", tmp_path / "2"]
    with pytest.raises(ArithmeticError, match="reward is nan"):
        train_together(configs, folders, quiet=True)
    assert not (folders[0] / "summary.json").exists()
    assert (folders[1] / "summary.json").exists()


def test_if_one_run_cannot_start_none_leaves_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(CartPoleVectorEnv, "close", lambda self, **_: closed.append("CartPole-v1"))
    configs = [small("CartPole-v1"), small("CartPole-v9")]
    with pytest.raises(ValueError, match="no environment 'CartPole-v9'"):
        train_together(configs, [tmp_path / "1", tmp_path / "2"], quiet=True)
    assert list(tmp_path.iterdir()) == []
    assert closed == ["CartPole-v1"]


def test_runs_on_a_gpu_that_compute_in_several_precisions_are_refused(tmp_path: Path) -> None:
    settings = (("cuda", "fp32"), ("cuda", "bf16"), ("cpu", "tf32"))
    configs = [small("CartPole-v1", device=d, precision=p) for d, p in settings]
    with pytest.raises(ValueError, match="one precision, got fp32, bf16"):
        train_together(configs, [tmp_path / str(n) for n in range(3)], quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_games_that_share_few_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are emulated; CartPole is not."""
    monkeypatch.setattr(trainer, "cores", lambda: 2)
    pool, cartpole = (envs.make(name, envs.EnvConfig(3)) for name in ("Pong", "CartPole-v1"))
    with pytest.warns(UserWarning, match="3 games share 2 cores"):
        trainer._warn_of_few_cores(pool)
    with warnings.catch_warnings(action="error"):
        trainer._warn_of_few_cores(cartpole)
        monkeypatch.setattr(trainer, "cores", lambda: 3)
        trainer._warn_of_few_cores(pool)
    pool.close()


def test_a_full_gpu_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(trainer: Trainer) -> Iteration:
        raise torch.cuda.OutOfMemoryError("tried to allocate")

    monkeypatch.setattr(Trainer, "iterating", full)
    with pytest.raises(RuntimeError, match="train fewer seeds at once"):
        train(small("CartPole-v1"), tmp_path / "run", quiet=True)


def test_a_gpu_that_is_not_there_is_not_replaced(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="use --device cpu"):
        train(small("CartPole-v1", device="cuda"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("updates", "first"), [(2, 1), (24, 10)])
def test_a_profile_adds_up(updates: int, first: int, tmp_path: Path) -> None:
    run = train(small("CartPole-v1", updates=updates), tmp_path / "run", quiet=True, profile=True)
    with (run.folder / "profile.csv").open(newline="") as file:
        rows = {row["phase"]: row for row in csv.DictReader(file)}
    whole, before = rows.pop("all of it"), rows.pop(f"first {first} updates")
    assert set(rows) == {"waiting for emulation", "acting", "update", "logging and saving"}
    for column in ("seconds", "share", "ms_per_step"):
        parts = [float(row[column]) for row in rows.values()]
        assert min(parts) > 0
        assert sum(parts) == pytest.approx(float(whole[column]), abs=1e-3)
    steps = (updates - first) * run.config.ppo.steps
    each = 1e3 * float(whole["seconds"]) / steps
    assert float(whole["ms_per_step"]) == pytest.approx(each, abs=1e-3)
    assert 0 < float(before["seconds"]) < run.summary["seconds"] + 1
    assert (run.folder / "profile.png").stat().st_size > 1000
