import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.testing import assert_array_equal

from relval.envs.atari import AtariPool, WorkerError, names
from relval.envs.atari import pool as pool_module
from relval.envs.atari.game import Game, pack, unpack
from relval.envs.atari.workers import InProcess

Outcome = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def breakout() -> Iterator[AtariPool]:
    """Three games in this process, for tests that reset them first."""
    pool = AtariPool("Breakout", 3, workers=0)
    yield pool
    pool.close()


def moves(pool: AtariPool, steps: int, seed: int = 0) -> np.ndarray:
    """Random actions `[steps, num_envs]`."""
    random = np.random.default_rng(seed)
    return random.integers(len(pool.action_meanings), size=(steps, pool.num_envs))


def play(pool: AtariPool, steps: int, seed: int = 0) -> list[Outcome]:
    """All that comes of random actions."""
    return [outcome(*pool.step(move)) for move in moves(pool, steps, seed)]


def outcome(
    observations: np.ndarray,
    rewards: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    infos: dict[str, Any],
) -> Outcome:
    """A step as arrays that nothing overwrites."""
    last = [one for one in infos.get("final_obs", ()) if one is not None]
    return {
        "observations": observations.copy(),
        "rewards": rewards,
        "terminated": terminated,
        "truncated": truncated,
        **{name: infos[name] for name in ("raw_reward", "lives", "noops")},
        "last": np.stack(last) if last else np.empty(0),
        "ended": infos.get("_final_obs", np.empty(0)),
        "finished": infos.get("_episode", np.empty(0)),
        **infos.get("episode", {}),
    }


def assert_same(one: list[Outcome], other: list[Outcome]) -> None:
    for ours, theirs in zip(one, other, strict=True):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            assert_array_equal(array, theirs[name], err_msg=name)


def column(steps: list[Outcome], name: str) -> np.ndarray:
    return np.stack([step[name] for step in steps])


def games(pool: AtariPool) -> list[Game]:
    """The games of a pool that plays in this process."""
    assert isinstance(pool._crew, InProcess)
    return list(pool._crew._present().games.values())


# What Gymnasium expects


@pytest.mark.parametrize(
    ("deliver", "shape"), [("stacks", (4, 84, 84)), ("screens", (2, 210, 160))]
)
def test_it_is_a_vector_environment(deliver: Any, shape: tuple[int, ...]) -> None:
    pool = AtariPool("ALE/Breakout-v5", 2, deliver=deliver, workers=0)
    assert isinstance(pool, VectorEnv)
    assert pool.game == "Breakout"
    assert pool.num_envs == 2
    assert pool.single_observation_space == gym.spaces.Box(0, 255, shape, np.uint8)
    assert pool.observation_space == batch_space(pool.single_observation_space, 2)
    assert pool.action_meanings == ("NOOP", "FIRE", "RIGHT", "LEFT")
    assert pool.single_action_space == gym.spaces.Discrete(4)
    assert pool.action_space == batch_space(pool.single_action_space, 2)
    assert pool.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    observations, _ = pool.reset(seed=1)
    assert pool.observation_space.contains(observations)
    pool.action_space.seed(1)
    for _ in range(5):
        observations, rewards, terminated, truncated, _ = pool.step(pool.action_space.sample())
        assert pool.observation_space.contains(observations)
        assert rewards.shape == terminated.shape == truncated.shape == (2,)
        assert rewards.dtype == np.float64
        assert terminated.dtype == truncated.dtype == np.bool_
    pool.close()


def test_all_18_actions_are_offered_on_demand() -> None:
    pool = AtariPool("Breakout", 1, full_actions=True, workers=0)
    assert pool.single_action_space == gym.spaces.Discrete(18)
    pool.reset(seed=1)
    pool.step(np.array([17]))


@pytest.mark.parametrize(("name", "raw"), [("SpaceInvaders", {0, 5}), ("Pong", {-1, 0})])
def test_rewards_are_the_signs_of_the_raw_ones(name: str, raw: set[int]) -> None:
    pool = AtariPool(name, 2, workers=0)
    pool.reset(seed=1)
    steps = play(pool, 120)
    assert {int(reward) for reward in column(steps, "raw_reward").flat} >= raw
    assert_array_equal(column(steps, "rewards"), np.sign(column(steps, "raw_reward")))


Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


