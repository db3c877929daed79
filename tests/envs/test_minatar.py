import json
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from minatar.environments import breakout
from numpy.testing import assert_array_equal

from relval.envs.minatar import GAMES, MinAtarVectorEnv, game, names

ACTIONS = {"Asterix": 5, "Breakout": 3, "Freeway": 3, "Seaquest": 6, "SpaceInvaders": 4}
Step = tuple[np.ndarray, np.ndarray, np.ndarray]


def make(name: str = "Breakout", num_envs: int = 3, **options: Any) -> MinAtarVectorEnv:
    return MinAtarVectorEnv(GAMES[name], num_envs, **options)


def play(envs: MinAtarVectorEnv, steps: int, seed: int = 0) -> list[Step]:
    """Observations, rewards and ends under random actions."""
    random = np.random.default_rng(seed)
    moves = random.integers(len(envs.actions), size=(steps, envs.num_envs))
    return [envs.step(move)[:3] for move in moves]


def assert_same(one: list[Step], other: list[Step]) -> None:
    for ours, theirs in zip(one, other, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert_array_equal(a, b)


def observed(steps: list[Step]) -> np.ndarray:
    return np.stack([observations for observations, _, _ in steps])


@pytest.mark.parametrize("name", GAMES)
def test_a_game_plays_on_binary_planes_with_its_minimal_actions(name: str) -> None:
    envs = make(name)
    first, _ = envs.reset(seed=1)
    assert envs.single_action_space == gym.spaces.Discrete(ACTIONS[name])
    planes, height, width = first.shape[1:]
    assert (planes, height, width) == envs.single_observation_space.shape
    assert (height, width) == (10, 10)
    steps = play(envs, 400)
    for observations, rewards, terminated in steps:
        assert observations.dtype == np.uint8
        assert envs.observation_space.contains(observations)
        assert rewards.shape == terminated.shape == (3,)
    assert set(np.unique(observed(steps))) == {0, 1}


@pytest.mark.parametrize("name", sorted(set(GAMES) - {"Freeway"}))
def test_a_game_that_ends_begins_again_in_the_same_step(name: str) -> None:
    envs = make(name)
    envs.reset(seed=1)
    steps = play(envs, 600)
    ends = np.stack([terminated for _, _, terminated in steps])
    assert ends.any()
    assert not any(env.terminal for env in envs.games)


@pytest.mark.parametrize("name", GAMES)
def test_a_seed_decides_the_trajectories(name: str) -> None:
    played = []
    for seed in (5, 5, 6):
        envs = make(name)
        envs.reset(seed=seed)
        played.append(play(envs, 200))
    assert_same(played[0], played[1])
    assert not np.array_equal(observed(played[0]), observed(played[2]))


@pytest.mark.parametrize("name", GAMES)
def test_games_side_by_side_have_random_streams_of_their_own(name: str) -> None:
    envs = make(name, 4)
    envs.reset(seed=1)
    draws = [env.random.random_sample() for env in envs.games]
    assert len(set(draws)) == 4
    moves = np.random.default_rng(0).integers(ACTIONS[name], size=300)
    alike = observed([envs.step(np.full(4, move))[:3] for move in moves])
    assert all(
        not np.array_equal(alike[:, i], alike[:, j]) for i in range(4) for j in range(i + 1, 4)
    )


def test_a_reset_without_a_seed_goes_on_with_the_random_streams() -> None:
    envs = make("Asterix")
    envs.reset(seed=1)
    first = observed(play(envs, 100))
    envs.reset()
    assert not np.array_equal(observed(play(envs, 100)), first)


def raw_games(num_envs: int, seed: int) -> list[Any]:
    """Breakout itself, with the random streams that a seed means."""
    games = []
    for child in np.random.SeedSequence(seed).spawn(num_envs):
        raw = breakout.Env(ramping=True)
        raw.random = np.random.RandomState(np.random.MT19937(child))
        raw.reset()
        games.append(raw)
    return games


def raw_step(raw: Any, action: int) -> tuple[np.ndarray, float, bool]:
    reward, terminated = raw.act(action)
    if terminated:
        raw.reset()
    return raw.state().transpose(2, 0, 1), reward, terminated


@pytest.mark.parametrize("sticky", [0.0, 0.1, 0.5, 1.0])
def test_the_chosen_action_is_executed_unless_the_last_one_sticks(sticky: float) -> None:
    envs = make("Breakout", 3, sticky_actions=sticky)
    envs.reset(seed=11)
    games = raw_games(3, seed=11)
    random = np.random.default_rng(2)
    last = [0, 0, 0]
    stuck = ended = 0
    for _ in range(500):
        moves = random.integers(3, size=3)
        observations, rewards, terminated, truncated, _ = envs.step(moves)
        for n, raw in enumerate(games):
            chosen = raw.minimal_action_set()[moves[n]]
            if raw.random.random_sample() < sticky:
                stuck += chosen != last[n]
            else:
                last[n] = chosen
            expected, reward, end = raw_step(raw, last[n])
            last[n] = 0 if end else last[n]
            ended += end
            assert_array_equal(observations[n], expected)
            assert (rewards[n], terminated[n], truncated[n]) == (reward, end, False)
    assert (stuck > 0) == (sticky > 0)
    assert ended > 0


def test_without_sticky_actions_the_chosen_one_is_always_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executed = []
    act = breakout.Env.act

    def watched(raw: Any, action: int) -> Any:
        executed.append(action)
        return act(raw, action)

    monkeypatch.setattr(breakout.Env, "act", watched)
    envs = make("Breakout", 1, sticky_actions=0.0)
    envs.reset(seed=3)
    moves = np.random.default_rng(4).integers(3, size=(300, 1))
    for move in moves:
        envs.step(move)
    assert_array_equal(executed, envs.actions[moves[:, 0]])


def test_ramping_reaches_the_games() -> None:
    assert [env.ramping for env in make("Asterix", ramping=False).games] == [False] * 3
    assert [env.ramping for env in make("Asterix").games] == [True] * 3


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("steps", [0, 37, 150])
def test_a_state_survives_json(name: str, steps: int) -> None:
    envs, other = make(name), make(name)
    envs.reset(seed=1)
    other.reset(seed=2)
    play(envs, steps)
    saved = json.dumps(envs.capture())
    expected = play(envs, 300, seed=1)
    other.restore(json.loads(saved))
    assert_same(play(other, 300, seed=1), expected)
    envs.restore(json.loads(saved))
    assert_same(play(envs, 300, seed=1), expected)


@pytest.mark.parametrize("name", GAMES)
def test_capturing_changes_nothing(name: str) -> None:
    played = []
    for capturing in (False, True):
        envs = make(name)
        envs.reset(seed=1)
        if capturing:
            envs.capture()
        played.append(play(envs, 100))
    assert_same(*played)


def test_a_missing_package_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "minatar.environments.breakout", None)
    with pytest.raises(ModuleNotFoundError, match=r"`pip install \"relval\[minatar\]\"`"):
        make("Breakout")


