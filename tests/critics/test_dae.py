from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from relval.critics import CRITICS, CriticConfig, DAEConfig, Minibatch, Rollout, make_critic
from relval.experiments.theory.finite import FiniteProcess
from relval.relative import Trajectories
from tests.critics.rollouts import ACTIONS, GAMMA, Case, a_trajectory, assert_same_loss


def segments(traj: Trajectories) -> dict[int, list[int]]:
    """The transitions of each segment, by its first one."""
    found: dict[int, list[int]] = {}
    for n in range(traj.envs):
        first = None
        for t in range(traj.steps):
            if not traj.valid[t, n]:
                first = None
                continue
            number = t * traj.envs + n
            first = number if first is None else first
            found.setdefault(first, []).append(number)
            if traj.terminated[t, n] or traj.truncated[t, n]:
                first = None
    return found


def centred(case: Case) -> Tensor:
    """Advantages of all actions in all transitions, by hand."""
    critic: Any = case.critic
    raw: Tensor = critic.advantage(case.features[: len(case.rollout.actions)])
    chances = case.rollout.policy_outputs.softmax(-1)
    return raw - torch.einsum("ta,ta->t", chances, raw)[:, None]


def loss_by_hand(case: Case, minibatch: Minibatch) -> Tensor:
    """G_L = last, G_i = r_i − A(s_i, a_i) + γ G_{i+1}, segment by segment."""
    critic: Any = case.critic
    traj, rollout = case.traj, case.rollout
    taken = centred(case)[torch.arange(len(rollout.actions)), rollout.actions]
    rewards, terminated = traj.rewards.flatten(), traj.terminated.flatten()
    chosen = set(minibatch.transitions.tolist())
    errors = []
    for numbers in segments(traj).values():
        if numbers[0] not in chosen:
            continue
        last = numbers[-1]
        following = rollout.memory[traj.successor.flatten()[last]].detach()
        g = torch.zeros_like(following) if terminated[last] else following
        for i in reversed(numbers):
            g = rewards[i] - taken[i] + GAMMA * g
            errors.append((g - critic.value(case.features[i]).squeeze(-1)).square())
    assert len(errors) == len(chosen)
    return torch.stack(errors).mean()


def test_the_loss_backs_up_through_whole_segments() -> None:
    case = Case(DAEConfig())
    case.learn_something()
    for minibatch in case.minibatches():
        assert_same_loss(case, case.evaluate(minibatch).loss, loss_by_hand(case, minibatch))


def test_advantages_are_centred_under_the_behaviour_policy() -> None:
    """Σ_a π_old A = 0: with each action in turn taken, the advantages average to nothing."""
    case = Case(DAEConfig(normalise_advantages=False))
    case.learn_something()
    count = len(case.rollout.actions)
    columns = []
    for action in range(ACTIONS):
        rollout = Rollout(
            case.traj,
            torch.full((count,), action),
            case.rollout.policy_outputs,
            case.rollout.memory,
        )
        prepared = case.critic.prepare(rollout, gamma=GAMMA, lam=0.5)
        (minibatch,) = case.minibatches(size=10**6)
        features = case.features[minibatch.encode]
        columns.append(case.critic.evaluate(prepared, minibatch, features).advantages)
    advantages = torch.stack(columns, 1)
    chances = case.rollout.policy_outputs.softmax(-1)[minibatch.transitions]
    mean = (chances * advantages).sum(1)
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-12)
    torch.testing.assert_close(advantages, centred(case)[minibatch.transitions].detach())
    assert advantages.abs().max() > 0.1


def test_gradients_reach_values_and_all_later_advantages_but_not_what_is_bootstrapped() -> None:
    """A cut segment of four steps: the error of its first step alone."""
    traj = Trajectories(torch.ones(4, 1).double(), torch.zeros(4, 1, dtype=torch.bool))
    case = Case(DAEConfig(), traj)
    critic: Any = case.critic
    rollout = case.rollout
    prepared = critic.prepare(rollout, gamma=GAMMA, lam=0.5)
    transitions = torch.arange(4)
    features = case.features[:4].clone().requires_grad_()
    minibatch = Minibatch(transitions, transitions)
    loss = critic.evaluate(prepared, minibatch, features).loss

    # ∂loss/∂A_k is −2/4 Σ_{i<=k} γ^(k−i) e_i; ∂loss/∂V_i is −2/4 e_i.
    taken = centred(case)[torch.arange(4), rollout.actions].detach()
    values = critic.value(case.features[:4]).squeeze(-1).detach()
    g, errors = rollout.memory[4].detach(), list[Tensor]()
    for i in (3, 2, 1, 0):
        g = 1 - taken[i] + GAMMA * g
        errors.insert(0, g - values[i])
    e = torch.stack(errors)
    by_advantage = torch.stack(
        [sum((GAMMA ** (k - i) * e[i] for i in range(k + 1)), torch.zeros(())) for k in range(4)]
    )
    chances = rollout.policy_outputs.softmax(-1)
    direction = torch.nn.functional.one_hot(rollout.actions, ACTIONS) - chances
    expected = -0.5 * (
        by_advantage[:, None] * (direction @ critic.advantage.weight)
        + e[:, None] * critic.value.weight
    )
    gradient, by_weight = torch.autograd.grad(loss, [features, critic.value.weight])
    torch.testing.assert_close(gradient, expected.detach())
    torch.testing.assert_close(by_weight, -0.5 * (e @ case.features[:4])[None])


