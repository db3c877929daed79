"""Some of a pool's games, and the memory through which they are played."""

import mmap
import os
from multiprocessing import reduction
from typing import Any

import numpy as np

from relval.envs.atari.game import Cartridge, Game, Rules
from relval.envs.atari.screens import SIZE, WIDTH, FrameMaker

STACK = 4
"""Frames that an observation holds."""
RESULT = np.dtype(
    [
        ("raw_reward", np.float64),
        ("lives", np.int64),
        ("noops", np.int64),
        ("score", np.float64),
        ("length", np.int64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("finished", np.bool_),
    ],
    align=True,
)
"""What comes of a step: if a whole game `finished` in it, `score` and `length` are that game's."""
_LINE = 64
"""Bytes to which everything is aligned."""


def copy_records(source: np.ndarray, target: np.ndarray) -> None:
    """Copies results, as bytes: NumPy copies records a field at a time."""
    target.view(np.uint8)[:] = source.view(np.uint8)


class Board:
    """What a pool and its players write and read, an entry for each environment.

    The memory is anonymous, so nothing of it outlives the processes that hold it. A board can be
    sent to a process that is being started.
    """

    def __init__(self, num_envs: int, height: int, *, stacked: bool) -> None:
        self._shape = num_envs, height, stacked
        size = self._lay_out(None)
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("relval-atari")
            os.ftruncate(self._file, size)
            self._lay_out(mmap.mmap(self._file, size))
        else:
            self._lay_out(mmap.mmap(-1, size))

    def _lay_out(self, memory: mmap.mmap | None) -> int:
        """Places the arrays in memory, one after the other, and returns the bytes needed."""
        num_envs, height, stacked = self._shape
        observation = (STACK, SIZE, SIZE) if stacked else (2, height, WIDTH)
        size = int(np.prod(observation))
        end = 0

        def place(dtype: Any, *shape: int) -> np.ndarray:
            nonlocal end
            begin = end
            needed = num_envs * int(np.prod(shape)) * np.dtype(dtype).itemsize
            end += -(-needed // _LINE) * _LINE
            if memory is None:
                return np.empty(0)
            return np.ndarray((num_envs, *shape), dtype, memory, begin)

        self.shown = place(np.uint8, size + _LINE)
        """`observations` and `ended`, side by side, so that one copy takes both."""
        self.final_observations = place(np.uint8, *observation)
        """The last ones of episodes that ended in the last step."""
        self.actions = place(np.int64)
        self.results = place(RESULT)
        """What came of the last step beside its observation."""
        if memory is not None:
            self.observations = self.shown[:, :size].reshape(num_envs, *observation)
            """Stacks of frames, or the two last screens."""
            self.ended = self.shown[:, size].view(np.bool_)
            """Whether an episode ended in the last step, so that the observation begins another."""
        return end

    def close(self) -> None:
        """Gives up the file behind the memory; the memory goes with the last array."""
        if hasattr(self, "_file"):
            os.close(self._file)
            del self._file

    def __getstate__(self) -> dict[str, Any]:
        return {"_shape": self._shape, "_file": reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._shape = state["_shape"]
        self._file = state["_file"].detach()
        self._lay_out(mmap.mmap(self._file, self._lay_out(None)))
        self.close()


class Player:
    """Plays the games of some environments, one after the other.

    Args:
      board: Where actions come from and results go.
      envs: The environments to play.
      cartridge: The game.
      rules: How it is played.
      stacked: Whether observations are stacks of frames, or else the two last screens.
    """

    def __init__(
        self, board: Board, envs: range, cartridge: Cartridge, rules: Rules, *, stacked: bool
    ) -> None:
        self.board = board
        self.games: dict[int, Game] = {}
        self._make_frames = self._make_frame = None
        if stacked:
            self._make_frames = FrameMaker(cartridge.height, cartridge.grey, len(envs))
            self._make_frame = FrameMaker(cartridge.height, cartridge.grey)
        self._screens = np.empty((2, len(envs), cartridge.height, WIDTH), np.uint8)
        for place, env in enumerate(envs):
            screens = self._screens[:, place] if stacked else board.observations[env]
            self.games[env] = Game(cartridge, rules, screens)

    def reset(self, seeds: dict[int, np.random.SeedSequence]) -> None:
        """Starts a new game in each environment; with seeds, from new random streams."""
        for env, game in self.games.items():
            if env in seeds:
                game.random = np.random.default_rng(seeds[env])
            game.begin()
            self.board.ended[env] = True
            self._note(env, game, 0.0, False, False)
        self._deliver()

    def step(self) -> None:
        """Plays the action of each environment, and begins the next episode where one ended."""
        board = self.board
        for env, game in self.games.items():
            reward, terminated, truncated = game.step(int(board.actions[env]))
            board.ended[env] = ended = terminated or truncated
            if ended:
                self._deliver_last(env, game)
                game.next_episode()
            self._note(env, game, reward, terminated, truncated)
        self._deliver()

    def capture(self) -> dict[int, dict[str, Any]]:
        """The state of each game, as JSON holds it."""
        return {env: game.capture() for env, game in self.games.items()}

    def restore(self, states: dict[int, dict[str, Any]]) -> None:
        """Puts each game back into a captured state."""
        for env, game in self.games.items():
            game.restore(states[env])

    def colours(self) -> dict[int, np.ndarray]:
        """Each game's screen in colour."""
        return {env: game.colours() for env, game in self.games.items()}

    def _note(self, env: int, game: Game, reward: float, terminated: bool, truncated: bool) -> None:
        finished = game.finished is not None
        score, length = game.finished or (0.0, 0)
        self.board.results[env] = (
            *(reward, game.lives, game.noops, score, length),
            *(terminated, truncated, finished),
        )

    def _deliver(self) -> None:
        """Shows what the games have come to; frames are made together, which takes less time."""
        if self._make_frames is None:
            return
        board = self.board
        for env, frame in zip(self.games, self._make_frames(self._screens), strict=True):
            stack = board.observations[env]
            if board.ended[env]:
                stack[:] = frame
            else:
                stack[:-1] = stack[1:]
                stack[-1] = frame

    def _deliver_last(self, env: int, game: Game) -> None:
        last = self.board.final_observations[env]
        if self._make_frame is None:
            last[:] = game.screens
        else:
            last[:-1] = self.board.observations[env][1:]
            last[-1] = self._make_frame(game.screens[:, None])[0]
