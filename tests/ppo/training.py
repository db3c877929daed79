"""Agents, small enough to train within a test."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from relval.critics import CRITICS, CriticConfig, RelativeConfig
from relval.envs import Normaliser
from relval.networks import NetworkConfig
from relval.ppo import Agent, Collector, PPOConfig, update

VARIANTS: dict[str, CriticConfig] = {
    **{name: config_type() for name, (config_type, _) in CRITICS.items()},
    "relative, random pairs": RelativeConfig(pairs="random"),
    "relative, all pairs in closed form": RelativeConfig(pairs="all", clip=None),
    "relative, all pairs": RelativeConfig(pairs="all"),
    "relative, odd head": RelativeConfig(head="mlp"),
    "relative, all pairs, odd head": RelativeConfig(pairs="all", head="mlp"),
    "relative, one-step targets": RelativeConfig(target="one-step"),
    "relative, lambda targets": RelativeConfig(target="lambda"),
    "relative, anchored at zero": RelativeConfig(anchor="zero"),
    "relative, anchored at terminations": RelativeConfig(anchor="terminal"),
    "relative, anchored by least advantages": RelativeConfig(anchor="minvar"),
    "relative, partners of the minibatch": RelativeConfig(pairs="random", partners="minibatch"),
    "relative, refreshed targets": RelativeConfig(refresh_targets=True),
}
"""Every critic, and every way of the relative one to learn."""


def make_agent(
    observation_space: gym.Space[np.ndarray],
    action_space: gym.Space[Any],
    critic: CriticConfig,
    *,
    shared: bool = True,
    hidden: tuple[int, ...] = (16,),
    seed: int = 0,
) -> Agent:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = NetworkConfig(hidden=hidden, shared=shared)
        return Agent(observation_space, action_space, network, critic)


def make_collector(envs: VectorEnv[Any, Any, Any], *, seed: int = 0) -> Collector:
    shape = envs.single_observation_space.shape or ()
    normaliser = Normaliser(shape, envs.num_envs, gamma=0.99, obs=False, rewards=False)
    return Collector(envs, normaliser, seed=seed)


def train(
    envs: VectorEnv[Any, Any, Any],
    critic: CriticConfig,
    config: PPOConfig,
    *,
    updates: int,
    seed: int = 0,
) -> Agent:
    """An agent after some updates, its learning rate annealed to zero."""
    agent = make_agent(envs.single_observation_space, envs.single_action_space, critic, seed=seed)
    collector = make_collector(envs, seed=seed)
    optimizer = torch.optim.Adam(agent.parameters(), lr=config.learning_rate, eps=config.adam_eps)
    generator = torch.Generator().manual_seed(seed)
    for done in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * (1 - done / updates)
        rollout = collector.collect(agent, config.steps, generator)
        update(agent, optimizer, rollout, config, generator, clip=config.clip)
    return agent


@torch.no_grad()
def learned_values(agent: Agent, observations: Tensor) -> Tensor:
    """The critic's values of observations; those of a relative critic begin with zero."""
    memory: Tensor = agent.critic.remember(agent.critic_encoder(observations))
    config = agent.critic.config
    if not isinstance(config, RelativeConfig):
        return memory
    differences: Tensor = memory - memory[0]
    head: Any = agent.critic.head
    return differences if config.head == "linear" else head(differences)


def in_gauge_of(config: CriticConfig, values: Tensor) -> Tensor:
    """True values, as the critic of a configuration is to know them."""
    return values - values[0] if isinstance(config, RelativeConfig) else values


@torch.no_grad()
def probabilities(agent: Agent, observations: Tensor) -> Tensor:
    outputs: Tensor = agent.policy(agent.encoder(observations))
    return outputs.softmax(-1)