def test_what_is_bootstrapped_stays_as_it_was_while_learning() -> None:
    case = Case(DAEConfig())
    frozen = case.rollout.memory.clone()
    case.learn_something()
    assert torch.equal(case.rollout.memory, frozen)
    minibatch = case.minibatches()[0]
    loss = case.evaluate(minibatch).loss
    assert_same_loss(case, loss, loss_by_hand(case, minibatch))


@pytest.mark.parametrize("size", [1, 5, 16, 30, 1000])
def test_minibatches_hold_whole_segments_and_lose_none(size: int) -> None:
    for seed in range(5):
        case = Case(DAEConfig(), a_trajectory(seed=seed))
        whole = segments(case.traj)
        dealt = case.minibatches(size, seed)
        numbers = torch.cat([minibatch.transitions for minibatch in dealt]).tolist()
        assert sorted(numbers) == case.traj.transitions.tolist()
        for minibatch in dealt:
            chosen = set(minibatch.transitions.tolist())
            assert chosen == {k for first in chosen & whole.keys() for k in whole[first]}
            assert torch.equal(minibatch.encode, minibatch.transitions)
            assert len(chosen) >= min(size, len(numbers))


def random_process() -> FiniteProcess:
    """Three states and two actions; some of the transitions terminate."""
    generator = torch.Generator().manual_seed(0)
    transition = torch.rand(3, 2, 3, dtype=torch.float64, generator=generator)
    survival = torch.tensor([[1.0, 0.6], [0.8, 1.0], [1.0, 1.0]], dtype=torch.float64)
    return FiniteProcess(
        transition=transition / transition.sum(-1, keepdim=True) * survival[..., None],
        reward=torch.randn(3, 2, dtype=torch.float64, generator=generator),
        logits=torch.randn(3, 2, dtype=torch.float64, generator=generator),
        gamma=0.9,
    )


class Tabular:
    """The expected objective of DAE in a finite process, over all trajectories of two steps."""

    def __init__(self, process: FiniteProcess) -> None:
        self.process = process
        actions: gym.Space[Any] = gym.spaces.Discrete(2)
        self.critic: Any = make_critic(DAEConfig(), 3, actions).double()
        self.parts: list[tuple[float, Any, Minibatch, Tensor]] = []
        for start in range(3):
            every = process.enumerate(start, steps=2)
            count = every.traj.steps * every.traj.envs
            rollout = Rollout(
                traj=every.traj,
                actions=every.actions.flatten(),
                policy_outputs=process.logits[every.states[:count]],
                memory=process.values[every.states],
            )
            prepared = self.critic.prepare(rollout, gamma=process.gamma, lam=0.5)
            features = torch.eye(3, dtype=torch.float64)[every.states]
            for n, numbers in segments(every.traj).items():
                i = torch.tensor(numbers)
                weight = float(every.probability[n]) * len(i)
                self.parts.append((weight, prepared, Minibatch(i, i), features[i]))

    def set(self, flat: Tensor) -> None:
        torch.nn.utils.vector_to_parameters(flat, self.critic.parameters())

    def gradient(self) -> Tensor:
        loss = torch.zeros((), dtype=torch.float64)
        for weight, prepared, minibatch, features in self.parts:
            loss = loss + weight * self.critic.evaluate(prepared, minibatch, features).loss
        gradients = torch.autograd.grad(loss, list(self.critic.parameters()))
        return torch.cat([gradient.flatten() for gradient in gradients])

    def solution(self) -> tuple[Tensor, Tensor]:
        """Values `[S]` and centred advantages `[S, A]` as the heads have them now."""
        one_hot = torch.eye(3, dtype=torch.float64)
        with torch.no_grad():
            raw = self.critic.advantage(one_hot)
            advantages = raw - (self.process.policy * raw).sum(-1, keepdim=True)
            return self.critic.value(one_hot).squeeze(-1), advantages


def test_the_true_values_and_advantages_minimise_the_objective() -> None:
    tabular = Tabular(random_process())
    count = sum(parameter.numel() for parameter in tabular.critic.parameters())
    zero = torch.zeros(count, dtype=torch.float64)
    # The objective is quadratic, so its gradient is affine: c + H θ. Its root is the minimiser.
    tabular.set(zero)
    constant = tabular.gradient()
    columns = []
    for unit in torch.eye(count, dtype=torch.float64):
        tabular.set(unit)
        columns.append(tabular.gradient() - constant)
    hessian = torch.stack(columns, 1)
    assert torch.linalg.eigvalsh(hessian).min() > -1e-9
    tabular.set(-torch.linalg.pinv(hessian, hermitian=True) @ constant)

    gradient = tabular.gradient()
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-9)
    values, advantages = tabular.solution()
    torch.testing.assert_close(values, tabular.process.values, rtol=0, atol=1e-9)
    torch.testing.assert_close(advantages, tabular.process.advantages, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CRITICS)
def test_only_dae_refuses_continuous_actions(name: str) -> None:
    config: CriticConfig = CRITICS[name][0]()
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    if name == "dae":
        with pytest.raises(ValueError, match=r"'dae'.*discrete actions.*choose another critic"):
            make_critic(config, 4, box)
    else:
        make_critic(config, 4, box)
