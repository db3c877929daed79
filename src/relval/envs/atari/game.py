"""One game: what a step means.

The meaning is that of a chain of public wrappers: Gymnasium's `AtariPreprocessing` on an
environment that skips no frames, then Stable-Baselines3's `EpisodicLifeEnv` and `FireResetEnv`.
"""

import base64
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relval._names import not_installed
from relval.envs import random_state
from relval.envs.atari.names import rom
from relval.envs.atari.screens import IDENTITY, NTSC, WIDTH

if TYPE_CHECKING:
    from ale_py import ALEInterface, ALEState

SKIP = 4
"""Emulated frames that one step lasts."""
_NOOP, _FIRE, _AFTER_FIRE = 0, 1, 2
_WARM_UP = 30
"""Frames after which a console that was switched on is as good as any."""


@dataclass(frozen=True)
class Rules:
    """What is free to choose about a game."""

    sticky_actions: float = 0.0
    """Probability, at each emulated frame, that the last action is repeated."""
    full_actions: bool = False
    """Offer all 18 actions, in place of those that the game knows."""
    episodic_life: bool = True
    """Let the loss of a life end an episode."""
    fire_reset: bool = True
    """Begin episodes with FIRE, in games that know it."""
    noop_max: int = 30
    """A game begins with 1 to this many frames without action."""
    max_frames: int = 108_000
    """A game is cut off after this many emulated frames."""


@dataclass(frozen=True)
class Cartridge:
    """What is known of a game before it is played."""

    game: str
    height: int
    """Of its screen."""
    actions: tuple[str, ...]
    """What each action means."""
    ntsc: bool
    """Whether its colours are the NTSC console's, so that their grey is known."""

    @property
    def grey(self) -> np.ndarray:
        """The grey of each value of a screen, `[256]`."""
        return NTSC if self.ntsc else IDENTITY


def inspect(game: str, rules: Rules) -> Cartridge:
    """Looks at a game's cartridge."""
    ale = _insert(game, rules)
    height, width = ale.getScreenDims()
    assert width == WIDTH
    ale.act(_NOOP)
    ntsc = bool((NTSC[ale.getScreen()] == ale.getScreenGrayscale()).all())
    return Cartridge(game, height, tuple(a.name for a in _actions(ale, rules)), ntsc)


@dataclass(frozen=True)
class Position:
    """A moment of a game."""

    emulator: "ALEState"
    screens: np.ndarray
    lives: int
    score: float
    length: int
    last_action: int
    noops: int


