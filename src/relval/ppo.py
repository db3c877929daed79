"""Proximal policy optimisation (Schulman et al., 2017) around a critic of your choice.

A rollout goes one way: `Collector.collect`, then `update`, which lets the critic prepare the
rollout, deal out minibatches, and judge each of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor, nn

from relval._bounds import Count, Positive, Share, Weight
from relval.critics import CriticConfig, Minibatch, Rollout, make_critic
from relval.envs import Episode, EpisodeCounter, Normaliser
from relval.networks import Encoder, NetworkConfig, channels_last, make_encoder, make_policy, rows
from relval.optimizer import Compiler, as_it_is, descend, shortened
from relval.relative import Trajectories

_FEW_NUMBERS = 2**10
"""Observations of one step, in numbers, that are few enough for NumPy to be faster."""


@dataclass(frozen=True)
class PPOConfig:
    """The numbers of PPO that do not belong to the critic."""

    steps: Count = 128
    """Steps of each environment in a rollout."""
    epochs: Count = 5
    """Passes over each rollout."""
    minibatch: Count = 128
    """Transitions in a minibatch."""
    gamma: Share = 0.99
    """Discount."""
    lam: Share = 0.95
    """λ of generalised advantage estimation."""
    clip: Positive = 0.1
    """Largest departure of the probability ratio from 1 that the loss rewards."""
    entropy: Weight = 0.01
    """Weight of the entropy bonus."""
    learning_rate: Positive = 2.5e-4
    """Of Adam."""
    adam_eps: Positive = 1e-5
    """Of Adam."""
    max_grad_norm: Positive | None = 0.5
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


@dataclass(frozen=True, eq=False)
class Collected(Rollout):
    """A rollout, with what PPO needs beside what the critic sees."""

    states: Tensor
    """Observations of all states, `[S, ...]`."""
    log_prob: Tensor
    """Of the actions under the behaviour policy, `[T * N]`."""
    episodes: list[Episode]
    """Those that ended during the rollout, in order."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Where the time went."""

    @property
    def observations(self) -> Tensor:
        """Of the states in which transitions began, `[T * N, ...]`."""
        return self.states[: len(self.actions)]


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
        record = _Record(steps, self.observations)
        episodes: list[Episode] = []
        features, outputs, actions = [], [], []
        encode = _encoder_for_acting(agent, self.observations, generator.device)
        noise = agent.policy.noise(steps, self.envs.num_envs, generator=generator)
        acting = 0.0
        begin = time.perf_counter()

        for t in range(steps):
            record.observations[t] = self.observations
            record.valid[t] = ~self.counter.ignored

            before = time.perf_counter()
            features.append(encode(self.observations))
            outputs.append(agent.policy(features[t]))
            actions.append(agent.policy.sample(outputs[t], noise[t]))
            chosen = agent.policy.to_environment(actions[t])
            acting += time.perf_counter() - before

            following, reward, terminated, cut, infos = self.envs.step(chosen)
            truncated = cut & ~terminated
            ended = terminated | truncated
            episodes += self.counter.count(reward, ended, infos)
            record.rewards[t] = self.normaliser.rewards(reward, ended, record.valid[t])
            record.terminated[t], record.truncated[t] = terminated, truncated
            self.observations = self.normaliser.observe(following)
            if not self.counter.next_step:
                for n in truncated.nonzero()[0]:
                    record.cut(t, n, self.normaliser.observations(infos["final_obs"][n]))
        record.observations[steps] = self.observations
        record.check()

        collected = time.perf_counter()
        states = record.states(generator.device)
        if agent.shared:
            rest = agent.encoder(states[record.rewards.size :])
            all_features = torch.cat([*features, rest])
        else:
            all_features = torch.cat([agent.critic_encoder(part) for part in states.split(4096)])
        policy_outputs, all_actions = torch.cat(outputs), torch.cat(actions)
        rollout = Collected(
            traj=record.trajectories(~self.counter.ignored, generator.device),
            actions=all_actions,
            policy_outputs=policy_outputs,
            memory=agent.critic.remember(all_features),
            states=states,
            log_prob=agent.policy.log_prob(policy_outputs, all_actions),
            episodes=episodes,
        )
        rollout.seconds["env"] = collected - begin - acting
        rollout.seconds["act"] = time.perf_counter() - collected + acting
        return rollout