@dataclass(frozen=True)
class History:
    """Three games of Breakout under random actions, some of them to their end."""

    space: gym.Space[Any]
    first: tuple[np.ndarray, dict[str, Any]]
    steps: list[Step]
    lives: list[list[int]]
    """As the emulators have them after each step."""


@pytest.fixture(scope="module")
def history(breakout: AtariPool) -> History:
    first = breakout.reset(seed=2)
    steps, lives = [], []
    for move in moves(breakout, 250):
        steps.append(breakout.step(move))
        lives.append([game._ale.lives() for game in games(breakout)])
    return History(breakout.single_observation_space, first, steps, lives)


def test_infos_have_the_documented_shapes(history: History) -> None:
    assert history.first[1].keys() == {"lives", "noops"}
    seen = set()
    for _, _, terminated, truncated, infos in history.steps:
        ended = terminated | truncated
        seen |= set(infos)
        for name in ("raw_reward", "lives", "noops"):
            assert infos[name].shape == (3,)
        assert ("final_obs" in infos) == ("_final_obs" in infos) == ended.any()
        if ended.any():
            assert_array_equal(infos["_final_obs"], ended)
            for last, there in zip(infos["final_obs"], ended, strict=True):
                assert history.space.contains(last) if there else last is None
        assert ("episode" in infos) == ("_episode" in infos)
        if "episode" in infos:
            assert infos["episode"].keys() == {"r", "l"}
            assert infos["episode"]["r"].shape == infos["episode"]["l"].shape == (3,)
            assert infos["_episode"].any()
            assert not (infos["_episode"] & ~ended).any()
    assert seen == {
        *("raw_reward", "lives", "noops", "final_obs", "_final_obs", "episode", "_episode")
    }


def test_lives_and_noops_are_those_of_the_returned_state(history: History) -> None:
    noops = history.first[1]["noops"]
    new = []
    for (_, _, terminated, _, infos), lives in zip(history.steps, history.lives, strict=True):
        assert_array_equal(infos["lives"], lives)
        over = infos.get("_episode", np.zeros(3, bool))
        assert (infos["lives"][over] == 5).all()
        assert (infos["lives"][terminated & ~over] < 5).all()
        assert_array_equal(infos["noops"][~over], noops[~over])
        new += [(n, int(noops[n]), int(infos["noops"][n])) for n in np.flatnonzero(over)]
        noops = infos["noops"]
    assert any(before != after for _, before, after in new)


def test_a_whole_game_is_reported_with_its_raw_return_and_its_steps(history: History) -> None:
    score, length, episodes = np.zeros(3), np.zeros(3, int), np.zeros(3, int)
    scores = []
    for _, _, terminated, _, infos in history.steps:
        score += infos["raw_reward"]
        length += 1
        episodes += terminated
        for n in np.flatnonzero(infos.get("_episode", [])):
            # Five lives, each begun with FIRE and another step, each but the first after a wait.
            assert episodes[n] == 5
            assert infos["episode"]["r"][n] == score[n]
            assert infos["episode"]["l"][n] == length[n] + 5 * 2 + 4
            scores.append(score[n])
            score[n] = length[n] = episodes[n] = 0
    assert len(scores) >= 3
    assert any(scores)


def test_the_last_observation_of_an_episode_is_not_the_first_of_the_next(
    history: History,
) -> None:
    before = history.first[0]
    for observations, _, terminated, _, infos in history.steps:
        for n in np.flatnonzero(terminated):
            assert_array_equal(infos["final_obs"][n][:-1], before[n][1:])
            assert not np.array_equal(infos["final_obs"][n], observations[n])
            for frame in observations[n]:
                assert_array_equal(frame, observations[n][0])
        before = observations


# Seeds


