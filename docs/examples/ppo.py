"""PPO for CartPole in one file."""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--total-steps", type=int, default=150_000)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

N, T = 8, 128  # environments, and the steps of each in a rollout
EPOCHS, MINIBATCH = 4, 256
GAMMA, LAM, CLIP, LEARNING_RATE = 0.99, 0.95, 0.2, 1e-3
CRITIC_WEIGHT = 0.5


def network(inputs, outputs, gain):
    """Two hidden layers; where there is one output, its dimension is dropped."""
    layers = [nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    layers.append(nn.Linear(64, outputs))
    for layer, scale in zip(layers[::2], [2**0.5, 2**0.5, gain], strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers, nn.Flatten(-2) if outputs == 1 else nn.Identity())


def gae(rewards, values, next_values, terminated, ended):
    """Generalised advantage estimates, all `[T, N]`."""
    residuals = rewards + GAMMA * torch.where(terminated, 0, next_values) - values
    advantages = residuals.clone()
    for t in reversed(range(T - 1)):
        advantages[t] += GAMMA * LAM * torch.where(ended[t], 0, advantages[t + 1])
    return advantages


torch.manual_seed(args.seed)
torch.set_num_threads(1)
envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * N, autoreset_mode=AutoresetMode.SAME_STEP)
size, actions_count = envs.single_observation_space.shape[0], envs.single_action_space.n
policy, critic = network(size, actions_count, 0.01), network(size, 1, 1.0)
parameters = [*policy.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, eps=1e-5)
states, following = torch.zeros(T, N, size), torch.zeros(T, N, size)
actions, log_probs = torch.zeros(T, N, dtype=torch.long), torch.zeros(T, N)
rewards = torch.zeros(T, N)
terminated, truncated = torch.zeros(2, T, N, dtype=torch.bool)
state = torch.from_numpy(envs.reset(seed=args.seed)[0])
scores, running = deque(maxlen=100), np.zeros(N)

updates = max(1, args.total_steps // (T * N))
for update in range(updates):
    optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - update / updates)
    for t in range(T):
        states[t] = state
        with torch.no_grad():
            choice = Categorical(logits=policy(state))
            actions[t] = choice.sample()
            log_probs[t] = choice.log_prob(actions[t])
        observation, reward, terminal, cut, infos = envs.step(actions[t].numpy())
        state = torch.from_numpy(observation)
        rewards[t] = torch.from_numpy(reward)
        terminated[t], truncated[t] = torch.from_numpy(terminal), torch.from_numpy(cut & ~terminal)
        following[t] = state  # what truly followed, which is not the next episode's first state
        running += reward
        for n in np.flatnonzero(terminal | cut):
            following[t, n] = torch.from_numpy(infos["final_obs"][n])
            scores.append(running[n])
            running[n] = 0

    with torch.no_grad():
        values, next_values = critic(states), critic(following)
    ended = terminated | truncated
    advantages = gae(rewards, values, next_values, terminated, ended).flatten()
    returns = advantages + values.flatten()

    inputs = states.flatten(0, 1)
    for _ in range(EPOCHS):
        for i in torch.randperm(T * N).split(MINIBATCH):
            critic_loss = (critic(inputs[i]) - returns[i]).square().mean()
            choice = Categorical(logits=policy(inputs[i]))
            log_prob = choice.log_prob(actions.flatten()[i])
            ratio = (log_prob - log_probs.flatten()[i]).exp()
            advantage = (advantages[i] - advantages[i].mean()) / (advantages[i].std() + 1e-8)
            gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            optimizer.zero_grad()
            (CRITIC_WEIGHT * critic_loss - gain.mean()).backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()

    if update % 20 == 19 or update == updates - 1:
        print(f"step {(update + 1) * T * N}: mean of the last 100 returns {np.mean(scores):.1f}")
