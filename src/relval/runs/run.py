"""A run in its folder, and the policy that came of it."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import ArrayLike

from relval import envs
from relval.ppo import Agent
from relval.runs import checkpoint as checkpoints
from relval.runs import files
from relval.runs.config import Config, from_yaml
from relval.runs.trainer import make_normaliser, restore_agent


@dataclass(frozen=True)
class Policy:
    """A trained policy: call it with an observation, or with a batch of them."""

    agent: Agent
    normaliser: envs.Normaliser
    shape: tuple[int, ...]
    generator: torch.Generator
    trained: int
    """Environment steps so far."""

    @torch.no_grad()
    def __call__(self, observation: ArrayLike, *, deterministic: bool = True) -> np.ndarray:
        """The action for an observation as the environment gives it.

        Args:
          observation: One observation, or a batch `[B, ...]`.
          deterministic: The likeliest action, or else one drawn from the policy.
        """
        if isinstance(observation, tuple) and any(isinstance(x, dict) for x in observation):
            raise TypeError(
                "an observation was expected, got all that `reset` or `step` returns: pass the "
                "first of it"
            )
        single = np.shape(observation) == self.shape
        batch = np.asarray(observation)[None] if single else np.asarray(observation)
        if batch.shape[1:] != self.shape:
            raise ValueError(
                f"an observation has the shape {list(self.shape)}, and a batch of B of them "
                f"{['B', *self.shape]}, got {list(batch.shape)}".replace("'", "")
            )
        seen = torch.from_numpy(np.ascontiguousarray(self.normaliser.observations(batch)))
        head = self.agent.policy
        outputs = head(self.agent.encoder(seen.to(self.generator.device)))
        noise = head.noise(len(batch), generator=self.generator)
        actions = head.mode(outputs) if deterministic else head.sample(outputs, noise)
        chosen = head.to_environment(actions)
        action: np.ndarray = chosen[0] if single else chosen
        return action


@dataclass(frozen=True)
class Run:
    """A run's folder, and what can be had from it."""

    folder: Path
    config: Config

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def metrics(self) -> Path:
        """The curves: `pandas.read_csv(run.metrics)`."""
        return self.folder / files.METRICS

    @property
    def episodes(self) -> Path:
        """All finished episodes: `pandas.read_csv(run.episodes)`."""
        return self.folder / files.EPISODES

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return files.is_finished(self.folder)

    @property
    def summary(self) -> dict[str, Any]:
        """What a finished run came to."""
        if not self.finished:
            raise FileNotFoundError(
                f"{self.folder} has not finished; go on with `relval train --resume {self.folder}`"
            )
        try:
            return _read_json(self.folder / files.SUMMARY)
        except ValueError as error:
            raise ValueError(
                f"{error}; remove it, and `relval train --resume {self.folder}` writes it anew"
            ) from error

    @property
    def provenance(self) -> dict[str, Any]:
        """The versions, source and machine that the run was started with."""
        return _read_json(self.folder / files.PROVENANCE)

    @cached_property
    def policy(self) -> Policy:
        """The policy of the newest checkpoint."""
        newest = checkpoints.load_newest(self.folder / files.CHECKPOINTS)
        if newest is None and self.finished:
            raise FileNotFoundError(
                f"no checkpoint of {self.folder} can be read, and the run has finished: train "
                "again, in another folder"
            )
        if newest is None:
            raise FileNotFoundError(
                f"{self.folder} has no checkpoint that can be read; go on with "
                f"`relval train --resume {self.folder}`"
            )
        made = envs.make(self.config.env, replace(self.config.envs, num_envs=1, workers=0))
        space = envs.seen_space(made, self.config.envs)
        agent = Agent(space, made.single_action_space, self.config.network, self.config.critic)
        made.close()
        restore_agent(agent, newest)
        normaliser = make_normaliser(self.config, space.shape or ())
        normaliser.restore(newest.state["normaliser"])
        generator = torch.Generator().manual_seed(self.config.seed)
        return Policy(agent, normaliser, space.shape or (), generator, newest.state["step"])


def load(folder: str | Path) -> Run:
    """The run in a folder, finished or not; its policy is that of the newest checkpoint.

    Args:
      folder: As `train` or `relval train` made it.
    """
    if not isinstance(folder, str | PathLike):
        raise TypeError(f"a run's folder was expected, got a {type(folder).__name__}")
    folder = Path(folder)
    path = folder / files.CONFIG
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no run: there is no {path}")
    try:
        return Run(folder, from_yaml(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is not a run's configuration: {error}") from error


def opened(run: Run | str | Path) -> Run:
    """The run, or the one in a folder."""
    return run if isinstance(run, Run) else load(run)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return content
