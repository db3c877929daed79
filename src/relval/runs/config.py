"""The configuration of a run: a tree of frozen dataclasses, and its YAML."""

import dataclasses
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
import yaml

from relval._bounds import Count, Natural, check_fields
from relval._names import check_name
from relval.critics import CRITICS, CriticConfig, critic_name
from relval.envs import EnvConfig
from relval.networks import NetworkConfig
from relval.ppo import PPOConfig
from relval.preferences import PreferenceConfig

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True)
class Config:
    """All that decides what a run computes."""

    env: tyro.conf.Suppress[str]
    """Pong, MinAtar/Breakout and the like, or any Gymnasium id."""
    critic: CriticConfig
    """The critic, and what it is told."""
    preset: tyro.conf.Suppress[str] = "none"
    """The preset that the other values started from."""
    seed: Natural = 1
    """Of everything random in the run."""
    total_steps: Count = 10_000_000
    """Environment steps, over all environments together."""
    envs: EnvConfig = field(default_factory=EnvConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    preferences: PreferenceConfig = field(default_factory=PreferenceConfig)
    threads: Count | None = None
    """CPU threads for learning; acting uses one. By default one as well, but on Atari, whose images
    repay it, one for each core, or `OMP_NUM_THREADS`."""
    device: Device = "cpu"
    """Where networks live."""
    precision: Precision = "tf32"
    """How encoders compute; tf32 is fp32 on a CPU, and parameters are float32 always."""
    compile: Literal["on", "off"] = "on"
    """Whether steps are recorded as CUDA graphs on a GPU and replayed, which changes no result."""
    checkpoint_every: Count = 100_000
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        check_fields(self)
        batch = self.ppo.steps * self.envs.num_envs
        if self.ppo.minibatch > batch:
            raise ValueError(
                f"ppo.minibatch must be at most {batch}, the transitions of a rollout "
                f"(ppo.steps x envs.num_envs), got {self.ppo.minibatch}"
            )
        if self.preferences.comparisons and self.preferences.segment > self.ppo.steps:
            raise ValueError(
                f"preferences.segment must be at most {self.ppo.steps}, the steps of a rollout "
                f"(ppo.steps), got {self.preferences.segment}"
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
    critic = tree.pop("critic")
    name = critic.pop("name", None) if isinstance(critic, dict) else critic
    if name not in CRITICS:
        raise ValueError(
            f"critic.name must be one of {', '.join(CRITICS)}, got {name!r}; if it is a critic of "
            "your own, import the module that registers it first"
        )
    built = _build(CRITICS[name][0], critic, "critic.")
    config: Config = _build(Config, {**tree, "critic": built}, "")
    return config


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def _build(kind: Any, tree: Any, prefix: str) -> Any:
    """An instance of a dataclass from a mapping, nested ones included."""
    if not isinstance(tree, dict):
        raise ValueError(f"{prefix[:-1]} must be a mapping of settings to values, got {tree!r}")
    hints = typing.get_type_hints(kind)
    check_settings(tree, hints, prefix)
    for item in dataclasses.fields(kind):
        needed = item.default is item.default_factory is dataclasses.MISSING
        if needed and item.name not in tree:
            raise ValueError(f"the setting {prefix}{item.name} is missing")
    values = {}
    for key, value in tree.items():
        hint = hints[key]
        if dataclasses.is_dataclass(hint) and not dataclasses.is_dataclass(value):
            values[key] = _build(hint, value, f"{prefix}{key}.")
        elif typing.get_origin(hint) is tuple:
            if not isinstance(value, list):
                raise ValueError(f"{prefix}{key} must be a list, got {value!r}")
            values[key] = tuple(value)
        elif _is_float(hint) and isinstance(value, int | str) and not isinstance(value, bool):
            values[key] = _as_float(value)
        else:
            values[key] = value
    return kind(**values)


def _is_float(hint: Any) -> bool:
    return float in (hint, *typing.get_args(hint))


def _as_float(value: int | str) -> Any:
    """The number, which YAML reads as an integer where it is 1, and as text where it is 1e-5."""
    try:
        return float(value)
    except ValueError:
        return value  # which is then refused by name


def check_settings(settings: Iterable[str], known: Iterable[str], prefix: str) -> None:
    """Refuses a setting that there is not, with the nearest that there is."""
    names = [prefix + name for name in known]
    for setting in settings:
        check_name("setting", prefix + setting, names)
