"""Several runs in one process."""

from pathlib import Path

import pytest
import torch

from relval.runs import train, train_together
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


def test_a_profile_adds_up(tmp_path: Path) -> None:
    run = train(small("CartPole-v1", updates=2), tmp_path / "run", quiet=True, profile=True)
    rows = (run.folder / "profile.csv").read_text().splitlines()
    shares = {row.split(",")[0]: float(row.split(",")[2]) for row in rows[1:]}
    assert set(shares) == {"waiting for emulation", "acting", "update", "logging and saving"}
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)
    assert all(share > 0 for share in shares.values())
    assert (run.folder / "profile.png").stat().st_size > 1000
