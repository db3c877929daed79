"""Runs on real Atari games."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from relval.envs import EnvConfig
from relval.runs import Run, evaluate, load, record, resume, train
from relval.runs.trainer import _check_seen_as_they_are
from tests.runs.helpers import UPDATE, assert_same_run, available, small

UPDATES = 40
EVERY = 12 * UPDATE


@pytest.fixture(scope="module")
def breakout(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("atari") / "breakout"
    return train(small("Breakout", updates=UPDATES, checkpoint_every=EVERY), folder, quiet=True)


def test_a_run_that_was_killed_ends_like_one_that_was_not(breakout: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    script = (
        "from relval.runs import train; from tests.runs.helpers import small; "
        f"train(small('Breakout', updates={UPDATES}, checkpoint_every={EVERY}), {str(folder)!r}, "
        "quiet=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        while process.poll() is None and not available(folder):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not load(folder).finished
    assert resume(folder, quiet=True).finished
    assert_same_run(folder, breakout.folder)


def test_a_run_does_not_depend_on_the_number_of_workers(breakout: Run, tmp_path: Path) -> None:
    config = small("ALE/Breakout-v5", updates=UPDATES, checkpoint_every=EVERY, envs={"workers": 0})
    assert_same_run(train(config, tmp_path / "run", quiet=True).folder, breakout.folder)


def test_an_episode_is_a_whole_game(breakout: Run) -> None:
    """A game of Breakout has five lives; one that hardly ever hits the ball takes long for them."""
    episodes = pd.read_csv(breakout.episodes)
    assert len(episodes) > 0
    assert (episodes["length"] > 100).all()
    assert (episodes["score"] >= 0).all()


def test_what_was_settled_is_recorded(breakout: Run) -> None:
    assert breakout.config.env == "Breakout"
    assert breakout.config.envs.sticky_actions == 0.0
    assert breakout.config.preset == "relval"


def test_games_are_played_to_their_end(breakout: Run, tmp_path: Path) -> None:
    played = evaluate(breakout, 3)
    assert len(played.scores) == 3
    assert min(played.lengths) > 100


def test_a_video_is_in_colour_and_in_the_screens_size(breakout: Run, tmp_path: Path) -> None:
    film = record(breakout, tmp_path / "video.gif", max_steps=50)
    assert film.score >= 0
    assert film.frames == 51
    with Image.open(tmp_path / "video.gif") as picture:
        assert picture.size == (160, 210)
        red, _, blue = np.moveaxis(np.asarray(picture.convert("RGB")), -1, 0)
    assert (red != blue).mean() > 0.05


@pytest.mark.parametrize("setting", ["normalise_observations", "normalise_rewards", "gauge"])
def test_what_a_gpu_would_leave_out_is_refused_there(setting: str) -> None:
    _check_seen_as_they_are(EnvConfig())
    with pytest.raises(ValueError, match=rf"envs\.{setting} is not for Atari on a GPU"):
        _check_seen_as_they_are(EnvConfig(**{setting: True}))
