"""Proximal policy optimisation (Schulman et al., 2017) around a critic of your choice.

A rollout goes one way: `Collector.collect`, then `update`, which lets the critic prepare the
rollout, deal out minibatches, and judge each of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor, nn

from relval.critics import CriticConfig, Rollout, make_critic
from relval.envs import Episode, EpisodeCounter, Normaliser
from relval.networks import Encoder, NetworkConfig, make_encoder, make_policy
from relval.relative import Trajectories

_FEW_NUMBERS = 2**10
"""Observations of one step, in numbers, that are few enough for NumPy to be faster."""


@dataclass(frozen=True)
class PPOConfig:
    """The numbers of PPO that do not belong to the critic."""

    steps: int = 128
    """Steps of each environment in a rollout."""
    epochs: int = 5
    """Passes over each rollout."""
    minibatch: int = 128
    """Transitions in a minibatch."""
    gamma: float = 0.99
    """Discount."""
    lam: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.1
    """Largest departure of the probability ratio from 1 that the loss rewards."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    learning_rate: float = 2.5e-4
    """Of Adam."""
    adam_eps: float = 1e-5
    """Of Adam."""
    max_grad_norm: float | None = 0.5
    """Longest gradient, over all parameters together; None for no limit."""
    anneal_learning_rate: bool = False
    """Let the learning rate fall linearly to zero."""
    anneal_clip: bool = False
    """Let the clip range fall linearly to zero."""


class Agent(nn.Module):
    """A policy and a critic, on one encoder or on one each."""

    def __init__(
        self,
        observation_space: gym.Space[np.ndarray],
        action_space: gym.Space[np.ndarray],
        network: NetworkConfig,
        critic: CriticConfig,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, network)
        self.policy = make_policy(self.encoder.features, action_space)
        self.own_encoder = None if network.shared else make_encoder(observation_space, network)
        self.critic = make_critic(critic, self.critic_encoder.features, action_space)

    @property
    def shared(self) -> bool:
        """Whether policy and critic see the same features."""
        return self.own_encoder is None

    @property
    def critic_encoder(self) -> Encoder:
        """The encoder that the critic sees through."""
        return self.encoder if self.own_encoder is None else self.own_encoder


def make_optimizer(agent: Agent, config: PPOConfig) -> torch.optim.Adam:
    """Adam over all of the agent's parameters, laid out in one tensor.

    The agent's parameters and their gradients become views of it: to clip and step one long vector
    costs a fraction of doing so layer by layer.
    """
    parameters = list(agent.parameters())
    flat = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    flat.grad = torch.zeros_like(flat)
    sizes = [parameter.numel() for parameter in parameters]
    pieces = zip(parameters, flat.detach().split(sizes), flat.grad.split(sizes), strict=True)
    for parameter, values, gradients in pieces:
        parameter.data = values.view_as(parameter)
        parameter.grad = gradients.view_as(parameter)
    return torch.optim.Adam([flat], lr=config.learning_rate, eps=config.adam_eps, fused=True)


@dataclass(frozen=True, eq=False)
class Collected(Rollout):
    """A rollout, with what PPO needs beside what the critic sees."""

    observations: Tensor
    """Of the states in which transitions began, `[T * N, ...]`."""
    log_prob: Tensor
    """Of the actions under the behaviour policy, `[T * N]`."""
    episodes: list[Episode]
    """Those that ended during the rollout, in order."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Where the time went."""


class NotFiniteError(ArithmeticError):
    """A NaN or an infinity; its message names the first quantity that was not finite."""


