"""Critics for PPO, one file each. To add one, write its file and register its name here."""

from typing import Any

import gymnasium as gym
import numpy as np

from relval.critics.absolute import AbsoluteConfig as AbsoluteConfig
from relval.critics.absolute import AbsoluteCritic
from relval.critics.base import Critic as Critic
from relval.critics.base import CriticConfig as CriticConfig
from relval.critics.base import Evaluation as Evaluation
from relval.critics.base import Minibatch as Minibatch
from relval.critics.base import Rollout as Rollout
from relval.critics.dae import DAEConfig as DAEConfig
from relval.critics.dae import DAECritic
from relval.critics.discounted import DiscountedConfig as DiscountedConfig
from relval.critics.discounted import DiscountedCritic
from relval.critics.relative import RelativeConfig as RelativeConfig
from relval.critics.relative import RelativeCritic

CRITICS: dict[str, tuple[type[CriticConfig], type[Critic[Any]]]] = {
    "absolute": (AbsoluteConfig, AbsoluteCritic),
    "relative": (RelativeConfig, RelativeCritic),
    "discounted": (DiscountedConfig, DiscountedCritic),
    "dae": (DAEConfig, DAECritic),
}


def critic_name(config: CriticConfig) -> str:
    """The name under which a configuration's critic is registered."""
    for name, (config_type, _) in CRITICS.items():
        if type(config) is config_type:
            return name
    raise ValueError(f"{type(config).__name__} belongs to no critic of {', '.join(CRITICS)}")


def make_critic(
    config: CriticConfig, features: int, action_space: gym.Space[np.ndarray]
) -> Critic[Any]:
    """The critic that a configuration describes."""
    name = critic_name(config)
    critic_type: Any = CRITICS[name][1]
    discrete = isinstance(action_space, gym.spaces.Discrete)
    if critic_type.discrete_only and not discrete:
        raise ValueError(
            f"the critic {name!r} has one output per action, so it needs discrete actions, but "
            f"this environment's are {action_space}; choose another critic"
        )
    actions = int(action_space.n) if isinstance(action_space, gym.spaces.Discrete) else 0
    critic: Critic[Any] = critic_type(config, features, actions)
    return critic
