"""From screens to frames and stacks, in NumPy and in PyTorch."""

from contextlib import closing
from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch
from ale_py import ALEInterface, roms
from numpy.testing import assert_array_equal

from relval.envs.atari import AtariPool, games, tensors
from relval.envs.atari import game as game_module
from relval.envs.atari import screens as screens_module
from relval.envs.atari.game import Rules, inspect
from relval.envs.atari.names import rom
from relval.envs.atari.screens import IDENTITY, NTSC, SIZE, WIDTH, FrameMaker, area_weights

HEIGHTS = {210: "Pong", 214: "Carnival", 220: "Pooyan", 230: "JourneyEscape", 250: "Pacman"}
"""All there are, each with a game that has it."""


@pytest.fixture(params=["compiled", "NumPy"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are made by compiled code, or by NumPy."""
    if request.param == "NumPy":
        monkeypatch.setattr(screens_module, "_frames", None)
    elif screens_module._frames is None:
        pytest.skip("relval was installed without a compiler")


def console(game: str) -> ALEInterface:
    ale = ALEInterface()
    path = roms.get_rom_path(rom(game))
    assert path is not None
    ale.loadROM(path)
    return ale


def play(ale: ALEInterface, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Screens of a random game, as colours and as ALE's grey, `[frames, H, 160]`."""
    legal = ale.getMinimalActionSet()
    moves = np.random.default_rng(0).integers(len(legal), size=frames).repeat(5)
    colours, greys = [], []
    for move in moves[:frames]:
        if ale.game_over():
            ale.reset_game()
        ale.act(legal[move])
        colours.append(ale.getScreen())
        greys.append(ale.getScreenGrayscale())
    return np.stack(colours), np.stack(greys)


def noise(height: int, screens: int, levels: int = 256) -> np.ndarray:
    """Random screens; with few levels, averages often lie half way between two."""
    random = np.random.default_rng(levels)
    return random.integers(levels, size=(screens, height, WIDTH), dtype=np.uint8)


def opencv(grey: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.resize(grey, (SIZE, SIZE), interpolation=cv2.INTER_AREA))


def halfway(grey: np.ndarray) -> np.ndarray:
    """Where an average lies exactly half way between two grey levels."""
    rows, down = area_weights(grey.shape[0])
    columns, across = area_weights(grey.shape[1])
    sums = rows @ grey.astype(np.int64) @ columns.T
    middle: np.ndarray = 2 * sums % (2 * down * across) == down * across
    return middle


@pytest.mark.parametrize("size", [WIDTH, *HEIGHTS])
def test_the_weights_of_an_average_are_the_areas_that_pixels_share(size: int) -> None:
    weights, denominator = area_weights(size)
    assert weights.shape == (SIZE, size)
    width = Fraction(size, SIZE)
    for place in range(SIZE):
        begin, end = place * width, (place + 1) * width
        for pixel in range(size):
            share = max(min(end, Fraction(pixel + 1)) - max(begin, Fraction(pixel)), Fraction(0))
            assert Fraction(int(weights[place, pixel]), denominator) == share / width


@pytest.mark.usefixtures("make")
@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("levels", [2, 3, 5, 16, 256])
def test_random_screens_shrink_as_opencv_shrinks_them(height: int, levels: int) -> None:
    screens = noise(height, 40, levels)
    frames = FrameMaker(height, IDENTITY, 40)(np.stack([screens, screens]))
    halves = 0
    for screen, frame in zip(screens, frames, strict=True):
        assert_array_equal(frame, opencv(screen))
        halves += halfway(screen).sum()
    assert halves > 0


@pytest.mark.usefixtures("make")
@pytest.mark.parametrize("height", HEIGHTS)
def test_a_games_screens_shrink_as_opencv_shrinks_them(height: int) -> None:
    _, greys = play(console(HEIGHTS[height]), 300)
    assert greys.shape[1] == height
    make_frame = FrameMaker(height, IDENTITY)
    for screen in greys:
        assert_array_equal(make_frame(np.stack([screen, screen])[:, None])[0], opencv(screen))
    assert len({screen.tobytes() for screen in greys}) > 50


@pytest.mark.usefixtures("make")
@pytest.mark.parametrize("height", HEIGHTS)
def test_frames_follow_screens_that_change_in_places(height: int) -> None:
    random = np.random.default_rng(height)
    count = 3
    screens = np.zeros((2, count, height, WIDTH), np.uint8)
    make_frames = FrameMaker(height, NTSC, count)
    for _ in range(60):
        for game in range(count):
            which, row, column = random.integers([2, height, WIDTH])
            screens[which, game, row, column] = random.integers(256)
            if random.random() < 0.2:  # two screens that differed agree
                screens[1 - which, game] = screens[which, game]
        frames = make_frames(screens)
        for game in range(count):
            assert_array_equal(frames[game], opencv(NTSC[screens[:, game]].max(0)))


def test_compiled_code_refuses_arrays_that_do_not_fit() -> None:
    if screens_module._frames is None:
        pytest.skip("relval was installed without a compiler")
    screen = np.zeros((2, 210, WIDTH), np.uint8)
    seen = np.zeros((2, 2, 210, WIDTH), np.uint8)
    frames = np.zeros((2, SIZE, SIZE), np.uint8)
    right = [screen, screen, IDENTITY, seen, frames]
    screens_module._frames.update_frames(*right)
    tall = np.zeros((2, 300, WIDTH), np.uint8)
    for place, wrong in [
        *((0, screen[:1]), (1, screen[:1]), (2, IDENTITY[:255]), (3, seen[:1])),
        *((4, frames[:1, :80]), (4, frames[:0])),
    ]:
        with pytest.raises(ValueError, match="expected screens"):
            screens_module._frames.update_frames(
                *(wrong if n == place else array for n, array in enumerate(right))
            )
    with pytest.raises(ValueError, match="expected screens"):
        screens_module._frames.update_frames(tall, tall, IDENTITY, np.stack([tall, tall]), frames)


@pytest.mark.usefixtures("make")
@pytest.mark.parametrize("height", HEIGHTS)
def test_a_frame_is_made_of_the_brightest_of_two_screens(height: int) -> None:
    make_frame = FrameMaker(height, NTSC)
    for seed in range(20):
        random = np.random.default_rng(seed)
        one = random.integers(256, size=(height, WIDTH), dtype=np.uint8)
        # From screens that agree throughout to ones that agree nowhere.
        changed = random.random(one.shape) < seed / 19
        other = np.where(changed, random.integers(256, size=one.shape, dtype=np.uint8), one)
        for screens in (np.stack([one, other]), np.stack([other, one])):
            before = screens.copy()
            brightest = np.maximum(NTSC[one], NTSC[other])
            assert_array_equal(make_frame.brightest(screens[:, None])[0], brightest)
            assert_array_equal(make_frame(screens[:, None])[0], opencv(brightest))
            assert_array_equal(screens, before)


def test_the_grey_of_colours_is_the_consoles_in_every_ntsc_game(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To load a game takes long: play it on the console on which it was inspected.
    insert = game_module._insert
    consoles = []

    def watched(game: str, rules: Rules) -> ALEInterface:
        consoles.append(insert(game, rules))
        return consoles[-1]

    monkeypatch.setattr(game_module, "_insert", watched)
    used = np.zeros(256, dtype=bool)
    for game in games():
        cartridge = inspect(game, Rules())
        assert cartridge.ntsc == (cartridge.height != 250)
        colours, greys = play(consoles.pop(), 60)
        if cartridge.ntsc:
            assert_array_equal(NTSC[colours], greys, err_msg=game)
            used[colours] = True
        else:
            assert not np.array_equal(NTSC[colours], greys)
    assert used.sum() > 100


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("levels", [3, 256])
def test_tensors_make_the_same_frames_but_for_averages_half_way_between(
    height: int, levels: int
) -> None:
    screens = noise(height, 60, levels).reshape(30, 2, height, WIDTH)
    frames = tensors.FrameMaker(height, torch.from_numpy(IDENTITY), "cpu")(
        torch.from_numpy(screens)
    )
    assert frames.dtype == torch.uint8
    make_frame = FrameMaker(height, IDENTITY)
    halves = 0
    for pair, frame in zip(screens, frames.numpy(), strict=True):
        middle = halfway(pair.max(0))
        apart = np.abs(frame.astype(int) - make_frame(pair[:, None])[0])
        assert not apart[~middle].any()
        assert apart.max() <= 1
        halves += middle.sum()
    assert halves > 0


@pytest.mark.parametrize("game", ["Breakout", "Pacman"])
def test_tensors_make_the_frames_of_games(game: str) -> None:
    with closing(AtariPool(game, 1, workers=0, deliver="screens")) as pool:
        screens, _ = pool.reset(seed=1)
        height = screens.shape[2]
        make_frame = FrameMaker(height, pool.grey)
        make_frames = tensors.FrameMaker(height, torch.from_numpy(pool.grey), "cpu")
        random = np.random.default_rng(0)
        for _ in range(100):
            screens = pool.step(random.integers(len(pool.action_meanings), size=1))[0]
            frame = make_frames(torch.from_numpy(screens))[0].numpy()
            apart = np.abs(frame.astype(int) - make_frame(screens[0][:, None])[0])
            assert not apart[~halfway(make_frame.brightest(screens[0][:, None])[0])].any()
            assert apart.max() <= 1


class Rollout:
    """What two pools, one of stacks and one of screens, deliver for the same actions."""

    def __init__(self, game: str, steps: int, envs: int) -> None:
        with (
            closing(AtariPool(game, envs, workers=0)) as stacks,
            closing(AtariPool(game, envs, workers=0, deliver="screens")) as screens,
        ):
            observed, _ = stacks.reset(seed=1)
            pairs, _ = screens.reset(seed=1)
            make_frames = tensors.FrameMaker(pairs.shape[2], torch.from_numpy(screens.grey), "cpu")
            observations = [observed]
            frames = [make_frames(torch.from_numpy(pairs))]
            first = [np.ones(envs, dtype=bool)]
            self.last: list[tuple[np.ndarray, np.ndarray]] = []
            random = np.random.default_rng(0)
            for _ in range(steps):
                actions = random.integers(len(stacks.action_meanings), size=envs)
                observed, *_, infos = stacks.step(actions)
                pairs, _, terminated, truncated, other_infos = screens.step(actions)
                observations.append(observed)
                frames.append(make_frames(torch.from_numpy(pairs)))
                first.append(terminated | truncated)
                for n in first[-1].nonzero()[0]:
                    last = torch.from_numpy(other_infos["final_obs"][n][None])
                    self.last.append((make_frames(last)[0].numpy(), infos["final_obs"][n][-1]))
        self.observations = torch.from_numpy(np.stack(observations))
        self.frames = torch.stack(frames)
        self.first = torch.from_numpy(np.stack(first))

    def pushed(self) -> torch.Tensor:
        """The stacks, each from the one before."""
        stacks = torch.zeros_like(self.observations)
        stack = torch.zeros_like(self.observations[0])
        for t, (frames, first) in enumerate(zip(self.frames, self.first, strict=True)):
            stacks[t] = stack = tensors.push(stack, frames, first)
        return stacks


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    rollout = Rollout("Breakout", 200, 3)
    assert (rollout.first.sum(0) >= 4).all()
    return rollout


def test_stacks_of_frames_that_are_pushed_are_the_pools(rollout: Rollout) -> None:
    assert_close(rollout.pushed(), rollout.observations)


def test_the_last_screens_of_an_episode_are_those_of_its_last_stack(rollout: Rollout) -> None:
    assert len(rollout.last) >= 9
    for frame, expected in rollout.last:
        assert_close(torch.from_numpy(frame), torch.from_numpy(expected))


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Within one grey level: averages half way between two may be rounded either way."""
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype == torch.uint8
    apart = (ours.int() - theirs.int()).abs()
    assert apart.max() <= 1
    assert (apart > 0).float().mean() < 0.01
