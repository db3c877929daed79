"""Finite decision processes small enough to enumerate every trajectory."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from relval.relative import Delta, LinearDelta, Trajectories


@dataclass(frozen=True, eq=False)
class FiniteProcess:
    """A decision process under a softmax policy, one logit for each state and action."""

    transition: Tensor
    """Probabilities of the next state, `[S, A, S]`; what a row lacks to 1 is termination's."""
    reward: Tensor
    """Reward for each state and action, `[S, A]`."""
    logits: Tensor
    """The policy's logits, `[S, A]`."""
    gamma: float
    """Discount."""

    @cached_property
    def policy(self) -> Tensor:
        """Probability of each action in each state, `[S, A]`."""
        return self.logits.softmax(-1)

    @cached_property
    def state_transition(self) -> Tensor:
        """Probability of each next state under the policy, `[S, S]`."""
        return torch.einsum("sa,sat->st", self.policy, self.transition)

    @cached_property
    def values(self) -> Tensor:
        """True values under the policy, `[S]`."""
        reward = (self.policy * self.reward).sum(-1)
        identity = torch.eye(len(reward), dtype=reward.dtype)
        system = identity - self.gamma * self.state_transition
        solution: Tensor = torch.linalg.solve(system, reward)
        return solution

    @cached_property
    def advantages(self) -> Tensor:
        """True advantage of each action in each state, `[S, A]`."""
        return self.reward + self.gamma * self.transition @ self.values - self.values[:, None]

    def policy_gradient(self, start: int, steps: int) -> Tensor:
        """Σ_t E[∇ log π(a_t | s_t) A(s_t, a_t)] over the first `steps` steps, `[S, A]`.

        By propagating the distribution of states, without trajectories.
        """
        visits = torch.zeros_like(self.values)
        visits[start] = 1.0
        gradient = torch.zeros_like(self.policy)
        for _ in range(steps):
            # E_a[∇ log π(a|s) A(s, a)] is π(a|s) A(s, a) for a softmax, since E_a[A(s, a)] = 0.
            gradient += visits[:, None] * self.policy * self.advantages
            visits = visits @ self.state_transition
        return gradient

    def enumerate(self, start: int, steps: int) -> "Enumeration":
        """All trajectories of `steps` steps from a state, ended early where they terminate."""
        finished: list[tuple[list[int], list[int], bool, float]] = []
        growing: list[tuple[list[int], list[int], float]] = [([start], [], 1.0)]
        while growing:
            states, actions, probability = growing.pop()
            if len(actions) == steps:
                finished.append((states, actions, False, probability))
                continue
            here = states[-1]
            for action, chosen in enumerate(self.policy[here].tolist()):
                onward = self.transition[here, action].tolist()
                for following, chance in enumerate(onward):
                    if chance > 0:
                        path = [*states, following], [*actions, action]
                        growing.append((*path, probability * chosen * chance))
                if (ending := 1 - sum(onward)) > 1e-9:
                    path = [*states, 0], [*actions, action]
                    finished.append((*path, True, probability * chosen * ending))
        return Enumeration.of(self, steps, finished)


