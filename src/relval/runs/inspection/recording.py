"""A game that a trained agent played, and what its critic makes of every state of it."""

import io
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from PIL import Image
from torch import Tensor

from relval import envs
from relval._bounds import Natural, check_value
from relval._page import short
from relval.critics import Critic
from relval.ppo import Agent, Collected, Collector
from relval.relative import Delta, gae, start_states, telescoped_values
from relval.runs.play import make_to_see
from relval.runs.run import Run

GAMES = 6
"""Games side by side, so that there are start states to rank: only the first is shown."""
_MOST_STEPS = 2_000
_SIZE = 240


@dataclass(frozen=True, eq=False)
class Recording:
    """Games that were played side by side as in training; all but the first only for their starts.

    States are numbered as in `Trajectories`.
    """

    rollout: Collected
    critic: Critic[Any]
    frames: dict[int, bytes]
    """Pictures (WebP) of the first game's states, and of the start states of all games; none where
    they cannot be drawn."""
    unseen: str
    """Why there are no pictures; nothing where there are."""
    points: float
    """What the first game gave, before any clipping or scaling."""
    speed: int
    """Frames a second."""
    actions: list[str]
    """What was done in the first game."""
    gamma: float
    lam: float

    @property
    def shown(self) -> Tensor:
        """The states of the first game, `[T + 1]`."""
        return self.rollout.traj.states[:, 0]

    @cached_property
    def delta(self) -> Delta:
        """The critic's differences."""
        return self.critic.delta(self.rollout.memory)

    @cached_property
    @torch.no_grad()
    def differences(self) -> Tensor:
        """Δ(s_i, s_j) for the states of the first game, `[T + 1, T + 1]`."""
        return torch.stack([self.delta(i, self.shown) for i in self.shown])

    @cached_property
    @torch.no_grad()
    def values(self) -> dict[str, Tensor]:
        """One value for each state: on one scale, and from zero at each trajectory's start."""
        traj = self.rollout.traj
        return {
            "anchored": self.critic.values(
                self.rollout.memory, traj, gamma=self.gamma, lam=self.lam
            ),
            "unanchored": telescoped_values(self.delta, traj),
        }

    @cached_property
    def advantages(self) -> dict[str, Tensor]:
        """Of the first game's steps, from the values of the same name, `[T]`."""
        return {
            name: gae(self.rollout.traj, values, gamma=self.gamma, lam=self.lam)[:, 0]
            for name, values in self.values.items()
        }

    @cached_property
    def ranking(self) -> list[list[int]]:
        """The start states of all games, best first; those that nothing tells apart together."""
        starts = start_states(self.rollout.traj)
        order = self.values["anchored"][starts].argsort(descending=True, stable=True)
        alike: dict[tuple[float, bytes], list[int]] = {}
        for number in starts[order].tolist():
            looks = short(float(self.values["anchored"][number])), self.frames.get(number, b"")
            alike.setdefault(looks, []).append(number)
        return list(alike.values())

    @property
    def scores(self) -> list[float]:
        """Of the first game's episodes that ended, in order."""
        return [episode.score for episode in self.rollout.episodes if episode.env == 0]


def play(run: Run, *, steps: int, seed: int) -> Recording:
    """Plays with the newest checkpoint, drawing actions as in training; nothing is learned."""
    if not 1 <= steps <= _MOST_STEPS:
        raise ValueError(
            f"steps must be from 1 to {_MOST_STEPS:,}, because all pairs of states are shown, got "
            f"{steps:,}"
        )
    check_value("seed", Natural, seed)
    policy = run.policy
    made, unseen = _made(run)
    filmed = _Filmed(made, unseen)
    try:
        collector = Collector(filmed, envs.Settled(policy.normaliser), seed=seed)
        generator = torch.Generator().manual_seed(seed)
        rollout = collector.collect(policy.agent, steps, generator)
    finally:
        made.close()
    return Recording(
        rollout,
        policy.agent.critic,
        filmed.frames,
        filmed.unseen,
        filmed.points,
        made.metadata.get("render_fps", 30),
        _in_words(policy.agent, made, rollout)[::GAMES],
        run.config.ppo.gamma,
        run.config.ppo.lam,
    )


def _made(run: Run) -> tuple[VectorEnv[Any, Any, Any], str]:
    """Environments that can be looked at, or else others, and why they cannot."""
    try:
        return make_to_see(run, GAMES), ""
    except envs.NoPicturesError as error:
        return envs.make(run.config.env, replace(run.config.envs, num_envs=GAMES)), str(error)


def _in_words(agent: Agent, made: VectorEnv[Any, Any, Any], rollout: Collected) -> list[str]:
    """The actions that were taken, by their names where they have some."""
    names = getattr(made, "action_meanings", None)
    taken = agent.policy.to_environment(rollout.actions)
    if names is not None:
        return [names[action] for action in taken]
    return [", ".join(f"{x:.3g}" for x in np.ravel(action)) for action in taken]


class _Filmed(VectorEnv[Any, Any, Any]):
    """Keeps pictures: of the first environment always, of the others when an episode begins.

    Where there are none to be had, `unseen` says why.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], unseen: str) -> None:
        self.env, self.num_envs, self.metadata = env, env.num_envs, env.metadata
        self.unseen = unseen
        self.frames: dict[int, bytes] = {}
        self.points = 0.0
        self._row = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins all episodes."""
        begun = self.env.reset(seed=seed, options=options)
        self._film(np.ones(self.num_envs, dtype=np.bool_))
        return begun

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Plays a step of each environment."""
        stepped = self.env.step(actions)
        _, rewards, terminated, truncated, infos = stepped
        self.points += float(infos.get("raw_reward", rewards)[0])
        self._film(terminated | truncated)
        return stepped

    def _film(self, begun: np.ndarray) -> None:
        if self.unseen:
            return
        wanted = sorted({0, *begun.nonzero()[0].tolist()})
        try:
            pictures = envs.pictures(self.env, wanted)
        except envs.NoPicturesError as error:
            self.frames, self.unseen = {}, str(error)
            return
        for n, picture in zip(wanted, pictures, strict=True):
            self.frames[self._row * self.num_envs + n] = _compressed(picture)
        self._row += 1


def _compressed(picture: np.ndarray) -> bytes:
    """A small picture; exact where it has few colours, as games have."""
    image = Image.fromarray(picture)
    image.thumbnail((_SIZE, _SIZE))
    compressed = io.BytesIO()
    few_colours = image.getcolors() is not None
    image.save(compressed, "WEBP", lossless=few_colours, quality=75, method=2)
    return compressed.getvalue()