class Game:
    """A game with all its lives, and the episodes in it.

    Args:
      cartridge: The game.
      rules: How it is played.
      screens: Memory for the two last screens of a step, `[2, H, 160]`: the console's colours, or
        their grey where those are not NTSC.
    """

    def __init__(self, cartridge: Cartridge, rules: Rules, screens: np.ndarray) -> None:
        self.rules = rules
        self.screens = screens
        self._ale = _insert(cartridge.game, rules)
        self._look = self._ale.getScreen if cartridge.ntsc else self._ale.getScreenGrayscale
        self._actions = [action.value for action in _actions(self._ale, rules)]
        self._fires = rules.fire_reset and cartridge.actions[1:2] == ("FIRE",)
        self.random = np.random.default_rng()
        self.lives = 0
        self.score = 0.0
        """Raw reward of this game so far, over all its lives."""
        self.length = 0
        """Steps of this game so far."""
        self.noops = 0
        """Frames without action that this game began with."""
        self.finished: tuple[float, int] | None = None
        """Score and length of the game that ended in the last step."""
        self._over = True
        self._drawn = False
        self._last_action = _NOOP
        self.starts = self._replay_starts()

    def begin(self) -> None:
        """Starts a new game."""
        self.finished = None
        self._over = True
        self.next_episode()

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Plays an action: its raw reward, and whether the episode terminated, was truncated.

        `next_episode` must follow the end of an episode.
        """
        self.finished = None
        return self._step(self._actions[action])

    def next_episode(self) -> None:
        """Goes on after a life was lost, or begins a new game when this one is over.

        As `FireResetEnv.reset` on `EpisodicLifeEnv.reset`; a game that ends meanwhile is followed
        by another.
        """
        if not self._over:
            self._wait()
        if not self._over:
            self._fire()
        while self._over:
            most = self.rules.noop_max
            self.go_to(self.starts[int(self.random.integers(1, most + 1)) if most else 0])
            if self.rules.sticky_actions:
                self._fire()

    def position(self) -> Position:
        """This moment, to come back to."""
        return Position(
            self._ale.cloneState(),
            self.screens.copy(),
            self.lives,
            self.score,
            self.length,
            self._last_action,
            self.noops,
        )

    def go_to(self, position: Position) -> None:
        """Comes back to a moment."""
        self._ale.restoreState(position.emulator)
        self.screens[:] = position.screens
        self.lives, self.score, self.length = position.lives, position.score, position.length
        self._last_action, self.noops = position.last_action, position.noops
        self._over = False
        self._drawn = False

    def capture(self) -> dict[str, Any]:
        """The state of the game, as JSON holds it."""
        position = self.position()
        return {
            **vars(position),
            "emulator": pack(position.emulator.serialize()),
            "screens": pack(position.screens.tobytes()),
            "random": random_state.capture(self.random),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Puts the game back into a captured state."""
        from ale_py import ALEState

        state = dict(state)
        random = state.pop("random")
        try:
            emulator = ALEState(unpack(state["emulator"]))
            screens = np.frombuffer(unpack(state["screens"]), np.uint8).reshape(self.screens.shape)
            self.go_to(Position(**{**state, "emulator": emulator, "screens": screens}))
        except (SystemError, ValueError, zlib.error) as error:
            raise ValueError(
                "the saved state of an Atari game cannot be read; was it saved by another version "
                "of ale-py?"
            ) from error
        random_state.restore(self.random, random)

    def colours(self) -> np.ndarray:
        """The screen in colour, `[H, 160, 3]`.

        At a position that was gone to, where the emulator has drawn nothing yet, it is the screen
        of the frame after.
        """
        ale = self._ale
        if self._drawn:
            return np.asarray(ale.getScreenRGB())
        here = ale.cloneState()
        ale.act(_NOOP)
        picture = np.asarray(ale.getScreenRGB())
        ale.restoreState(here)
        return picture

    def _step(self, action: int) -> tuple[float, bool, bool]:
        """As `EpisodicLifeEnv.step`: a life less ends an episode, except the last one.

        The game itself says when it is over: in some, the last life is gone for a while before.
        """
        reward, over, cut = self._play(action)
        lives = self._ale.lives()
        lost = self.rules.episodic_life and 0 < lives < self.lives
        self.lives = lives
        return reward, over or lost, cut

    def _wait(self) -> None:
        """A step without action."""
        self._play(_NOOP)
        self.lives = self._ale.lives()

    def _fire(self) -> None:
        """Some games wait for FIRE: there the first two actions of an episode are given."""
        if not self._fires:
            return
        for action in (_FIRE, _AFTER_FIRE):
            _, lost, _ = self._step(self._actions[action])
            if lost and not self._over:
                self._wait()
            if self._over:
                return

    def _play(self, action: int) -> tuple[float, bool, bool]:
        """Four frames: reward, whether the game is over, and whether it was cut off.

        The last two screens stay, the later one in either place. A game that ends within the four
        leaves the last two it had, twice the same if it had but one.
        """
        ale, screens, sticky = self._ale, self.screens, self.rules.sticky_actions
        reward, over, cut = 0, False, False
        for frame in range(SKIP):
            if not sticky or self.random.random() >= sticky:
                self._last_action = action
            reward += ale.act(self._last_action)
            self._look(screens[frame % 2])
            if ale.game_over():
                cut = ale.game_truncated()
                over = ale.game_over(with_truncation=False)
                if frame == 0:
                    screens[1] = screens[0]
                break
        self._drawn = True
        self.score += reward
        self.length += 1
        self._over = over or cut
        if self._over:
            self.finished = self.score, self.length
        return float(reward), over, cut

    def _replay_starts(self) -> dict[int, Position]:
        """The positions in which games begin, by the frames without action that led there.

        FIRE is included, except under sticky actions, where its effect is random. Each console
        replays them for itself, and plays a little before it first goes to one: a console that has
        drawn next to nothing keeps some of its blankness, in Qbert for example.
        """
        most, fires = self.rules.noop_max, not self.rules.sticky_actions
        starts: dict[int, Position] = {}
        self._ale.reset_game()
        for noops in range(1, most + 1) if most else [0]:
            if noops:
                self._ale.act(_NOOP)
            self._look(self.screens[0])
            self.screens[1] = self.screens[0]
            self.lives, self.score, self.length = self._ale.lives(), 0.0, 0
            self._last_action, self.noops, self._over = _NOOP, noops, False
            if fires and not most:
                self._fire()
            starts[noops] = self.position()
        for _ in range(_WARM_UP):
            self._ale.act(_NOOP)
        if fires and most:
            for noops, switched_on in starts.items():
                self.go_to(switched_on)
                self._fire()
                starts[noops] = self.position()
        return starts


def pack(content: bytes) -> str:
    """Bytes as text that JSON holds."""
    return base64.b64encode(zlib.compress(content, 1)).decode("ascii")


def unpack(text: str) -> bytes:
    """The bytes that `pack` took."""
    return zlib.decompress(base64.b64decode(text))


def _insert(game: str, rules: Rules) -> "ALEInterface":
    """A console with a game in it, just switched on."""
    try:
        from ale_py import ALEInterface, LoggerMode, roms
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(not_installed("ale-py", "atari")) from error
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    # Sticky actions are drawn here, so that the console has nothing random in it.
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("max_num_frames_per_episode", rules.max_frames)
    path = roms.get_rom_path(rom(game))
    assert path is not None
    ale.loadROM(path)
    return ale


def _actions(ale: "ALEInterface", rules: Rules) -> list[Any]:
    return list(ale.getLegalActionSet() if rules.full_actions else ale.getMinimalActionSet())
