"""Atari games side by side, as a vector environment."""

import multiprocessing
import os
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from relval._machine import cores
from relval.envs.atari import names
from relval.envs.atari.game import SKIP, Rules, inspect, pack, unpack
from relval.envs.atari.player import RESULT, STACK, Board, Player, copy_records
from relval.envs.atari.screens import SIZE
from relval.envs.atari.workers import Joined, make_crew


class AtariPool(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Games of one kind, emulated by worker processes; same-step auto-reset.

    A step lasts four frames. Rewards are the signs of the raw ones. An episode ends with the game,
    with a lost life, or at `max_frames` (truncated); the returned observation is then the first
    of the next episode, and the last one of the old is in `infos["final_obs"]`.

    Infos of a step, arrays `[num_envs]` unless said otherwise:

    - `raw_reward`: What the game gave for the action.
    - `lives`: Left, in the state that is returned.
    - `noops`: Frames without action that the game of that state began with.
    - `final_obs`, `_final_obs`: Where an episode ended, its last observation; and where that is.
    - `episode`, `_episode`: Where a whole game ended, all its lives together, its raw return `r`
      and its steps `l`; and where that is. What happened between two episodes of a game, on FIRE
      for example, is counted too. Both are missing when no game ended.

    Args:
      game: `Pong`, `pong` or `ALE/Pong-v5`.
      num_envs: Games side by side.
      deliver: `stacks`: observations are the last four frames, `[4, 84, 84]`, grey. `screens`:
        they are the two last screens, `[2, H, 160]`, as the console coloured them, in shared memory
        that the next step overwrites; `relval.envs.atari.tensors` makes frames of them.
      sticky_actions: Probability, at each emulated frame, that the last action is repeated.
      full_actions: Offer all 18 actions, in place of those that the game knows.
      episodic_life: Let the loss of a life end an episode.
      fire_reset: Begin episodes with FIRE, in games that know it.
      noop_max: A game begins with 1 to this many frames without action.
      max_frames: A game is cut off after this many emulated frames.
      workers: Processes that emulate; 0 to do it in this one. By default, on Linux, one for each
        environment; where stacks are delivered no more than there are cores, and where that takes
        all of them, this process emulates in the place of one. Results do not depend on it.
      start_method: How processes are started: `fork` or `spawn`.
      patience: Seconds after which a worker that does not answer counts as hanging.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        deliver: Literal["stacks", "screens"] = "stacks",
        sticky_actions: float = 0.0,
        full_actions: bool = False,
        episodic_life: bool = True,
        fire_reset: bool = True,
        noop_max: int = 30,
        max_frames: int = 108_000,
        workers: int | None = None,
        start_method: Literal["fork", "spawn"] = "fork",
        patience: float = 4.0,
        render_mode: str | None = None,
    ) -> None:
        self.closed = True  # until everything stands
        _check("num_envs", num_envs, num_envs >= 1, "at least 1")
        _check("deliver", deliver, deliver in ("stacks", "screens"), "'stacks' or 'screens'")
        _check("sticky_actions", sticky_actions, 0 <= sticky_actions < 1, "in [0, 1)")
        _check("noop_max", noop_max, noop_max >= 0, "at least 0")
        least = noop_max + 4 * SKIP
        _check("max_frames", max_frames, max_frames >= least, f"at least {least}")
        _check("workers", workers, workers is None or workers >= 0, "at least 0")
        _check("start_method", start_method, start_method in ("fork", "spawn"), "'fork' or 'spawn'")
        self.game = names.game(game)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "reports_episodes": True,
            "render_modes": ["rgb_array"],
            "render_fps": 15,
        }
        rules = Rules(
            sticky_actions=sticky_actions,
            full_actions=full_actions,
            episodic_life=episodic_life,
            fire_reset=fire_reset,
            noop_max=noop_max,
            max_frames=max_frames,
        )
        cartridge = inspect(self.game, rules)
        self.action_meanings = cartridge.actions
        self._legal = frozenset(range(len(cartridge.actions)))
        self.grey = cartridge.grey
        """The grey of each value of a screen, `[256]`."""
        self.board = Board(num_envs, cartridge.height, stacked=deliver == "stacks")
        self.stack_space = gym.spaces.Box(0, 255, (STACK, SIZE, SIZE), np.uint8)
        """Of one observation as an agent sees it, whatever is delivered."""
        shape = self.board.observations.shape[1:]
        self.single_observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.single_action_space = gym.spaces.Discrete(len(cartridge.actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._stacked = deliver == "stacks"
        self._begun = False
        if workers is None:
            processes, joins = _players_by_default(num_envs, self._stacked)
        else:
            processes, joins = workers, workers == 0
        self._shares = _shares(num_envs, min(num_envs, processes + joins))
        make_players = [
            partial(Player, self.board, share, cartridge, rules, stacked=self._stacked)
            for share in self._shares
        ]
        try:
            self._crew = make_crew(
                make_players, joins=joins, start_method=start_method, patience=patience
            )
        except BaseException:
            self.board.close()
            raise
        self.closed = False

    @property
    def worker_pids(self) -> list[int]:
        """The process numbers of the workers; none if all games are emulated in this process."""
        return self._crew.pids

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts a new game everywhere; with a seed, from new random streams.

        Each environment has a stream of its own, spawned from the seed, which says how many frames
        without action its games begin with.
        """
        if seed is None and self._begun:
            seeds = {}
        else:
            seeds = dict(enumerate(np.random.SeedSequence(seed).spawn(self.num_envs)))
        self._crew.call("reset", [{n: seeds[n] for n in share if seeds} for share in self._shares])
        self._begun = True
        results = self._results()
        return self._observations(), {name: results[name] for name in ("lives", "noops")}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Plays one step of each game."""
        self.send(actions)
        return self.receive()

    def groups(self, count: int) -> list["Group"]:
        """Environments in groups that can step by themselves; as many as asked for, or fewer."""
        most = 1 if isinstance(self._crew, Joined) else len(self._shares)
        players = np.array_split(np.arange(len(self._shares)), min(count, most))
        return [
            Group(self, slice(p[0], p[-1] + 1), self._shares[p[0]].start, self._shares[p[-1]].stop)
            for p in players
        ]

    def send(self, actions: np.ndarray) -> None:
        """Begins a step: the first half of `step`, to do something else meanwhile."""
        if not self._begun:
            raise RuntimeError("the games have not begun: call reset first")
        actions = np.asarray(actions)
        numbers = actions.shape == (self.num_envs,) and actions.dtype.kind in "iu"
        if not (numbers and self._legal.issuperset(actions.tolist())):
            raise ValueError(
                f"actions must be {self.num_envs} whole numbers from 0 to {max(self._legal)}, "
                f"got {actions!r}"
            )
        self._crew.finish_step()
        self.board.actions[:] = actions
        self._crew.start_step()

    def receive(
        self,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """What came of the step that `send` began."""
        self._crew.finish_step()
        results = self._results()
        rewards, terminated, truncated = (
            results[name] for name in ("raw_reward", "terminated", "truncated")
        )
        infos: dict[str, Any] = {name: results[name] for name in ("raw_reward", "lives", "noops")}
        ended = terminated | truncated
        if True in ended.tolist():
            last = np.full(self.num_envs, None, dtype=object)
            for n in ended.nonzero()[0]:
                last[n] = self.board.final_observations[n].copy()
            infos |= {"final_obs": last, "_final_obs": ended}
            if results["finished"].any():
                infos["episode"] = {"r": results["score"], "l": results["length"]}
                infos["_episode"] = results["finished"]
        return self._observations(), np.sign(rewards), terminated, truncated, infos

    def render(self) -> tuple[np.ndarray, ...]:
        """Each game's screen in colour."""
        pictures = {n: p for part in self._crew.call("colours") for n, p in part.items()}
        return tuple(pictures[n] for n in range(self.num_envs))

    def capture(self) -> dict[str, Any]:
        """The state of all games, as JSON holds it."""
        games = {n: state for part in self._crew.call("capture") for n, state in part.items()}
        return {
            "game": self.game,
            "games": [games[n] for n in range(self.num_envs)],
            "observations": pack(self.board.observations.tobytes()),
        }

    def restore(self, state: dict[str, Any], *, stacks: np.ndarray | None = None) -> None:
        """Puts all games back into a captured state.

        Args:
          state: From `capture`, of a pool of as many games.
          stacks: The last four frames of each game, which are needed where this pool delivers
            stacks and the captured one did not.
        """
        if state["game"] != self.game or len(state["games"]) != self.num_envs:
            raise ValueError(
                f"the state is of {len(state['games'])} games of {state['game']}, "
                f"but this is a pool of {self.num_envs} games of {self.game}"
            )
        games = state["games"]
        saved = np.frombuffer(unpack(state["observations"]), np.uint8)
        same_kind = saved.size == self.board.observations.size
        if self._stacked and not same_kind and stacks is None:
            raise ValueError(
                "the state is of a pool that delivers screens, so this one, which delivers stacks, "
                "needs the last four frames too: pass `stacks`"
            )
        self._crew.call("restore", [{n: games[n] for n in share} for share in self._shares])
        if same_kind:
            self.board.observations[:] = saved.reshape(self.board.observations.shape)
        elif self._stacked:
            self.board.observations[:] = stacks
        self._begun = True

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the workers."""
        self._crew.close()
        self.board.close()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.close()

    def _results(self) -> np.ndarray:
        results = np.empty(self.num_envs, RESULT)
        copy_records(self.board.results, results)
        return results

    def _observations(self) -> np.ndarray:
        observations = self.board.observations
        return observations.copy() if self._stacked else observations


@dataclass(frozen=True)
class Group:
    """Some environments of a pool, which step without waiting for the others.

    Results are read from the pool's board, at `envs`.
    """

    pool: AtariPool
    players: slice
    begin: int
    end: int

    @property
    def envs(self) -> slice:
        """Their places in the pool."""
        return slice(self.begin, self.end)

    def send(self, actions: np.ndarray) -> None:
        """Begins a step with legal actions; the last one must be ready."""
        self.pool.board.actions[self.envs] = actions
        self.pool._crew.start_step(self.players)

    def ready(self) -> bool:
        """Whether the step is played."""
        return self.pool._crew.ready(self.players)


def _players_by_default(num_envs: int, stacked: bool) -> tuple[int, bool]:
    """How many processes are started, where that is possible, and whether this one plays as well.

    It does where there is no core more than environments, so that it could only wait in the way of
    workers. But of screens it makes frames itself, meanwhile; there a core that has several workers
    plays a game of one while another waits for its action.
    """
    if not hasattr(os, "memfd_create") or multiprocessing.current_process().daemon:
        return 0, True
    if not stacked:
        return num_envs, False
    joins = cores() <= num_envs
    return cores() - joins, joins


def _shares(num_envs: int, players: int) -> list[range]:
    """Environments for each player, as evenly as possible."""
    bounds = np.linspace(0, num_envs, players + 1).round().astype(int).tolist()
    return [range(begin, end) for begin, end in pairwise(bounds)]


def _check(name: str, value: Any, good: bool, expected: str) -> None:
    if not good:
        raise ValueError(f"{name} must be {expected}, got {value!r}")
