"""The pool plays as a chain of public wrappers does, bit for bit."""

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest
from ale_py import Action, ALEInterface, roms
from numpy.testing import assert_array_equal

from relval.envs.atari import AtariPool
from relval.envs.atari.game import Game, Rules, inspect
from relval.envs.atari.names import rom
from relval.envs.atari.screens import SIZE, WIDTH, FrameMaker
from tests.envs.atari.reference import Reference


@dataclass
class Seen:
    """What happened while pool and reference played the same."""

    fire: bool
    """Whether FIRE is among the actions."""
    lives_lost: int = 0
    """Episodes that ended while the game went on."""
    lifeless: int = 0
    """Steps after which no life was left, although the game went on."""
    truncated: int = 0
    between: int = 0
    """Games that ended between two episodes."""
    scores: list[float] = field(default_factory=list)
    """Of the games that finished."""


def play(
    game: str, *, steps: int, envs: int = 1, workers: int = 0, seed: int = 1, **rules: Any
) -> Seen:
    """Plays random actions in pool and reference, and compares all there is."""
    references = [
        Reference(game, child, **rules) for child in np.random.SeedSequence(seed).spawn(envs)
    ]
    random = np.random.default_rng(seed)
    seen = Seen("FIRE" in references[0].actions)
    with closing(AtariPool(game, envs, workers=workers, **rules)) as pool:
        assert list(pool.action_meanings) == references[0].actions
        ours, infos = pool.reset(seed=seed)
        for n, reference in enumerate(references):
            assert_array_equal(ours[n], reference.reset())
            check_state(infos, n, reference)
        for _ in range(steps):
            actions = random.integers(len(pool.action_meanings), size=envs)
            ours, rewards, terminated, truncated, infos = pool.step(actions)
            for n, reference in enumerate(references):
                expected, reward, ended, cut = reference.step(int(actions[n]))
                assert infos["raw_reward"][n] == reward
                assert rewards[n] == np.sign(reward)
                assert (terminated[n], truncated[n]) == (ended, cut)
                assert ("final_obs" in infos and infos["_final_obs"][n]) == (ended or cut)
                if ended or cut:
                    # The newest frame is missing: the reference's may be a stale one.
                    assert_array_equal(infos["final_obs"][n][:-1], expected[:-1])
                    over = bool(reference.games.finished)
                    expected = reference.reset()
                    seen.lives_lost += not over
                    seen.between += len(reference.games.finished) - over
                else:
                    seen.lifeless += reference.lives == 0
                seen.truncated += cut
                assert_array_equal(ours[n], expected)
                check_state(infos, n, reference)
                check_score(infos, n, reference)
                seen.scores += [score for score, _ in reference.games.finished]
                reference.games.finished.clear()
    return seen


def check_state(infos: dict[str, Any], n: int, reference: Reference) -> None:
    assert infos["lives"][n] == reference.lives
    assert infos["noops"][n] == reference.draws.noops


def check_score(infos: dict[str, Any], n: int, reference: Reference) -> None:
    finished = reference.games.finished
    assert ("episode" in infos and infos["_episode"][n]) == bool(finished)
    if finished:
        [(score, length)] = finished
        assert infos["episode"]["r"][n] == score
        assert infos["episode"]["l"][n] == length


class Case(NamedTuple):
    game: str
    steps: int
    fire: bool
    lives: bool
    envs: int = 1
    workers: int = 0
    max_frames: int = 108_000
    negative: bool = False
    """Whether a game is lost with less than nothing."""
    lifeless: bool = False
    """Whether the last life is gone for a while before the game is over."""


WHOLE_GAMES = [
    Case("Breakout", 700, fire=True, lives=True, workers=1),
    Case("Frogger", 700, fire=False, lives=True, lifeless=True),
    Case("MontezumaRevenge", 2000, fire=True, lives=True),
    Case("MsPacman", 1100, fire=False, lives=True, workers=1),
    Case("Pacman", 900, fire=False, lives=True),
    Case("Pong", 2000, fire=True, lives=False, negative=True),
    Case("Qbert", 600, fire=True, lives=True, envs=2),
    Case("Seaquest", 1200, fire=True, lives=True),
    Case("SpaceInvaders", 600, fire=True, lives=True, envs=2, workers=1),
]
LONG_GAMES = [
    Case("Breakout", 600, fire=True, lives=True, max_frames=403),
    Case("Enduro", 850, fire=True, lives=False, max_frames=1602),
    Case("Freeway", 850, fire=False, lives=False, max_frames=1604),
    Case("JourneyEscape", 700, fire=False, lives=False, max_frames=1203, negative=True),
    Case("Krull", 1100, fire=True, lives=True, max_frames=2003),
    Case("KungFuMaster", 1100, fire=False, lives=True, max_frames=2002),
    Case("Tennis", 850, fire=True, lives=False, max_frames=1601, negative=True),
]


