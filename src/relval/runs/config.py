"""The configuration of a run: a tree of frozen dataclasses, and its YAML."""

import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro
import yaml

from relval.critics import CRITICS, CriticConfig, critic_name
from relval.envs import EnvConfig
from relval.networks import NetworkConfig
from relval.ppo import PPOConfig


@dataclass(frozen=True)
class Config:
    """All that decides what a run computes."""

    env: tyro.conf.Suppress[str]
    """MinAtar/Breakout and the like, or any Gymnasium id."""
    critic: CriticConfig
    """The critic, and what it is told."""
    preset: tyro.conf.Suppress[str] = "relval"
    """The preset that the other values started from."""
    seed: int = 1
    """Of everything random in the run."""
    total_steps: int = 10_000_000
    """Environment steps, over all environments together."""
    envs: EnvConfig = field(default_factory=EnvConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    threads: int = 1
    """CPU threads for learning; acting uses one."""
    device: str = "cpu"
    """Where networks live: cpu, cuda."""
    checkpoint_every: int = 100_000
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        batch = self.ppo.steps * self.envs.num_envs
        for name, value, least in (
            ("total_steps", self.total_steps, 1),
            ("envs.num_envs", self.envs.num_envs, 1),
            ("ppo.steps", self.ppo.steps, 1),
            ("ppo.epochs", self.ppo.epochs, 1),
            ("ppo.minibatch", self.ppo.minibatch, 1),
            ("threads", self.threads, 1),
            ("checkpoint_every", self.checkpoint_every, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.ppo.minibatch > batch:
            raise ValueError(
                f"ppo.minibatch must be at most {batch}, the transitions of a rollout "
                f"(ppo.steps x envs.num_envs), got {self.ppo.minibatch}"
            )


def to_yaml(config: Config) -> str:
    """The configuration as YAML, with the critic's name first in its section."""
    tree = dataclasses.asdict(config)
    tree["critic"] = {"name": critic_name(config.critic), **tree["critic"]}
    return yaml.safe_dump(_plain(tree), sort_keys=False, allow_unicode=True)


def from_yaml(text: str) -> Config:
    """The configuration that `to_yaml` wrote."""
    tree = yaml.safe_load(text)
    if not isinstance(tree, dict) or "critic" not in tree:
        raise ValueError("a configuration must be a mapping with a section `critic`")
    critic = dict(tree.pop("critic"))
    name = critic.pop("name", None)
    if name not in CRITICS:
        raise ValueError(f"critic.name must be one of {', '.join(CRITICS)}, got {name!r}")
    built = _build(CRITICS[name][0], critic, "critic.")
    config: Config = _build(Config, {**tree, "critic": built}, "")
    return config


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _build(kind: Any, tree: dict[str, Any], prefix: str) -> Any:
    """An instance of a dataclass from a mapping, nested ones included."""
    hints = typing.get_type_hints(kind)
    for key in tree:
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise ValueError(f"there is no setting {prefix}{key}{hint}")
    values = {}
    for key, value in tree.items():
        hint = hints[key]
        if dataclasses.is_dataclass(hint) and isinstance(value, dict):
            values[key] = _build(hint, value, f"{prefix}{key}.")
        elif typing.get_origin(hint) is tuple:
            values[key] = tuple(value)
        elif _is_float(hint) and isinstance(value, int) and not isinstance(value, bool):
            values[key] = float(value)
        else:
            values[key] = value
    return kind(**values)


def _is_float(hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return float in typing.get_args(hint)
    return hint is float