def test_a_seed_decides_the_trajectories_whoever_plays_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: Any = {"sticky_actions": 0.25, "max_frames": 240}
    crews: list[dict[str, Any]] = [
        *({"workers": workers, "start_method": "fork"} for workers in (0, 1, 2, 3)),
        {"workers": 2, "start_method": "spawn"},
        {"workers": None, "start_method": "fork"},
        {"workers": None, "start_method": "spawn"},
    ]
    monkeypatch.setattr(pool_module, "cores", lambda: 3)
    expected: list[Outcome] = []
    for crew in crews:
        pool = AtariPool("SpaceInvaders", 5, **options, **crew)
        assert len(pool.worker_pids) == (2 if crew["workers"] is None else crew["workers"])
        first, _ = pool.reset(seed=7)
        steps = [{"observations": first}, *play(pool, 80)]
        pool.close()
        expected = expected or steps
        assert_same(steps, expected)
    assert column(expected[1:], "truncated").any()
    assert column(expected[1:], "rewards").any()


def test_another_seed_gives_other_games_and_the_same_the_same(breakout: AtariPool) -> None:
    played = []
    for seed in (5, 5, 6):
        breakout.reset(seed=seed)
        played.append(play(breakout, 60))
    assert_same(played[0], played[1])
    assert not np.array_equal(column(played[0], "observations"), column(played[2], "observations"))


def test_games_side_by_side_have_random_streams_of_their_own(breakout: AtariPool) -> None:
    """Neighbouring seeds have nothing in common either: no stream is the next one's neighbour."""
    streams = []
    for seed in (8, 9, 10):
        begun = [breakout.reset(seed=seed if n == 0 else None)[1]["noops"] for n in range(12)]
        streams += [tuple(stream) for stream in np.stack(begun).T]
    assert len(set(streams)) == 9


def test_a_game_begins_with_1_to_30_frames_without_action(breakout: AtariPool) -> None:
    noops = np.concatenate(
        [breakout.reset(seed=1 if n == 0 else None)[1]["noops"] for n in range(200)]
    )
    # Of 30 equally likely values, 600 draws miss any one with probability 4e-8.
    assert set(noops) == set(range(1, 31))


def test_a_reset_without_a_seed_goes_on_with_the_random_streams(breakout: AtariPool) -> None:
    histories = []
    for _ in range(2):
        noops = [breakout.reset(seed=1)[1]["noops"]]
        noops += [breakout.reset()[1]["noops"] for _ in range(7)]
        histories.append(np.stack(noops))
    assert_array_equal(histories[0], histories[1])
    assert not any((row == histories[0][0]).all() for row in histories[0][1:])


def test_a_game_may_begin_at_once() -> None:
    pool = AtariPool("Seaquest", 2, noop_max=0, workers=0)
    observations, infos = pool.reset(seed=1)
    assert_array_equal(infos["noops"], [0, 0])
    assert_array_equal(observations[0], observations[1])


def test_a_first_reset_without_a_seed_is_random() -> None:
    begun = []
    for _ in range(2):
        pool = AtariPool("Pong", 1, workers=0)
        begun.append([int(pool.reset()[1]["noops"][0]) for _ in range(20)])
    assert begun[0] != begun[1]  # with probability 1 - 30 ** -20


# Saved states


@pytest.mark.parametrize(
    ("name", "deliver", "sticky", "before", "after"),
    [
        ("Breakout", "stacks", 0.0, 0, 2),
        ("Breakout", "screens", 0.25, 2, 1),
        ("Seaquest", "stacks", 0.25, 1, 0),
        ("Pong", "screens", 0.0, 2, 0),
    ],
)
def test_a_state_survives_json_and_another_number_of_workers(
    name: str, deliver: Any, sticky: float, before: int, after: int
) -> None:
    options: Any = {"deliver": deliver, "sticky_actions": sticky, "max_frames": 300}
    pool = AtariPool(name, 2, **options, workers=before)
    pool.reset(seed=1)
    play(pool, 37)
    saved = json.dumps(pool.capture())
    expected = play(pool, 200, seed=1)
    ends = (column(expected, "terminated") | column(expected, "truncated")).sum(0)
    assert (ends >= 2).all()

    other = AtariPool(name, 2, **options, workers=after)
    other.restore(json.loads(saved))
    assert other.capture() == json.loads(saved)
    assert_same(play(other, 200, seed=1), expected)
    assert_same([{"noops": other.reset()[1]["noops"]}], [{"noops": pool.reset()[1]["noops"]}])
    other.restore(json.loads(saved))
    assert_same(play(other, 20, seed=1), expected[:20])
    pool.close()
    other.close()