@dataclass(frozen=True, eq=False)
class Enumeration:
    """Every trajectory of a process, one per environment of a rollout, with its probability."""

    process: FiniteProcess
    traj: Trajectories
    states: Tensor
    """The process's state behind each state number, `[S]`."""
    actions: Tensor
    """`[T, N]`; arbitrary where the rollout is invalid."""
    probability: Tensor
    """`[N]`, summing to 1."""

    @classmethod
    def of(
        cls,
        process: FiniteProcess,
        steps: int,
        paths: list[tuple[list[int], list[int], bool, float]],
    ) -> "Enumeration":
        """Lays out paths, each its states, actions, whether it terminated, and its probability."""
        states = torch.zeros(steps + 1, len(paths), dtype=torch.long)
        actions = torch.zeros(steps, len(paths), dtype=torch.long)
        terminated = torch.zeros(steps, len(paths), dtype=torch.bool)
        valid = torch.zeros(steps, len(paths), dtype=torch.bool)
        for n, (path, choices, ended, _) in enumerate(paths):
            length = len(choices)
            states[: length + 1, n] = torch.tensor(path)
            actions[:length, n] = torch.tensor(choices)
            valid[:length, n] = True
            terminated[length - 1, n] = ended
        rewards = process.reward[states[:-1], actions]
        probability = torch.tensor([path[-1] for path in paths], dtype=rewards.dtype)
        traj = Trajectories(rewards, terminated, valid=valid)
        return cls(process, traj, states.flatten(), actions, probability)

    @cached_property
    def log_gradients(self) -> Tensor:
        """∇ log π(a_t | s_t) by the policy's logits, `[T, N, S, A]`; zero where invalid."""
        states = self.states.view(-1, self.traj.envs)[:-1]
        one_hot_state = torch.nn.functional.one_hot(states, len(self.process.policy))
        one_hot_action = torch.nn.functional.one_hot(self.actions, self.process.policy.shape[1])
        gradients = one_hot_state[..., :, None] * (
            one_hot_action[..., None, :] - self.process.policy
        )
        return torch.where(self.traj.valid[..., None, None], gradients, 0)

    def expectation(self, x: Tensor) -> Tensor:
        """The mean over trajectories of `x`, whose first dimension is N."""
        return torch.einsum("n,n...->...", self.probability, x)

    def variance(self, x: Tensor) -> Tensor:
        """The variance over trajectories of vectors `x`, `[N, D]`, summed over dimensions."""
        return self.expectation((x - self.expectation(x)).square().sum(1))

    def gradient(self, advantages: Tensor) -> Tensor:
        """E[Σ_t ∇ log π(a_t | s_t) A_t] for advantages `[T, N]`, `[S, A]`."""
        return self.expectation((self.log_gradients * advantages[..., None, None]).sum(0))


class Targets(Protocol):
    """Targets for pairs of transitions, such as `n_step_targets` with its options bound."""

    def __call__(self, delta: Delta, traj: Trajectories, i: Tensor, j: Tensor, /) -> Tensor:
        """The targets, in the shape of `i` and `j`."""
        ...


def expected_target(
    process: FiniteProcess, first: int, second: int, *, steps: int, targets: Targets
) -> float:
    """The mean target for two states from true differences, over all that may follow either."""
    sides = process.enumerate(first, steps), process.enumerate(second, steps)
    traj = Trajectories(
        torch.cat([side.traj.rewards for side in sides], 1),
        torch.cat([side.traj.terminated for side in sides], 1),
        valid=torch.cat([side.traj.valid for side in sides], 1),
    )
    states = torch.cat([side.states.view(steps + 1, -1) for side in sides], 1).flatten()
    i, j = torch.meshgrid(*traj.states[0].split([side.traj.envs for side in sides]), indexing="ij")
    expected = targets(LinearDelta(process.values[states]), traj, i, j)
    return (sides[0].probability @ expected @ sides[1].probability).item()


def unending_process() -> FiniteProcess:
    """Two states and two actions, values of about 10, and no end."""
    return FiniteProcess(
        transition=torch.tensor(
            [[[0.8, 0.2], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]]], dtype=torch.float64
        ),
        reward=torch.tensor([[1.0, 0.0], [2.0, 0.5]], dtype=torch.float64),
        logits=torch.tensor([[0.3, -0.2], [-0.4, 0.6]], dtype=torch.float64),
        gamma=0.9,
    )


def terminating_process() -> FiniteProcess:
    """The same, but the second action ends three episodes in ten."""
    process = unending_process()
    survival = torch.tensor([1.0, 0.7], dtype=torch.float64)[:, None]
    return replace(process, transition=process.transition * survival)
