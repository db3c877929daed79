"""What a step means, as a chain of public wrappers plays it."""

from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv, FireResetEnv

gym.register_envs(ale_py)

Env = gym.Env[Any, Any]
Wrapper = gym.Wrapper[Any, Any, Any, Any]


class Draws:
    """A generator that remembers the number of no-ops it drew."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.noops = 0

    def integers(self, low: int, high: int) -> int:
        self.noops = int(self.random.integers(low, high))
        return self.noops


class PowerOn(Wrapper):
    """Switches the console off and on: `reset_game` alone leaks the last game into the next."""

    def reset(self, **options: Any) -> Any:
        console: Any = self.unwrapped
        console.load_game()
        return self.env.reset(**options)


class Sticky(Wrapper):
    """Repeats the last action with some probability, at each frame after the no-ops."""

    def __init__(self, env: Env, draws: Draws, probability: float) -> None:
        super().__init__(env)
        self.draws, self.probability = draws, probability
        self.last = self.frames = 0

    def reset(self, **options: Any) -> Any:
        self.last = self.frames = 0
        return self.env.reset(**options)

    def step(self, action: int) -> Any:
        self.frames += 1
        playing = self.frames > self.draws.noops
        if not playing or self.draws.random.random() >= self.probability:
            self.last = action
        return self.env.step(self.last)


class Recorder(Wrapper):
    """Sums the raw rewards and counts the steps of whole games."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.begun = 0
        self.finished: list[tuple[float, int]] = []

    def reset(self, **options: Any) -> Any:
        self.begun += 1
        self.score, self.length = 0.0, 0
        return self.env.reset(**options)

    def step(self, action: int) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.score += float(reward)
        self.length += 1
        if terminated or truncated:
            self.finished.append((self.score, self.length))
        return observation, reward, terminated, truncated, info


class Reference:
    """One game, from public wrappers.

    Args:
      game: As in `ALE/Pong-v5`.
      seed: Of the stream that says how many no-ops a game begins with, and which actions stick.
      max_frames, full_actions, episodic_life, fire_reset, sticky_actions: As in `AtariPool`.
    """

    def __init__(
        self,
        game: str,
        seed: np.random.SeedSequence,
        *,
        max_frames: int = 108_000,
        full_actions: bool = False,
        episodic_life: bool = True,
        fire_reset: bool = True,
        sticky_actions: float = 0.0,
    ) -> None:
        env: Env = gym.make(
            f"ALE/{game}-v5",
            frameskip=1,
            repeat_action_probability=0.0,
            max_num_frames_per_episode=max_frames,
            full_action_space=full_actions,
            obs_type="grayscale",  # of no account but for time: the next wrapper looks itself
            disable_env_checker=True,
        )
        console: Any = env.unwrapped
        self.console = console
        self.draws = Draws(np.random.default_rng(seed))
        console._np_random = self.draws
        self.actions: list[str] = console.get_action_meanings()
        env = PowerOn(env)
        if sticky_actions:
            env = Sticky(env, self.draws, sticky_actions)
        env = AtariPreprocessing(
            env,
            noop_max=30,
            frame_skip=4,
            screen_size=84,
            terminal_on_life_loss=False,
            grayscale_obs=True,
        )
        self.games = env = Recorder(env)
        if episodic_life:
            env = EpisodicLifeEnv(env)
        if fire_reset and "FIRE" in self.actions:
            env = FireResetEnv(env)
        self.env = FrameStackObservation(env, 4)

    @property
    def lives(self) -> int:
        return int(self.console.ale.lives())

    def reset(self) -> np.ndarray:
        stack: np.ndarray = self.env.reset()[0]
        return stack

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Observation, raw reward, terminated and truncated; no reset."""
        stack, reward, terminated, truncated, _ = self.env.step(action)
        return stack, float(reward), terminated, truncated