def test_a_state_goes_from_stacks_to_screens_and_back() -> None:
    with (
        closing(AtariPool("Breakout", 2, workers=0)) as stacks,
        closing(AtariPool("Breakout", 2, workers=0, deliver="screens")) as screens,
        closing(AtariPool("Breakout", 2, workers=0)) as other_stacks,
        closing(AtariPool("Breakout", 2, workers=0, deliver="screens")) as other_screens,
    ):
        for pool in (stacks, screens):
            pool.reset(seed=1)
        seen = play(stacks, 37)[-1]["observations"]
        play(screens, 37)
        state_of_stacks, state_of_screens = stacks.capture(), screens.capture()
        other_stacks.restore(json.loads(json.dumps(state_of_screens)), stacks=seen)
        other_screens.restore(json.loads(json.dumps(state_of_stacks)))
        assert other_stacks.capture() == state_of_stacks
        assert other_screens.capture() == state_of_screens
        assert_same(play(other_stacks, 200, seed=1), play(stacks, 200, seed=1))
        assert_same(play(other_screens, 200, seed=1), play(screens, 200, seed=1))

        before = other_stacks.capture()
        with pytest.raises(ValueError, match="pass `stacks`"):
            other_stacks.restore(state_of_screens)
        assert other_stacks.capture() == before


def test_capturing_changes_nothing(breakout: AtariPool) -> None:
    played = []
    for capturing in (False, True):
        breakout.reset(seed=1)
        played.append(play(breakout, 20))
        if capturing:
            breakout.capture()
        played[-1] += play(breakout, 60, seed=1)
    assert_same(*played)


def test_a_state_of_other_games_is_refused(breakout: AtariPool) -> None:
    breakout.reset(seed=1)
    state = breakout.capture()
    for change in ({"game": "Pong"}, {"games": state["games"][:2]}):
        with pytest.raises(ValueError, match=r"but this is a pool of 3 games of Breakout") as error:
            breakout.restore({**state, **change})
        assert "3 games of Pong" in str(error.value) or "2 games of Breakout" in str(error.value)