class _Record:
    """What environments gave in a rollout, as arrays that are filled step by step.

    Args:
      steps: T.
      first: The observations that it begins with, `[N, ...]`.
    """

    def __init__(self, steps: int, first: np.ndarray) -> None:
        num_envs = len(first)
        self.observations = np.empty((steps + 1, *first.shape), first.dtype)
        self.rewards = np.zeros((steps, num_envs), np.float32)
        self.terminated = np.zeros((steps, num_envs), np.bool_)
        self.truncated = np.zeros((steps, num_envs), np.bool_)
        self.valid = np.ones((steps, num_envs), np.bool_)
        self.successor = np.arange(num_envs, (steps + 1) * num_envs).reshape(steps, num_envs)
        self.appended: list[np.ndarray] = []
        """The true last observations of episodes that were cut."""

    def cut(self, t: int, n: int, last: np.ndarray) -> None:
        """Notes which state a transition led to, where the next row begins another episode."""
        self.successor[t, n] = self.rewards.size + self.rewards.shape[1] + len(self.appended)
        self.appended.append(last.astype(self.observations.dtype))

    def check(self) -> None:
        """Refuses what is not finite."""
        for observations in (self.observations, *self.appended):
            _check_finite("observation", observations)
        _check_finite("reward", self.rewards)

    def states(self, device: torch.device) -> Tensor:
        """Observations of all states, `[S, ...]`; images channels last, as they will be encoded."""
        states = torch.from_numpy(self.observations).to(device).flatten(0, 1)
        if self.appended:
            states = torch.cat([states, torch.from_numpy(np.stack(self.appended)).to(device)])
        return channels_last(states)

    def trajectories(self, last_valid: np.ndarray, device: torch.device) -> Trajectories:
        """All but the observations; `last_valid` says it of the states after the last step."""
        fields = (self.rewards, self.terminated, self.truncated, self.successor, self.valid)
        return Trajectories(
            *(torch.from_numpy(field).to(device) for field in fields),
            last_valid=torch.from_numpy(last_valid).to(device),
        )


def _encoder_for_acting(
    agent: Agent, batch: np.ndarray, device: torch.device
) -> Callable[[np.ndarray], Tensor]:
    """From observations to features; through NumPy where PyTorch would mostly cost time to call."""
    encoder, few = agent.encoder, batch.ndim == 2 and batch.size <= _FEW_NUMBERS
    if device.type == "cpu" and encoder.bf16:
        copied = encoder.in_bf16()
        return lambda observations: copied(torch.from_numpy(observations))
    if device.type == "cpu" and few:
        encode = encoder.on_arrays()
        return lambda observations: torch.from_numpy(encode(observations))
    return lambda observations: encoder(torch.from_numpy(observations).to(device))


def update(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    rollout: Collected,
    config: PPOConfig,
    generator: torch.Generator,
    *,
    clip: float | Tensor,
) -> dict[str, float]:
    """Learns from a rollout, and returns the means of what was seen meanwhile."""
    return fetch(learn(agent, optimizer, rollout, config, generator, clip=clip))


def fetch(means: dict[str, Tensor]) -> dict[str, float]:
    """The means as numbers, all finite; the one moment in which a device is waited for."""
    numbers = dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))
    for name, mean in numbers.items():
        _check_finite(name, np.asarray(mean))
    return numbers


def learn(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    rollout: Collected,
    config: PPOConfig,
    generator: torch.Generator,
    *,
    clip: float | Tensor,
    compiled: Compiler = as_it_is,
) -> dict[str, Tensor]:
    """All gradient steps of an update; nothing in it waits for a device.

    Args:
      agent: Who learns.
      optimizer: Its optimiser, from `make_optimizer`.
      rollout: What it learns from.
      config: How.
      generator: The source of random numbers.
      clip: The clip range, by now.
      compiled: Makes a function of tensors faster.
    """
    prepared = agent.critic.prepare(rollout, gamma=config.gamma, lam=config.lam)
    once = agent.critic.diagnose(rollout, prepared, gamma=config.gamma, lam=config.lam)
    seen: list[dict[str, Tensor]] = []
    judge, shorten = compiled(_judge), compiled(shortened)
    parameters = list(agent.parameters())
    for epoch in range(config.epochs):
        if epoch and agent.critic.refreshes:
            with torch.no_grad():
                memory = agent.critic.remember(agent.critic_encoder(rollout.states))
            now = replace(rollout, memory=memory)
            prepared = agent.critic.refresh(prepared, now, gamma=config.gamma, lam=config.lam)
        for minibatch in agent.critic.minibatches(rollout, prepared, config.minibatch, generator):
            if agent.shared and not seen:
                once |= _look_at_features(agent, rollout, prepared, minibatch, config.entropy, clip)
            loss, metrics = judge(agent, rollout, prepared, minibatch, config.entropy, clip)
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            gradient, norm = shorten(gradients, config.max_grad_norm)
            descend(optimizer, parameters, gradient)
            seen.append({**metrics, "gradient_norm": norm})
    means = {name: torch.stack([metrics[name] for metrics in seen]).mean() for name in seen[0]}
    return once | means