def test_games_are_found_by_name() -> None:
    assert set(names()) == {f"MinAtar/{name}" for name in ACTIONS}
    assert game("MinAtar/SpaceInvaders") == "space_invaders"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("MinAtar/breakout", "did you mean MinAtar/Breakout?"),
        ("MinAtar/SpaceInvader", "did you mean MinAtar/SpaceInvaders?"),
        ("MinAtar/" + 40 * "?", "choose from MinAtar/Asterix, "),
    ],
)
def test_an_unknown_game_is_refused_with_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(ValueError, match="there is no MinAtar game") as error:
        game(wrong)
    assert hint in str(error.value)


@pytest.mark.parametrize("name", GAMES)
def test_a_game_is_drawn(name: str) -> None:
    envs = make(name, 2, render_mode="rgb_array")
    envs.reset(seed=1)
    pictures = envs.render()
    assert len(pictures) == 2
    assert all(picture.shape == (240, 240, 3) for picture in pictures)
    assert all(picture.dtype == np.uint8 for picture in pictures)
    assert len(np.unique(pictures[0].reshape(-1, 3), axis=0)) > 1


def test_a_ball_is_seen_among_bricks() -> None:
    envs = make("Breakout", 1, render_mode="rgb_array")
    envs.reset(seed=1)
    env = envs.games[0]
    (at_the_start,) = envs.render()
    ball = at_the_start[24 * env.ball_y, 24 * env.ball_x]
    env.ball_y, env.ball_x = 2, 4
    assert env.brick_map[2, 4]
    (picture,) = envs.render()
    np.testing.assert_array_equal(picture[2 * 24, 4 * 24], ball)
    kinds = [(2, 4), (2, 5), (env.last_y, env.last_x), (0, 0), (9, env.pos)]
    assert len({tuple(picture[24 * y, 24 * x]) for y, x in kinds}) == 5