def rubbish(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """A state whose last game's emulator cannot be read."""
    bad: dict[str, Any] = json.loads(json.dumps(state))
    good = unpack(bad["games"][-1]["emulator"])
    bad["games"][-1]["emulator"] = {
        "empty": pack(b""),
        "random": pack(np.random.default_rng(0).bytes(len(good))),
        "cut off": pack(good[: len(good) // 2]),
        "zeros": pack(bytes(len(good))),
        "not packed": "rubbish",
        "badly packed": pack(good)[: len(pack(good)) // 8 * 4],
    }[kind]
    return bad


@pytest.mark.parametrize(
    "kind",
    [
        *("empty", "random", "cut off", "not packed", "badly packed"),
        "zeros",
    ],
)
def test_an_unreadable_state_is_refused_with_a_reason(kind: str, breakout: AtariPool) -> None:
    breakout.reset(seed=1)
    state = breakout.capture()
    with pytest.raises(ValueError, match="another version of ale-py"):
        breakout.restore(rubbish(state, kind))
    breakout.restore(state)  # it still can
    breakout.step(np.zeros(3, int))


def test_a_worker_that_cannot_read_a_state_says_so() -> None:
    pool = AtariPool("Breakout", 2, workers=2)
    pool.reset(seed=1)
    with pytest.raises(WorkerError, match="another version of ale-py") as error:
        pool.restore(rubbish(pool.capture(), "random"))
    assert "worker 1 " in str(error.value)


# Sticky actions


class Spy:
    """An emulator that remembers what it was told to do."""

    def __init__(self, ale: Any) -> None:
        self.ale = ale
        self.acted: list[int] = []

    def act(self, action: int) -> int:
        self.acted.append(action)
        reward: int = self.ale.act(action)
        return reward

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ale, name)


def acted(sticky: float) -> tuple[np.ndarray, np.ndarray]:
    """The actions chosen, `[400]`, and executed, `[400, 4]`."""
    pool = AtariPool("Pong", 1, sticky_actions=sticky, workers=0)
    pool.reset(seed=1)
    (game,) = games(pool)
    spy: Any = Spy(game._ale)
    game._ale = spy
    chosen = np.arange(400) % 3 + 1
    for action in chosen:
        pool.step(np.array([action]))
    return np.array(game._actions)[chosen], np.array(spy.acted).reshape(400, 4)


def test_sticky_actions_stick_as_often_as_they_should() -> None:
    chosen, executed = acted(0.25)
    stuck = trials = 0
    last = executed[0, -1]
    for choice, frames in zip(chosen[1:], executed[1:], strict=True):
        for frame in frames:
            assert frame in (choice, last)
            if choice != last:
                trials += 1
                stuck += frame == last
            last = frame
    # Each trial is independent of the others: a binomial count, within four standard deviations.
    assert trials > 500
    assert abs(stuck - 0.25 * trials) < 4 * np.sqrt(0.25 * 0.75 * trials)
    assert_array_equal(acted(0.25)[1], executed)


def test_without_sticky_actions_the_chosen_one_is_always_executed() -> None:
    chosen, executed = acted(0.0)
    assert_array_equal(executed, np.repeat(chosen[:, None], 4, 1))


def test_sticky_actions_change_the_games(breakout: AtariPool) -> None:
    breakout.reset(seed=1)
    sticky = AtariPool("Breakout", 1, sticky_actions=0.25, workers=0)
    sticky.reset(seed=1)
    chosen = moves(breakout, 60)
    theirs = np.stack([breakout.step(move)[0][0] for move in chosen])
    ours = np.stack([sticky.step(move[:1])[0][0] for move in chosen])
    assert not np.array_equal(ours, theirs)
    sticky.reset(seed=1)
    assert_array_equal(np.stack([sticky.step(move[:1])[0][0] for move in chosen]), ours)


# Where episodes end


def test_a_game_is_cut_off_after_so_many_frames() -> None:
    pool = AtariPool("Pong", 2, max_frames=200, workers=0)
    _, infos = pool.reset(seed=1)
    noops, steps, cuts = infos["noops"], np.zeros(2, int), 0
    for move in moves(pool, 150):
        _, _, terminated, truncated, infos = pool.step(move)
        steps += 1
        # The two steps around FIRE last eight frames.
        expected = -(-(200 - 8 - noops) // 4)
        assert_array_equal(truncated, steps == expected)
        assert not terminated.any()
        for n in np.flatnonzero(truncated):
            cuts += 1
            assert infos["_final_obs"][n]
            assert infos["_episode"][n]
            assert infos["episode"]["l"][n] == steps[n] + 2
            steps[n], noops[n] = 0, infos["noops"][n]
    assert cuts >= 4


@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_after_a_cut_comes_the_first_observation_of_a_new_game(sticky: float) -> None:
    pool = AtariPool(
        "Seaquest", 2, max_frames=100, noop_max=1, sticky_actions=sticky, workers=0
    )  # Seaquest moves from the first frame on, even without FIRE
    first, _ = pool.reset(seed=1)
    for _ in range(2):
        for move in moves(pool, 40):
            observations, _, _, truncated, _ = pool.step(move)
            if truncated.any():
                break
        assert truncated.all()
        if not sticky:
            assert_array_equal(observations, first)
        for frame in range(4):
            assert_array_equal(observations[:, frame], observations[:, 0])


def test_without_episodic_life_only_the_game_ends_an_episode() -> None:
    pool = AtariPool("Breakout", 2, episodic_life=False, workers=0)
    _, infos = pool.reset(seed=1)
    lives, lost, ends = infos["lives"], 0, 0
    for move in moves(pool, 300):
        _, _, terminated, truncated, infos = pool.step(move)
        assert not truncated.any()
        assert_array_equal(terminated, infos.get("_episode", np.zeros(2, bool)))
        lost += ((infos["lives"] < lives) & ~terminated).sum()
        ends += terminated.sum()
        lives = infos["lives"]
    assert ends >= 1
    assert lost >= 4


# Wrong use


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros(2, int),
        np.zeros(4, int),
        np.zeros((3, 1), int),
        np.array(0),
        np.zeros(3),
        np.zeros(3, bool),
        np.array([0, 4, 0]),
        np.array([0, -1, 0]),
        np.array([0, 2**63, 0], np.uint64),
        np.array(["0", "1", "2"]),
        [[0], [1], [2, 3]][:1],
        None,
    ],
    ids=repr,
)
def test_actions_that_mean_nothing_are_refused(actions: Any, breakout: AtariPool) -> None:
    breakout.reset(seed=1)
    with pytest.raises(ValueError, match="actions must be 3 whole numbers from 0 to 3, got"):
        breakout.step(actions)


def test_whole_numbers_of_any_kind_are_actions(breakout: AtariPool) -> None:
    played = []
    for kind in (np.int64, np.int32, np.uint8, list):
        breakout.reset(seed=1)
        move: Any = [1, 2, 3] if kind is list else np.array([1, 2, 3], kind)
        played.append([outcome(*breakout.step(move)) for _ in range(3)])
    for other in played[1:]:
        assert_same(other, played[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"deliver": "frames"}, "deliver must be 'stacks' or 'screens', got 'frames'"),
        ({"sticky_actions": 1.0}, "sticky_actions must be in"),
        ({"sticky_actions": -0.1}, "sticky_actions must be in"),
        ({"sticky_actions": float("nan")}, "sticky_actions must be in"),
        ({"noop_max": -1}, "noop_max must be at least 0, got -1"),
        ({"max_frames": 0}, "max_frames must be at least 46, got 0"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"start_method": "thread"}, "start_method must be 'fork' or 'spawn', got 'thread'"),
        ({"game": "Brekout"}, "did you mean Breakout"),
        ({"game": ""}, "there is no Atari game ''"),
    ],
)
def test_impossible_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    options = {"game": "Breakout", "num_envs": 1, "workers": 0, **wrong}
    with pytest.raises(ValueError, match=message):
        AtariPool(**options)


