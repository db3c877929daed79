"""Rollouts as critics see them, made up."""

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from relval.critics import Critic, CriticConfig, Evaluation, Minibatch, Rollout, make_critic
from relval.relative import Trajectories

FEATURES = 6
ACTIONS = 3
GAMMA = 0.9
LAM = 0.8


def a_trajectory(steps: int = 12, envs: int = 4, seed: int = 0) -> Trajectories:
    """A rollout with ends of all kinds, some under same-step, some under next-step auto-reset."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(steps, envs, dtype=torch.float64, generator=generator)
    chance = torch.rand(steps, envs, generator=generator)
    valid = torch.ones(steps, envs, dtype=torch.bool)
    half = envs // 2
    for t in range(1, steps):
        valid[t, half:] = ~((chance[t - 1, half:] < 0.35) & valid[t - 1, half:])
    terminated = (chance < 0.2) & valid
    truncated = (chance >= 0.2) & (chance < 0.35) & valid
    successor = torch.arange(envs, (steps + 1) * envs).view(steps, envs)
    same_step = truncated[:, :half]
    first = (steps + 1) * envs
    successor[:, :half][same_step] = torch.arange(first, first + int(same_step.sum()))
    return Trajectories(rewards, terminated, truncated, successor, valid)


class Case:
    """A critic in double precision, a rollout that it remembers, and what it made of it."""

    def __init__(self, config: CriticConfig, traj: Trajectories | None = None) -> None:
        self.traj = a_trajectory() if traj is None else traj
        with torch.random.fork_rng():
            torch.manual_seed(3)
            actions: gym.Space[Any] = gym.spaces.Discrete(ACTIONS)
            self.critic: Critic[Any] = make_critic(config, FEATURES, actions).double()
            count = self.traj.steps * self.traj.envs
            self.features = torch.randn(self.traj.num_states, FEATURES, dtype=torch.float64)
            with torch.no_grad():
                memory = self.critic.remember(self.features)
            self.rollout = Rollout(
                traj=self.traj,
                actions=torch.randint(ACTIONS, (count,)),
                policy_outputs=torch.randn(count, ACTIONS, dtype=torch.float64),
                memory=memory,
            )
        self.prepared = self.critic.prepare(self.rollout, gamma=GAMMA, lam=LAM)

    @property
    def head(self) -> Any:
        return self.critic.head

    def minibatches(self, size: int = 16, seed: int = 0) -> list[Minibatch]:
        generator = torch.Generator().manual_seed(seed)
        return list(self.critic.minibatches(self.rollout, self.prepared, size, generator))

    def evaluate(self, minibatch: Minibatch) -> Evaluation:
        return self.critic.evaluate(self.prepared, minibatch, self.features[minibatch.encode])

    def gradient(self, loss: Tensor) -> Tensor:
        """Of a loss by all parameters of the critic."""
        gradients = torch.autograd.grad(loss, list(self.critic.parameters()), allow_unused=True)
        pairs = zip(gradients, self.critic.parameters(), strict=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])

    def learn_something(self) -> None:
        """Moves the parameters away from those that the rollout was collected with."""
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(4)
            for parameter in self.critic.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)

    def advantages(self) -> Tensor:
        """Of all valid transitions, in order."""
        (minibatch,) = self.minibatches(size=10**6)
        return self.evaluate(minibatch).advantages[minibatch.transitions.argsort()]


def assert_same_loss(case: Case, actual: Tensor, expected: Tensor) -> None:
    """Two losses are equal, with their gradients."""
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    gradient = case.gradient(expected)
    assert gradient.any()
    torch.testing.assert_close(case.gradient(actual), gradient, rtol=1e-9, atol=1e-9)
