"""Learning from environments whose values are known, one difficulty at a time."""

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from relval.critics import CRITICS, CriticConfig, DiscountedConfig
from relval.ppo import Agent, PPOConfig
from tests.ppo.probes import (
    COST,
    MODES,
    PROBES,
    TERMINAL,
    UNENDING,
    Probe,
    ProbeVectorEnv,
)
from tests.ppo.training import VARIANTS, in_gauge_of, learned_values, probabilities, train


def learn(envs: ProbeVectorEnv, critic: CriticConfig, gamma: float) -> Agent:
    config = PPOConfig(
        steps=8,
        epochs=6,
        minibatch=64,
        gamma=gamma,
        lam=0.8,
        clip=0.2,
        learning_rate=2e-2,
        max_grad_norm=0.5,
    )
    # Where γ V(s) − V(s') is learned, a constant added to V shows only by the factor 1 − γ.
    updates = 50 if isinstance(critic, DiscountedConfig) else 30
    return train(envs, critic, config, updates=updates)


def largest_error(agent: Agent, probe: Probe) -> float:
    """How far the critic is from the true values, up to its gauge."""
    truth = in_gauge_of(agent.critic.config, torch.tensor(probe.values))
    return float((learned_values(agent, torch.tensor(probe.observations)) - truth).abs().max())


def assert_learned(agent: Agent, probe: Probe) -> None:
    chances = probabilities(agent, torch.tensor(probe.observations))
    for state, action in probe.right.items():
        assert chances[state, action] > 0.9
    assert largest_error(agent, probe) < 0.15 * max(1.0, max(map(abs, probe.values)) / 4)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_the_tables_of_the_probes_are_right(probe: Probe) -> None:
    following, rewards = np.array(probe.following), np.array(probe.rewards)
    values = np.zeros(len(following))
    for _ in range(500):
        ahead = np.where(following == TERMINAL, 0.0, values[following])
        action_values = rewards + probe.gamma * ahead
        values = action_values.max(1)
    np.testing.assert_allclose(values, probe.values, atol=1e-12)
    gap = np.ptp(action_values, 1)
    assert {int(state) for state in gap.nonzero()[0]} == set(probe.right)
    assert all(action_values[state].argmax() == action for state, action in probe.right.items())


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
@pytest.mark.parametrize("name", CRITICS)
def test_every_critic_learns_every_probe(name: str, probe: Probe) -> None:
    assert_learned(learn(probe.make(8), VARIANTS[name], probe.gamma), probe)


@pytest.mark.parametrize("probe", [UNENDING, COST], ids=lambda probe: probe.name)
@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in CRITICS])
def test_every_kind_of_relative_critic_learns(name: str, probe: Probe) -> None:
    assert_learned(learn(probe.make(8), VARIANTS[name], probe.gamma), probe)


@pytest.mark.parametrize("name", [*CRITICS, "relative, all pairs in closed form"])
def test_truncation_under_next_step_auto_reset_is_bootstrapped_from(name: str) -> None:
    envs = UNENDING.make(8, AutoresetMode.NEXT_STEP)
    assert_learned(learn(envs, VARIANTS[name], UNENDING.gamma), UNENDING)


def test_termination_under_next_step_auto_reset_is_learned_from() -> None:
    envs = COST.make(8, AutoresetMode.NEXT_STEP)
    assert_learned(learn(envs, VARIANTS["relative"], COST.gamma), COST)


@pytest.mark.parametrize("mode", MODES)
def test_a_truncation_taken_for_a_termination_spoils_the_values(mode: AutoresetMode) -> None:
    envs = UNENDING.make(8, mode, truncation_terminates=True)
    agent = learn(envs, VARIANTS["absolute"], UNENDING.gamma)
    assert largest_error(agent, UNENDING) > 3.0


def test_a_truncation_taken_for_a_termination_spoils_value_differences() -> None:
    envs = UNENDING.make(8, truncation_terminates=True)
    agent = learn(envs, VARIANTS["relative"], UNENDING.gamma)
    assert largest_error(agent, UNENDING) > 1.5
