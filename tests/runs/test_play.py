import math
from pathlib import Path

import pytest
from PIL import Image, ImageSequence

from relval.runs import Film, Run, Scores, evaluate, inspect, record


@pytest.mark.parametrize("episodes", [1, 3, 4, 7, 12])
def test_as_many_episodes_are_played_as_were_asked_for(cartpole: Run, episodes: int) -> None:
    played = evaluate(cartpole, episodes)
    assert len(played.scores) == len(played.lengths) == episodes


def test_a_run_may_be_named_by_its_folder(cartpole: Run, tmp_path: Path) -> None:
    assert evaluate(str(cartpole.folder), 2) == evaluate(cartpole, 2)
    film = record(str(cartpole.folder), str(tmp_path / "film.gif"), max_steps=2)
    assert film.frames == 3
    assert (tmp_path / "film.gif").exists()


def test_a_negative_seed_is_refused(cartpole: Run, tmp_path: Path) -> None:
    for play in (
        lambda: evaluate(cartpole, seed=-1),
        lambda: record(cartpole, tmp_path / "film.gif", seed=-1),
        lambda: inspect(cartpole, tmp_path / "page.html", seed=-1),
    ):
        with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
            play()


def test_a_film_in_another_format_is_refused_before_it_is_played(cartpole: Run) -> None:
    with pytest.raises(ValueError, match=r"a film is written as a \.gif, got 'film\.mp4'"):
        record(cartpole, "film.mp4")


def test_no_episodes_are_refused(cartpole: Run) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        evaluate(cartpole, 0)


def test_a_step_of_cartpole_is_worth_one(cartpole: Run) -> None:
    played = evaluate(cartpole, 12)
    assert played.scores == played.lengths
    assert min(played.lengths) > 1


def test_an_episode_of_pendulum_has_200_steps(pendulum: Run) -> None:
    assert evaluate(pendulum, 5).lengths == [200] * 5


@pytest.mark.parametrize(
    ("name", "deterministic"), [("cartpole", True), ("cartpole", False), ("breakout", False)]
)
def test_a_seed_decides_the_scores(
    name: str, deterministic: bool, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(name)
    played = [evaluate(run, 8, seed=seed, deterministic=deterministic) for seed in (3, 3, 4)]
    assert played[0] == played[1]
    assert played[0].lengths != played[2].lengths


def test_likeliest_actions_play_otherwise_than_drawn_ones(cartpole: Run) -> None:
    assert evaluate(cartpole, 8, deterministic=True) != evaluate(cartpole, 8)


def test_the_mean_has_a_margin() -> None:
    scores = Scores([1.0, 2.0, 3.0, 6.0], [1] * 4)
    assert scores.mean == 3.0
    assert scores.margin == pytest.approx(3.182 * math.sqrt(14 / 3) / 2)
    assert Scores([1.0], [1]).margin == math.inf


@pytest.mark.parametrize(("name", "fps"), [("cartpole", 50), ("breakout", 15)])
def test_a_video_shows_every_step(
    name: str, fps: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Pillow shows a frame that equals the one before it as a longer one."""
    path = tmp_path / "new" / "video.gif"
    film = record(request.getfixturevalue(name), path, seed=1)
    frames = film.frames
    with Image.open(path) as video:
        assert video.format == "GIF"
        shown = [frame.info["duration"] for frame in ImageSequence.Iterator(video)]
    each = 1000 // fps // 10 * 10
    assert frames / 2 < len(shown) <= frames
    assert sum(shown) == pytest.approx(frames * each, abs=frames)
    if name == "cartpole":
        assert frames == film.score
    assert film.whole


def test_a_video_ends_after_the_steps_that_it_is_given(cartpole: Run, tmp_path: Path) -> None:
    assert record(cartpole, tmp_path / "video.gif", max_steps=4) == Film(4.0, 5, whole=False)


def test_a_seed_decides_the_video(cartpole: Run, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        record(cartpole, tmp_path / f"{name}.gif", seed=seed)
    assert (tmp_path / "one.gif").read_bytes() == (tmp_path / "again.gif").read_bytes()
    assert (tmp_path / "one.gif").read_bytes() != (tmp_path / "other.gif").read_bytes()