def _judge(
    agent: Agent,
    rollout: Collected,
    prepared: Any,
    minibatch: Minibatch,
    entropy_weight: float,
    clip: float | Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a minibatch, and what is worth a look."""
    observations = rows(rollout.observations, minibatch.encode)
    seen = agent.critic_encoder(observations)
    count = len(minibatch.transitions)
    features = seen[:count] if agent.shared else agent.encoder(observations[:count])
    sides, metrics = _losses(
        agent, rollout, prepared, minibatch, features, seen, entropy_weight, clip
    )
    return sides[0] + sides[1], metrics


def _look_at_features(
    agent: Agent,
    rollout: Collected,
    prepared: Any,
    minibatch: Minibatch,
    entropy_weight: float,
    clip: float | Tensor,
) -> dict[str, Tensor]:
    """Who pulls at the features that policy and critic share, and how many of them are dead.

    The critic's share is that of its gradient's length, by the features, in the sum of both.
    """
    with torch.no_grad():
        features = agent.encoder(rows(rollout.observations, minibatch.encode))
    features.requires_grad_()
    own = features[: len(minibatch.transitions)]
    sides, _ = _losses(agent, rollout, prepared, minibatch, own, features, entropy_weight, clip)
    policy, critic = (torch.autograd.grad(side, features, retain_graph=True)[0] for side in sides)
    lengths = policy.norm(), critic.norm()
    return {
        "critic_share": lengths[1] / (lengths[0] + lengths[1]).clamp(min=1e-12),
        "dead_features": (features == 0).all(0).to(lengths[0].dtype).mean(),
    }


def _losses(
    agent: Agent,
    rollout: Collected,
    prepared: Any,
    minibatch: Minibatch,
    features: Tensor,
    seen_by_critic: Tensor,
    entropy_weight: float,
    clip: float | Tensor,
) -> tuple[tuple[Tensor, Tensor], dict[str, Tensor]]:
    """The losses of policy and critic, weighted, and what is worth a look."""
    i = minibatch.transitions
    outputs = agent.policy(features)
    verdict = agent.critic.evaluate(prepared, minibatch, seen_by_critic)

    log_ratio = agent.policy.log_prob(outputs, rollout.actions[i]) - rollout.log_prob[i]
    policy_loss, moved = surrogate(log_ratio, verdict.advantages, clip)
    entropy = agent.policy.entropy(outputs).mean()
    sides = policy_loss - entropy_weight * entropy, agent.critic.config.coefficient * verdict.loss
    metrics = {
        "critic_loss": verdict.loss.detach(),
        "policy_loss": policy_loss.detach(),
        "entropy": entropy.detach(),
        **moved,
        **verdict.metrics,
    }
    return sides, metrics


def surrogate(
    log_ratio: Tensor, advantages: Tensor, clip: float | Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """PPO's clipped objective as a loss, and how far the policy has moved.

    −mean min(ρ A, clip(ρ, 1 − ε, 1 + ε) A), Schulman et al. (2017), Eq. 7.

    Args:
      log_ratio: log ρ, of the actions' probabilities now and when they were chosen, `[B]`.
      advantages: A, `[B]`, without a gradient.
      clip: ε > 0.
    """
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)  # type: ignore[arg-type]
    loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
    with torch.no_grad():
        moved = {
            "approx_kl": (ratio - 1 - log_ratio).mean(),
            "clip_fraction": (ratio != clipped).float().mean(),
        }
    return loss, moved


def _check_finite(name: str, values: np.ndarray) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)].flat[0]
        raise NotFiniteError(f"{name} is {bad}: learning stops before it spreads")