def test_there_is_no_step_before_a_reset() -> None:
    pool = AtariPool("Pong", 1, workers=0)
    with pytest.raises(RuntimeError, match="call reset first"):
        pool.step(np.array([0]))


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_played_after_closing(workers: int) -> None:
    pool = AtariPool("Pong", 1, workers=workers)
    pool.reset(seed=1)
    pool.close()
    pool.close()
    assert pool.closed
    for wrong in (lambda: pool.step(np.array([0])), pool.reset, pool.capture, pool.render):
        with pytest.raises(RuntimeError, match="closed"):
            wrong()


def test_a_missing_emulator_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    names._installed.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r"`pip install \"relval\[atari\]\"`"):
        AtariPool("Pong", 1)
    names._installed.cache_clear()  # or it would stay missing


# A step in two halves


@pytest.fixture(scope="module", params=[0, 2])
def pair(request: pytest.FixtureRequest) -> Iterator[AtariPool]:
    """Two games, in this process or in two others, for tests that reset them first."""
    pool = AtariPool("Breakout", 2, workers=request.param)
    yield pool
    pool.close()


def test_sending_and_receiving_is_a_step(pair: AtariPool) -> None:
    pair.reset(seed=1)
    expected = play(pair, 40)
    pair.reset(seed=1)
    halves = []
    for move in moves(pair, 40):
        pair.send(move)
        move[:] = 0  # what was sent is sent
        halves.append(outcome(*pair.receive()))
    assert_same(halves, expected)


def test_groups_step_by_themselves_to_the_same_end(pair: AtariPool) -> None:
    pair.reset(seed=1)
    chosen = moves(pair, 40)
    expected = play(pair, 40)
    pair.reset(seed=1)
    groups = pair.groups(5)
    assert [group.envs for group in groups] == (
        [slice(0, 1), slice(1, 2)] if pair.worker_pids else [slice(0, 2)]
    )
    for group in reversed(groups):  # one is done when the other begins
        for step, move in zip(expected, chosen, strict=True):
            group.send(move[group.envs])
            latest = time.monotonic() + 30
            while not group.ready():
                assert time.monotonic() < latest
            board, envs = pair.board, group.envs
            assert_array_equal(board.observations[envs], step["observations"][envs])
            for name in ("terminated", "lives"):
                assert_array_equal(board.results[name][envs], step[name][envs])