def play_case(case: Case) -> Seen:
    seen = play(
        case.game,
        steps=case.steps,
        envs=case.envs,
        workers=case.workers,
        max_frames=case.max_frames,
    )
    assert seen.fire == case.fire
    assert (seen.lives_lost > 0) == case.lives
    assert (min(seen.scores) < 0) == case.negative
    return seen


@pytest.mark.parametrize("case", WHOLE_GAMES, ids=lambda case: case.game)
def test_whole_games_are_those_of_the_reference(case: Case) -> None:
    seen = play_case(case)
    assert len(seen.scores) >= 2
    assert not seen.truncated
    assert (seen.lifeless > 0) == (case.lifeless or not case.lives)


@pytest.mark.parametrize("case", LONG_GAMES, ids=lambda case: case.game)
def test_games_that_are_cut_off_are_those_of_the_reference(case: Case) -> None:
    seen = play_case(case)
    assert seen.truncated >= 2


def test_with_all_actions_a_game_without_fire_of_its_own_is_that_of_the_reference() -> None:
    assert not play("MsPacman", steps=0).fire
    seen = play("MsPacman", steps=700, full_actions=True)
    assert seen.fire
    assert seen.lives_lost
    assert seen.scores


def test_without_episodic_life_only_games_end_as_those_of_the_reference() -> None:
    seen = play("Breakout", steps=600, episodic_life=False)
    assert not seen.lives_lost
    assert len(seen.scores) >= 2


def test_without_fire_an_episode_begins_as_that_of_the_reference() -> None:
    seen = play("Breakout", steps=600, fire_reset=False)
    assert seen.fire
    assert seen.lives_lost
    assert seen.scores


@pytest.mark.parametrize("game", ["Breakout", "MsPacman"])
def test_sticky_actions_are_those_of_a_reference_that_sticks_at_each_frame(game: str) -> None:
    seen = play(game, steps=550, sticky_actions=0.25)
    assert seen.lives_lost
    assert seen.scores


def test_the_last_action_of_a_game_does_not_stick_in_the_next() -> None:
    seen = play("Breakout", steps=300, sticky_actions=0.6, max_frames=103)
    assert seen.truncated >= 10


def first_loss(game: str, seed: int) -> tuple[int, int]:
    """Steps until a life is lost by the random actions of `play`, and frames until then."""
    random = np.random.default_rng(seed)
    [child] = np.random.SeedSequence(seed).spawn(1)
    reference = Reference(game, child)
    reference.reset()
    for step in range(1, 1000):
        _, _, ended, _ = reference.step(int(random.integers(len(reference.actions))))
        if ended:
            return step, reference.console.ale.getEpisodeFrameNumber()
    raise AssertionError("no life was lost")


def test_a_game_that_is_cut_off_right_after_a_lost_life_is_followed_by_another() -> None:
    steps, frames = first_loss("Breakout", seed=1)
    seen = play("Breakout", steps=steps + 10, seed=1, max_frames=frames + 2)
    assert seen.between == 1


@pytest.mark.parametrize(("late", "more"), [(6, 2), (10, 3)], ids=["FIRE", "the action after"])
def test_a_game_that_is_cut_off_on_fire_is_followed_by_another(late: int, more: int) -> None:
    steps, frames = first_loss("Breakout", seed=1)
    rules = Rules(max_frames=frames + late)
    random = np.random.default_rng(1)
    with closing(AtariPool("Breakout", 1, workers=0, max_frames=rules.max_frames)) as pool:
        pool.reset(seed=1)
        for _ in range(steps):
            ours, _, terminated, truncated, infos = pool.step(random.integers(4, size=1))
    assert terminated
    assert not truncated
    assert infos["_episode"] == [True]
    assert infos["episode"]["l"] == 2 + steps + more
    game = new_game("Breakout", rules)
    game.go_to(game.starts[infos["noops"][0]])
    frame = FrameMaker(game.screens.shape[1], pool.grey)(game.screens[:, None])[0]
    assert_array_equal(ours[0], np.broadcast_to(frame, ours[0].shape))


def new_game(game: str, rules: Rules) -> Game:
    cartridge = inspect(game, rules)
    return Game(cartridge, rules, np.empty((2, cartridge.height, WIDTH), np.uint8))


def switched_on(game: str) -> ALEInterface:
    """A console of its own, with nothing of ours around it."""
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    path = roms.get_rom_path(rom(game))
    assert path is not None
    ale.loadROM(path)
    ale.reset_game()
    return ale


