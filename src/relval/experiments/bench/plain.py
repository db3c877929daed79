"""PPO for Atari as single-file scripts have it: a plain loop around environments and networks."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from relval.networks import NetworkConfig, initialised, make_encoder
from relval.ppo import PPOConfig


class PlainLoop:
    """PPO with its own critic: relval's network and settings, and nothing else of it.

    Args:
      envs: A vector environment of images, with actions from 0 on, that resets by itself.
      observation_space: Of one environment.
      choices: How many actions there are.
      num_envs: How many environments.
      config: PPO's settings.
      critic_weight: Of half the squared error.
    """

    def __init__(
        self,
        envs: Any,
        observation_space: gym.Space[np.ndarray],
        choices: int,
        num_envs: int,
        config: PPOConfig,
        *,
        critic_weight: float,
    ) -> None:
        self.envs, self.config, self.critic_weight = envs, config, critic_weight
        self.encoder = make_encoder(observation_space, NetworkConfig(shared=True))
        self.policy = initialised(nn.Linear(self.encoder.features, choices), 0.01)
        self.critic = initialised(nn.Linear(self.encoder.features, 1), 1.0)
        modules = nn.ModuleList([self.encoder, self.policy, self.critic])
        self.parameters = list(modules.parameters())
        self.optimizer = torch.optim.Adam(
            self.parameters, lr=config.learning_rate, eps=config.adam_eps
        )
        shape = (config.steps, num_envs)
        self.observations = torch.zeros(*shape, *(observation_space.shape or ()), dtype=torch.uint8)
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.log_probs, self.values, self.rewards = torch.zeros(3, *shape)
        self.ended = torch.zeros(shape, dtype=torch.bool)
        self.observation = torch.from_numpy(envs.reset()[0])

    def iterate(self) -> None:
        """One rollout and one update."""
        self._play()
        advantages = self._advantages()
        returns = advantages + self.values
        rollout = (self.observations, self.actions, self.log_probs, advantages, returns)
        flat = [part.flatten(0, 1) for part in rollout]
        for _ in range(self.config.epochs):
            for i in torch.randperm(len(flat[0])).split(self.config.minibatch):
                self._step(*(part[i] for part in flat))

    @torch.no_grad()
    def _play(self) -> None:
        for t in range(self.config.steps):
            features = self.encoder(self.observation)
            choice = Categorical(logits=self.policy(features))
            self.observations[t] = self.observation
            self.values[t] = self.critic(features).squeeze(-1)
            self.actions[t] = choice.sample()
            self.log_probs[t] = choice.log_prob(self.actions[t])
            seen, rewards, terminated, truncated, _ = self.envs.step(self.actions[t].numpy())
            self.observation = torch.from_numpy(seen)
            self.rewards[t] = torch.from_numpy(np.sign(rewards))
            self.ended[t] = torch.from_numpy(terminated | truncated)

    @torch.no_grad()
    def _advantages(self) -> Tensor:
        """Generalised advantage estimates; a time limit is taken for an end."""
        gamma, lam = self.config.gamma, self.config.lam
        advantages = torch.zeros_like(self.rewards)
        value, advantage = self.critic(self.encoder(self.observation)).squeeze(-1), 0.0
        for t in reversed(range(self.config.steps)):
            goes_on = (~self.ended[t]).float()
            residual = self.rewards[t] + gamma * goes_on * value - self.values[t]
            advantages[t] = advantage = residual + gamma * lam * goes_on * advantage
            value = self.values[t]
        return advantages

    def _step(
        self,
        observations: Tensor,
        actions: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        returns: Tensor,
    ) -> None:
        """One gradient step."""
        clip = self.config.clip
        features = self.encoder(observations)
        choice = Categorical(logits=self.policy(features))
        ratio = (choice.log_prob(actions) - old_log_probs).exp()
        scaled = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
        gain = torch.min(ratio * scaled, ratio.clamp(1 - clip, 1 + clip) * scaled).mean()
        error = (self.critic(features).squeeze(-1) - returns).square().mean() / 2
        bonus = self.config.entropy * choice.entropy().mean()
        self.optimizer.zero_grad()
        (self.critic_weight * error - gain - bonus).backward()
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm)
        self.optimizer.step()
