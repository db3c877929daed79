from pathlib import Path

import pandas as pd
import pytest

from relval.runs import train, watch
from relval.runs.watch import Watch
from tests.runs.helpers import small

STORED = Path(__file__).parents[2] / "results/readings"


def shares(share: float, times: int, watched: Watch) -> None:
    for step in range(times):
        watched.look(step, {"critic_share": share, "entropy": 1.0})


def test_a_critic_that_drowns_the_policy_is_told_of_once() -> None:
    watched = Watch("Pong/1")
    shares(0.95, watch._UPDATES - 1, watched)
    with pytest.warns(RuntimeWarning, match=r"Pong/1, step 7: the critic drowns .* 95% of"):
        watched.look(7, {"critic_share": 0.95})
    shares(0.95, 2 * watch._UPDATES, watched)  # where a warning would be an error


def test_dead_features_are_told_of() -> None:
    watched = Watch("Pong/1")
    for step in range(watch._UPDATES - 1):
        watched.look(step, {"dead_features": 0.97})
    with pytest.warns(RuntimeWarning, match="97% of the features are dead"):
        watched.look(watch._UPDATES, {"dead_features": 0.97})


def test_a_strong_critic_at_the_beginning_is_nothing_to_tell() -> None:
    watched = Watch("Pong/1")
    shares(0.99, watch._UPDATES // 2, watched)
    shares(0.3, 10 * watch._UPDATES, watched)  # where a warning would be an error


def test_a_run_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_UPDATES", 3)
    config = small("MinAtar/Breakout", updates=4, critic_options={"coefficient": 1e6})
    with pytest.warns(RuntimeWarning, match="the critic drowns the policy"):
        train(config, tmp_path / "run", quiet=True)


def test_on_pong_the_runs_to_be_warned_of_are_those_that_did_not_learn() -> None:
    runs = ["env", "variant", "seed"]
    stored = pd.read_csv(STORED / "diagnostics.csv").query("env == 'Pong'")
    largest = stored.groupby(runs)["critic_share"].max()
    scores = pd.read_csv(STORED / "scores.csv").set_index(runs)["score"]
    limit, _ = watch._TROUBLES["critic_share"]
    learned = scores[largest.index] > -15
    assert learned.any()
    assert ((largest <= limit) == learned).all()