def greys(game: str, noops: int, actions: list[int]) -> list[np.ndarray]:
    """The screens of a game without FIRE, frame by frame, from its first step to its end."""
    ale = switched_on(game)
    legal = ale.getMinimalActionSet()
    for _ in range(noops):
        ale.act(0)
    screens = []
    for action in actions:
        for _ in range(4):
            if not ale.game_over():
                ale.act(legal[action])
                screens.append(ale.getScreenGrayscale())
    return screens


def shrunk(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    brightest = np.maximum(one, other)
    return np.asarray(cv2.resize(brightest, (SIZE, SIZE), interpolation=cv2.INTER_AREA))


def check_last_frame(final: np.ndarray, screens: list[np.ndarray], frames: int) -> None:
    """The last frame of a game whose last step lasted some frames."""
    last = screens[-min(2, frames) :]
    assert_array_equal(final, shrunk(last[0], last[-1]))
    assert not np.array_equal(final, shrunk(*screens[-frames - 2 : -frames]))


@pytest.mark.parametrize("frames", [1, 2, 3, 4])
def test_a_game_that_is_cut_off_within_a_step_delivers_its_true_last_frame(frames: int) -> None:
    moves = np.random.default_rng(0).integers(9, size=(120, 1))
    [child] = np.random.SeedSequence(5).spawn(1)
    noops = int(np.random.default_rng(child).integers(1, 31))
    limit = noops + 4 * (len(moves) - 1) + frames
    with closing(AtariPool("MsPacman", 1, workers=0, max_frames=limit)) as pool:
        pool.reset(seed=5)
        for move in moves:
            *_, terminated, truncated, infos = pool.step(move)
    assert truncated
    assert not terminated
    screens = greys("MsPacman", noops, moves[:, 0].tolist())
    screens = screens[: len(screens) - 4 + frames]
    check_last_frame(infos["final_obs"][0][-1], screens, frames)


@pytest.mark.parametrize("game", ["Frogger", "Pacman"])
def test_a_game_that_is_over_within_a_step_delivers_its_true_last_frame(game: str) -> None:
    random = np.random.default_rng(0)
    seen = set()
    with closing(AtariPool(game, 1, workers=0, episodic_life=False)) as pool:
        _, infos = pool.reset(seed=5)
        for _ in range(4):
            noops, moves = infos["noops"][0], []
            while "final_obs" not in infos:
                moves.append(int(random.integers(len(pool.action_meanings))))
                *_, infos = pool.step(np.array(moves[-1:]))
            screens = greys(game, noops, moves)
            frames = len(screens) - 4 * (len(moves) - 1)
            check_last_frame(infos.pop("final_obs")[0][-1], screens, frames)
            seen.add(frames)
    assert seen - {4}


class Moment(NamedTuple):
    screens: np.ndarray
    ram: np.ndarray
    lives: int


def moment(game: Game) -> Moment:
    return Moment(game.screens.copy(), game._ale.getRAM().copy(), game.lives)


def replay(game: str, noops: int, moves: np.ndarray) -> list[Moment]:
    """The moments before each move, from the console's switching on, no-ops and FIRE."""
    ale = switched_on(game)
    legal = ale.getMinimalActionSet()
    for _ in range(noops):
        ale.act(0)
    screens = [ale.getScreen()] * 2
    first = [1, 2] if Action.FIRE in legal else []
    moments = []
    for move in [*first, *moves]:
        moments.append(Moment(np.stack(screens[-2:]), ale.getRAM().copy(), ale.lives()))
        for _ in range(4):
            ale.act(legal[move])
            screens.append(ale.getScreen())
    return moments[len(first) :]


def wander(game: Game, random: np.random.Generator, steps: int) -> None:
    """Plays something else."""
    game.begin()
    for _ in range(steps):
        _, terminated, truncated = game.step(int(random.integers(len(game._actions))))
        if terminated or truncated:
            game.next_episode()


@pytest.mark.parametrize("name", ["IceHockey", "KungFuMaster", "Qbert"])
def test_a_start_from_memory_is_what_a_console_comes_to_when_switched_on(name: str) -> None:
    random = np.random.default_rng(0)
    games = [new_game(name, Rules())]
    wander(games[0], random, 300)
    games.append(new_game(name, Rules()))  # has not played yet
    for noops in range(1, 31):
        moves = random.integers(len(games[0]._actions), size=25)
        moments = replay(name, noops, moves)
        for game in games:
            game.go_to(game.starts[noops])
            for move, expected in zip(moves, moments, strict=True):
                for ours, theirs in zip(moment(game), expected, strict=True):
                    assert_array_equal(ours, theirs)
                game.step(int(move))
            wander(game, random, 10)
