import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from relval.runs import Run, configure, logs, train
from tests.runs.helpers import UPDATE, tensorboard


def test_curves_are_read_in_one_line(cartpole: Run) -> None:
    curves = pd.read_csv(cartpole.metrics)
    assert curves["step"].tolist() == [UPDATE * (n + 1) for n in range(16)]
    assert {"score", "policy_loss", "critic_loss", "entropy", "steps_per_second"} <= set(curves)
    assert np.isfinite(curves.drop(columns="score").to_numpy()).all()


def test_episodes_are_those_that_the_curves_count(cartpole: Run) -> None:
    curves, episodes = pd.read_csv(cartpole.metrics), pd.read_csv(cartpole.episodes)
    assert list(episodes) == ["step", "env", "score", "length"]
    assert len(episodes) == curves["episodes"].iloc[-1] == cartpole.summary["episodes"]
    assert (episodes["score"] == episodes["length"]).all()
    assert episodes["step"].is_monotonic_increasing
    assert curves["score"].iloc[-1] == pytest.approx(episodes["score"].tail(100).mean())


def test_an_environment_s_episodes_fit_into_its_steps(cartpole: Run) -> None:
    episodes = pd.read_csv(cartpole.episodes)
    played = episodes.groupby("env")["length"].sum()
    assert set(played.index) == {0, 1, 2, 3}
    assert (played <= 16 * UPDATE // 4).all()


def test_tensorboard_gets_the_same_curves(cartpole: Run) -> None:
    curves = pd.read_csv(cartpole.metrics)
    for name in ("entropy", "critic_loss"):
        sent = tensorboard(cartpole.folder, name)
        np.testing.assert_allclose(sent, curves[["step", name]].to_numpy(), rtol=1e-6)


def test_the_origin_of_the_numbers_is_kept(cartpole: Run) -> None:
    origin = json.loads((cartpole.folder / "provenance.json").read_text(encoding="utf-8"))
    assert {"python", "torch", "gymnasium", "numpy"} <= set(origin["versions"])
    assert origin["hardware"]["cores"] >= 1


def test_a_log_keeps_what_it_is_told_to(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log = logs.CsvLog(path)
    log.append({"step": 1, "name": 'a "b", c'})
    kept = log.flush()
    log.append({"step": 2, "name": "lost"})
    log.close()
    log = logs.CsvLog(path, keep=kept)
    log.append({"step": 3, "name": "new"})
    log.close()
    assert pd.read_csv(path).values.tolist() == [[1, 'a "b", c'], [3, "new"]]


def test_a_log_refuses_other_columns(tmp_path: Path) -> None:
    log = logs.CsvLog(tmp_path / "log.csv")
    log.append({"step": 1})
    with pytest.raises(ValueError, match=r"columns \['step'\], got \['stop'\]"):
        log.append({"stop": 2})
    log.close()


def test_a_missing_tracker_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"`pip install \"relval\[wandb\]\"`"):
        train(configure("CartPole-v1", total_steps=1_000), tmp_path / "run", wandb=True)
    assert not (tmp_path / "run").exists()
