"""MinAtar (Young and Tian, 2019) as a vector environment."""

import colorsys
import importlib
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from relval._names import check_name, not_installed
from relval.envs import random_state

PREFIX = "MinAtar/"
GAMES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}
_ACTIONS = ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")


def names() -> list[str]:
    """The games, as users name them."""
    return [PREFIX + game for game in GAMES]


def game(name: str) -> str:
    """The game that a name means: its module in the package `minatar`."""
    check_name("MinAtar game", name, names())
    return GAMES[name.removeprefix(PREFIX)]


class MinAtarVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """MinAtar games side by side, with the minimal actions and same-step auto-reset.

    Observations are planes of 0 and 1, channels first, uint8. Each game has a seed of its own,
    spawned from the one that `reset` gets. An episode never truncates.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        sticky_actions: float = 0.1,
        ramping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        try:
            module = importlib.import_module(f"minatar.environments.{game}")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(not_installed("MinAtar", "minatar")) from error
        self.games = [module.Env(ramping=ramping) for _ in range(num_envs)]
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.sticky_actions = sticky_actions
        self.actions = np.array(self.games[0].minimal_action_set())
        self.action_meanings = [_ACTIONS[action] for action in self.actions]
        self.last_actions = np.zeros(num_envs, dtype=np.int64)
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_modes": ["rgb_array"],
            "render_fps": 15,
        }
        height, width, channels = self.games[0].state_shape()
        self.single_observation_space = gym.spaces.Box(0, 1, (channels, height, width), np.uint8)
        self.single_action_space = gym.spaces.Discrete(len(self.actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts all games; with a seed, from new random streams."""
        if seed is not None:
            children = np.random.SeedSequence(seed).spawn(self.num_envs)
            for env, child in zip(self.games, children, strict=True):
                env.random = np.random.RandomState(np.random.MT19937(child))
        self.last_actions[:] = 0
        for env in self.games:
            env.reset()
        return self._observations(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Plays one step of each game."""
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        chosen = self.actions[actions]
        for n, env in enumerate(self.games):
            if env.random.random_sample() >= self.sticky_actions:
                self.last_actions[n] = chosen[n]
            rewards[n], terminated[n] = env.act(self.last_actions[n])
            if terminated[n]:
                env.reset()
                self.last_actions[n] = 0
        # A terminal state is worth zero, so nobody needs to see the observation that ends a game.
        return self._observations(), rewards, terminated, np.zeros_like(terminated), {}

    def render(self) -> tuple[np.ndarray, ...]:
        """Each game as a picture, one hue for each kind of thing, the fewest on top."""
        channels = self.games[0].state_shape()[2]
        palette = [colorsys.hls_to_rgb(c / channels, 0.55, 0.8) for c in range(channels)]
        colours = (255 * np.array([(0.07, 0.08, 0.1), *palette])).astype(np.uint8)
        return tuple(
            colours[_topmost(planes)].repeat(24, 0).repeat(24, 1) for planes in self._observations()
        )

    def capture(self) -> dict[str, Any]:
        """The state of all games, as JSON holds it."""
        return {
            "last_actions": self.last_actions.tolist(),
            "games": [
                {name: _to_json(value) for name, value in vars(env).items()} for env in self.games
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Puts all games back into a captured state."""
        self.last_actions = np.array(state["last_actions"], dtype=np.int64)
        for env, saved in zip(self.games, state["games"], strict=True):
            for name, value in saved.items():
                setattr(env, name, _from_json(value))

    def _observations(self) -> np.ndarray:
        stacked = np.stack([env.state() for env in self.games])
        return np.ascontiguousarray(stacked.transpose(0, 3, 1, 2)).view(np.uint8)


def _topmost(planes: np.ndarray) -> np.ndarray:
    """The channel seen in each cell, from 1, or 0: what fills fewer cells is in front.

    So a ball is seen among bricks; of equals the first, which is the thing, not its trail.
    """
    seen = np.zeros(planes.shape[1:], dtype=np.int64)
    for channel in np.argsort(planes.sum((1, 2)), kind="stable")[::-1]:
        seen[planes[channel] == 1] = channel + 1
    return seen


def _to_json(value: Any) -> Any:
    """A game's attribute, with arrays and generators marked."""
    if isinstance(value, np.random.RandomState):
        return {"random": random_state.capture(value)}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {"dict": value}
    if isinstance(value, np.generic):
        return value.item()
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "random" in value:
        random = np.random.RandomState()
        random_state.restore(random, value["random"])
        return random
    if "array" in value:
        return np.array(value["array"], dtype=value["dtype"])
    return value["dict"]
