"""Agents, small enough to train within a test."""

from functools import partial
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
from tests.settings import paper_critic

_paper = partial(paper_critic, coefficient=0.3)
VARIANTS: dict[str, CriticConfig] = {
    **{name: config_type() for name, (config_type, _) in CRITICS.items()},
    "relative, as in the paper": _paper(),
    "relative, random pairs": _paper(pairs="random"),
    "relative, all pairs in closed form": _paper(pairs="all", clip=None),
    "relative, all pairs": _paper(pairs="all"),
    "relative, odd head": _paper(head="mlp"),
    "relative, all pairs, odd head": _paper(pairs="all", head="mlp"),
    "relative, one-step targets": _paper(target="one-step"),
    "relative, lambda targets": _paper(target="lambda"),
    "relative, anchored at zero": _paper(anchor="zero"),
    "relative, anchored at terminations": _paper(anchor="terminal"),
    "relative, anchored by least advantages": _paper(anchor="minvar"),
    "relative, partners of the minibatch": _paper(pairs="random", partners="minibatch"),
    "relative, refreshed targets": _paper(refresh_targets=True),
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