@pytest.mark.parametrize(
    ("cores", "deliver", "workers", "groups"),
    [
        *((4, "stacks", 3, 3), (3, "stacks", 2, 1), (1, "stacks", 0, 1)),
        *((3, "screens", 3, 3), (1, "screens", 3, 3)),
    ],
)
def test_all_cores_are_used_by_default(
    cores: int, deliver: Any, workers: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no core is left for this process, it emulates too, if it has nothing else to do.

    Screens come from a worker for each game: one is played while others wait for their actions.
    """
    monkeypatch.setattr(pool_module, "cores", lambda: cores)
    with closing(AtariPool("Pong", 3, deliver=deliver)) as pool:
        assert len(pool.worker_pids) == workers
        assert len(pool.groups(5)) == groups


def test_a_capture_finishes_the_step_first(pair: AtariPool) -> None:
    pair.reset(seed=1)
    pair.step(np.array([1, 2]))
    expected = pair.capture()
    pair.reset(seed=1)
    pair.send(np.array([1, 2]))
    assert pair.capture() == expected
    pair.receive()
    assert pair.capture() == expected


def test_a_reset_finishes_the_step_first(pair: AtariPool) -> None:
    pair.reset(seed=1)
    state = pair.capture()
    expected = play(pair, 20)
    pair.send(np.array([3, 3]))
    pair.reset(seed=1)
    pair.receive()  # nothing more to play
    assert pair.capture() == state
    assert_same(play(pair, 20), expected)


def test_a_restore_finishes_the_step_first(pair: AtariPool) -> None:
    pair.reset(seed=1)
    state = pair.capture()
    expected = play(pair, 20)
    pair.send(np.array([3, 3]))
    pair.restore(state)
    assert_same(play(pair, 20), expected)


def test_a_second_step_is_begun_after_the_first_or_refused(pair: AtariPool) -> None:
    """But never in its place, or with its actions changed under way."""
    sent = moves(pair, 30)
    pair.reset(seed=1)
    for move in sent:
        pair.step(move)
    expected = pair.capture()
    pair.reset(seed=1)
    try:
        for move in sent:
            pair.send(move)
    except RuntimeError:
        return
    assert pair.capture() == expected


# What it shows and what it keeps


def test_stacks_are_not_overwritten_by_the_next_step(breakout: AtariPool) -> None:
    first, infos = breakout.reset(seed=1)
    kept = first.copy()
    kept_infos = {name: array.copy() for name, array in infos.items()}
    for move in moves(breakout, 40):
        breakout.step(move)
    assert_array_equal(first, kept)
    assert_same([infos], [kept_infos])


def test_what_a_step_returns_is_not_overwritten_by_the_next() -> None:
    pool = AtariPool("Breakout", 2, workers=0, deliver="screens")
    pool.reset(seed=1)
    kept = []
    for move in moves(pool, 60):
        result = outcome(*pool.step(move))
        kept.append((result, {name: array.copy() for name, array in result.items()}))
    assert_same([result for result, _ in kept], [copy for _, copy in kept])


def greys(pool: AtariPool) -> list[np.ndarray]:
    """The screens that are shown, in grey levels, as far as a mean of colours tells."""
    return [picture.astype(float) @ [0.2989, 0.587, 0.114] for picture in pool.render()]


def test_the_screens_are_shown_in_colour() -> None:
    pool = AtariPool("Seaquest", 2, workers=2, deliver="screens", render_mode="rgb_array")
    observations, _ = pool.reset(seed=1)
    for move in moves(pool, 20):
        observations, *_ = pool.step(move)
    pictures = pool.render()
    assert len(pictures) == 2
    for picture, grey, screens in zip(pictures, greys(pool), observations, strict=True):
        assert picture.shape == (210, 160, 3)
        assert picture.dtype == np.uint8
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
        assert np.abs(grey - pool.grey[screens[1]]).max() < 2
    pool.close()


def test_the_state_that_was_gone_to_is_shown_and_not_the_one_before(pair: AtariPool) -> None:
    pair.reset(seed=1)
    first = pair.render()
    expected = play(pair, 30)
    saved = json.dumps(pair.capture())
    last = pair.render()
    pair.restore(json.loads(saved))
    back = pair.render()
    pair.reset(seed=1)
    again = pair.render()
    pair.restore(json.loads(saved))
    for n, picture in enumerate(pair.render()):
        assert_array_equal(again[n], first[n])
        assert not np.array_equal(again[n], last[n])
        assert_array_equal(picture, back[n])
        assert not np.array_equal(picture, again[n])
    pair.reset(seed=1)
    assert_same(play(pair, 30), expected)  # to look changes nothing