class Collector:
    """Steps environments with an agent, from one rollout to the next."""

    def __init__(
        self, envs: VectorEnv[Any, Any, Any], normaliser: Normaliser, *, seed: int
    ) -> None:
        self.envs = envs
        self.normaliser = normaliser
        self.counter = EpisodeCounter(envs)
        observations, _ = envs.reset(seed=seed)
        self.observations = normaliser.observe(observations)

    @torch.no_grad()
    def collect(self, agent: Agent, steps: int, generator: torch.Generator) -> Collected:
        """Plays `steps` steps of each environment."""
        num_envs, device = self.envs.num_envs, generator.device
        shape, dtype = self.observations.shape[1:], self.observations.dtype
        observations = np.empty((steps + 1, num_envs, *shape), dtype)
        rewards = np.zeros((steps, num_envs), np.float32)
        terminated = np.zeros((steps, num_envs), np.bool_)
        truncated = np.zeros((steps, num_envs), np.bool_)
        valid = np.ones((steps, num_envs), np.bool_)
        successor = np.arange(num_envs, (steps + 1) * num_envs).reshape(steps, num_envs)
        last_observations: list[np.ndarray] = []
        episodes: list[Episode] = []
        features, outputs, actions = [], [], []
        encode = _encoder_for_acting(agent, observations[0], device)
        noise = agent.policy.noise(steps, num_envs, generator=generator)
        acting = 0.0
        begin = time.perf_counter()

        for t in range(steps):
            observations[t] = self.observations
            valid[t] = ~self.counter.ignored

            before = time.perf_counter()
            features.append(encode(observations[t]))
            outputs.append(agent.policy(features[t]))
            actions.append(agent.policy.sample(outputs[t], noise[t]))
            chosen = agent.policy.to_environment(actions[t])
            acting += time.perf_counter() - before

            following, reward, terminated[t], cut, infos = self.envs.step(chosen)
            truncated[t] = cut & ~terminated[t]
            ended = terminated[t] | truncated[t]
            episodes += self.counter.count(reward, ended, infos)
            rewards[t] = self.normaliser.rewards(reward, ended, valid[t])
            self.observations = self.normaliser.observe(following)
            if not self.counter.next_step and truncated[t].any():
                for n in truncated[t].nonzero()[0]:
                    successor[t, n] = observations.shape[0] * num_envs + len(last_observations)
                    last = self.normaliser.observations(infos["final_obs"][n])
                    last_observations.append(last)
        observations[steps] = self.observations
        collecting = time.perf_counter() - begin

        _check_finite("observation", observations)
        _check_finite("reward", rewards)
        begin = time.perf_counter()
        states = torch.from_numpy(observations).to(device).flatten(0, 1)
        if last_observations:
            appended = np.stack(last_observations).astype(dtype)
            _check_finite("observation", appended)
            states = torch.cat([states, torch.from_numpy(appended).to(device)])
        if agent.shared:
            rest = agent.encoder(states[steps * num_envs :])
            all_features = torch.cat([*features, rest])
        else:
            all_features = torch.cat([agent.critic_encoder(part) for part in states.split(4096)])
        policy_outputs, all_actions = torch.cat(outputs), torch.cat(actions)
        fields = (rewards, terminated, truncated, successor, valid)
        collected = Collected(
            traj=Trajectories(
                *(torch.from_numpy(field).to(device) for field in fields),
                last_valid=torch.from_numpy(~self.counter.ignored).to(device),
            ),
            actions=all_actions,
            policy_outputs=policy_outputs,
            memory=agent.critic.remember(all_features),
            observations=states[: steps * num_envs],
            log_prob=agent.policy.log_prob(policy_outputs, all_actions),
            episodes=episodes,
        )
        acting += time.perf_counter() - begin
        collected.seconds.update(env=collecting + time.perf_counter() - begin - acting, act=acting)
        return collected


def _encoder_for_acting(
    agent: Agent, batch: np.ndarray, device: torch.device
) -> Callable[[np.ndarray], Tensor]:
    """From observations to features; through NumPy where PyTorch would mostly cost time to call."""
    if device.type == "cpu" and batch.ndim == 2 and batch.size <= _FEW_NUMBERS:
        encode = agent.encoder.on_arrays()
        return lambda observations: torch.from_numpy(encode(observations))
    return lambda observations: agent.encoder(torch.from_numpy(observations).to(device))


def update(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    rollout: Collected,
    config: PPOConfig,
    generator: torch.Generator,
    *,
    clip: float,
) -> dict[str, float]:
    """Learns from a rollout, and returns the means of what was seen meanwhile."""
    critic = agent.critic
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    prepared = critic.prepare(rollout, gamma=config.gamma, lam=config.lam)
    seen: dict[str, list[Tensor]] = {}

    for _ in range(config.epochs):
        for minibatch in critic.minibatches(rollout, prepared, config.minibatch, generator):
            i = minibatch.transitions
            observations = rollout.observations[minibatch.encode]
            critic_features = agent.critic_encoder(observations)
            features = (
                critic_features[: len(i)] if agent.shared else agent.encoder(observations[: len(i)])
            )
            outputs = agent.policy(features)
            verdict = critic.evaluate(prepared, minibatch, critic_features)

            log_ratio = agent.policy.log_prob(outputs, rollout.actions[i]) - rollout.log_prob[i]
            ratio = log_ratio.exp()
            clipped = ratio.clamp(1 - clip, 1 + clip)
            policy_loss = -torch.minimum(
                ratio * verdict.advantages, clipped * verdict.advantages
            ).mean()
            entropy = agent.policy.entropy(outputs).mean()
            loss = policy_loss - config.entropy * entropy + critic.config.coefficient * verdict.loss

            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.zero_()
            loss.backward()
            norm = _clip_gradients(parameters, config.max_grad_norm)
            optimizer.step()

            with torch.no_grad():
                metrics = {
                    "advantage": verdict.advantages.mean(),
                    "critic_loss": verdict.loss,
                    "policy_loss": policy_loss,
                    "entropy": entropy,
                    "gradient_norm": norm,
                    "approx_kl": (ratio - 1 - log_ratio).mean(),
                    "clip_fraction": (ratio != clipped).float().mean(),
                    **verdict.metrics,
                }
            for name, value in metrics.items():
                seen.setdefault(name, []).append(value.detach())

    means = {name: torch.stack(values).mean().item() for name, values in seen.items()}
    for name, mean in means.items():
        _check_finite(name, np.asarray(mean))
    return means


def _clip_gradients(parameters: list[Tensor], longest: float | None) -> Tensor:
    """Shortens the gradient of all parameters together, and returns its norm before.

    As `clip_grad_norm_` does, but without the cost of asking whether it may be fast.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm: Tensor = torch.stack([gradient.norm() for gradient in gradients]).norm()
    if longest is not None:
        scale = (longest / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)
    return norm


def _check_finite(name: str, values: np.ndarray) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)].flat[0]
        raise NotFiniteError(f"{name} is {bad}: learning stops before it spreads")
