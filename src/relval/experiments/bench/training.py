"""`relval train` against its peers, with the same network and settings.

They are Stable-Baselines3's PPO and, on Atari, a loop as single files have it, around EnvPool.
"""

import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from relval._names import not_installed
from relval.envs.minatar import MinAtarVectorEnv
from relval.experiments.bench.atari import make_envpool
from relval.experiments.bench.plain import PlainLoop
from relval.networks import NetworkConfig, make_encoder
from relval.runs import Config, configure
from relval.runs.provenance import processor
from relval.runs.trainer import Trainer

_ENVS, _STEPS, _EPOCHS, _MINIBATCH = 8, 128, 4, 256
Measure = Callable[[int, int], float]
"""From a number of updates and of threads to steps per second."""

_UPDATES = {"CartPole-v1": 20, "MinAtar/Breakout": 12, "Breakout": 2}
_REPEATS = {"CartPole-v1": 5, "MinAtar/Breakout": 5, "Breakout": 3}


def run() -> None:
    """Steps per second on CartPole, MinAtar and Atari, the median of interleaved repeats."""
    threads = sorted({1, os.cpu_count() or 1})
    print(
        f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}; {_ENVS} envs x "
        f"{_STEPS} steps, {_EPOCHS} epochs, minibatch {_MINIBATCH};\n"
        f"median of interleaved repeats, each at its better number of threads of {threads}\n"
    )
    for env, updates in _UPDATES.items():
        peers: dict[str, Measure] = {
            "Stable-Baselines3 PPO": _stable_baselines(env),
            **_on_envpool(env),
            "relval, absolute": _ours(_config(env, "absolute")),
            "relval, relative, all pairs": _ours(
                _config(env, "relative", pairs="all", n=5, clip=None)
            ),
            **_reduced(env),
        }
        speeds: dict[tuple[str, int], list[float]] = {}
        for _ in range(_REPEATS[env]):
            for name, measure in peers.items():
                for count in threads:
                    speeds.setdefault((name, count), []).append(measure(updates, count))
        best = {
            name: max((statistics.median(speeds[name, count]), count) for count in threads)
            for name in peers
        }
        print(env)
        base = best["Stable-Baselines3 PPO"][0]
        for name, (speed, count) in best.items():
            print(f"  {name:<28} {speed:>8,.0f} steps/s  {speed / base:5.2f}x  {count} threads")
        share = best["relval, relative, all pairs"][0] / best["relval, absolute"][0]
        print(f"  the relative critic makes {share:.0%} of the absolute one's steps\n", flush=True)


def _config(env: str, critic: str, **options: Any) -> Config:
    return configure(
        env,
        critic,
        total_steps=10**9,
        ppo={"steps": _STEPS, "epochs": _EPOCHS, "minibatch": _MINIBATCH},
        envs={"num_envs": _ENVS, "normalise_rewards": False},
        critic_options=options,
    )


def _reduced(env: str) -> dict[str, Measure]:
    """In bf16, where images make encoding most of the time."""
    if env != "Breakout":
        return {}
    return {"relval, absolute, bf16": _ours(replace(_config(env, "absolute"), precision="bf16"))}


def _ours(config: Config) -> Measure:
    def measure(updates: int, threads: int) -> float:
        trainer = Trainer(replace(config, threads=threads))
        speed = _speed(trainer, updates)
        trainer.envs.close()
        return speed

    return measure


def _speed(learner: Trainer | PlainLoop, updates: int) -> float:
    """Steps per second, after a first update."""
    learner.iterate()
    begin = time.perf_counter()
    for _ in range(updates):
        learner.iterate()
    return updates * _ENVS * _STEPS / (time.perf_counter() - begin)


def _on_envpool(env: str) -> dict[str, Measure]:
    """A plain loop around EnvPool, for Atari, where EnvPool is installed."""
    if env != "Breakout" or importlib.util.find_spec("envpool") is None:
        return {}
    config = _config(env, "absolute")

    def measure(updates: int, threads: int) -> float:
        torch.set_num_threads(threads)
        envs = make_envpool(env, _ENVS)
        loop = PlainLoop(
            envs,
            envs.observation_space,
            int(envs.action_space.n),
            _ENVS,
            config.ppo,
            critic_weight=config.critic.coefficient,
        )
        speed = _speed(loop, updates)
        envs.close()
        return speed

    return {"plain loop around EnvPool": measure}


def _stable_baselines(env: str) -> Measure:
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_atari_env, make_vec_env
        from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
        from stable_baselines3.common.vec_env import (
            SubprocVecEnv,
            VecFrameStack,
            VecTransposeImage,
        )
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(not_installed("Stable-Baselines3", "bench")) from error

    class SameEncoder(BaseFeaturesExtractor):
        """The encoder that relval uses for images."""

        def __init__(self, space: gym.Space[np.ndarray]) -> None:
            encoder = make_encoder(space, NetworkConfig())
            super().__init__(space, encoder.features)
            self.encoder = encoder

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            features: torch.Tensor = self.encoder(observations)
            return features

    shared = {
        "features_extractor_class": SameEncoder,
        "net_arch": [],
        "normalize_images": False,
    }

    def make_envs() -> Any:
        if env == "Breakout":
            games = make_atari_env(
                "ale_py:BreakoutNoFrameskip-v4", _ENVS, vec_env_cls=SubprocVecEnv
            )
            return VecTransposeImage(VecFrameStack(games, 4))
        return make_vec_env(_BreakoutEnv if env == "MinAtar/Breakout" else env, _ENVS)

    def measure(updates: int, threads: int) -> float:
        torch.set_num_threads(threads)
        vector = make_envs()
        model = PPO(
            "MlpPolicy",
            vector,
            n_steps=_STEPS,
            batch_size=_MINIBATCH,
            n_epochs=_EPOCHS,
            policy_kwargs=None if env == "CartPole-v1" else shared,
            device="cpu",
        )
        model.learn(_ENVS * _STEPS)
        begin = time.perf_counter()
        model.learn(updates * _ENVS * _STEPS)
        speed = updates * _ENVS * _STEPS / (time.perf_counter() - begin)
        vector.close()
        return speed

    return measure


class _BreakoutEnv(gym.Env[np.ndarray, int]):
    """MinAtar's Breakout as a single environment, as Stable-Baselines3 wants it."""

    def __init__(self) -> None:
        games = MinAtarVectorEnv("breakout", 1)
        self.game, self.actions = games.games[0], games.actions
        self.observation_space = games.single_observation_space
        self.action_space = games.single_action_space
        self.last_action = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self.game.random = np.random.RandomState(seed)
        self.game.reset()
        self.last_action = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.game.random.random_sample() >= 0.1:
            self.last_action = self.actions[action]
        reward, terminated = self.game.act(self.last_action)
        return self._observation(), float(reward), bool(terminated), False, {}

    def _observation(self) -> np.ndarray:
        planes: np.ndarray = self.game.state().transpose(2, 0, 1)
        return planes.astype(np.uint8)
