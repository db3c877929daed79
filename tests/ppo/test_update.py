import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import relval.runs.trainer
from relval import ppo as relval_ppo
from relval.critics import (
    CRITICS,
    AbsoluteConfig,
    CriticConfig,
    DAEConfig,
    Evaluation,
    Minibatch,
    RelativeConfig,
    make_critic,
)
from relval.critics.base import estimated_constant, explained_variance
from relval.envs import EnvConfig
from relval.networks import NetworkConfig, make_encoder
from relval.ppo import Agent, Collected, PPOConfig, update
from relval.relative import Trajectories, gae, trajectory_constant
from relval.runs.config import Config
from relval.runs.trainer import Trainer
from tests.ppo.probes import MODES
from tests.ppo.script import ScriptedVectorEnv
from tests.ppo.training import VARIANTS, make_agent, make_collector

BOX = gym.spaces.Box(-0.5, 0.5, (2,), np.float32)
CONFIG = PPOConfig(steps=16, epochs=3, minibatch=16, learning_rate=1e-2)
CASES = [(name, gym.spaces.Discrete(3)) for name in VARIANTS] + [
    (name, BOX) for name in VARIANTS if name != "dae"
]


@dataclass(eq=False)
class Seen:
    """What passed through an agent during an update, minibatch by minibatch."""

    minibatches: list[Minibatch] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    log_prob: list[Tensor] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    """Where each epoch began in the lists."""


def watch(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen = Seen()
    critic: Any = agent.critic
    minibatches, evaluate, log_prob = critic.minibatches, critic.evaluate, agent.policy.log_prob

    def watched_minibatches(*args: Any) -> Iterator[Minibatch]:
        seen.epochs.append(len(seen.minibatches))
        for minibatch in minibatches(*args):
            seen.minibatches.append(minibatch)
            yield minibatch

    def watched_evaluate(*args: Any) -> Evaluation:
        seen.evaluations.append(evaluate(*args))
        return seen.evaluations[-1]

    def watched_log_prob(outputs: Tensor, actions: Tensor) -> Tensor:
        result = log_prob(outputs, actions)
        seen.log_prob.append(result.detach())
        return result

    monkeypatch.setattr(relval_ppo, "_look_at_features", lambda *args: {})  # which looks twice
    monkeypatch.setattr(critic, "minibatches", watched_minibatches)
    monkeypatch.setattr(critic, "evaluate", watched_evaluate)
    monkeypatch.setattr(agent.policy, "log_prob", watched_log_prob)
    return seen


def collected(
    critic: CriticConfig,
    space: gym.Space[Any] | None = None,
    *,
    shared: bool = True,
    next_step: bool = False,
) -> tuple[Agent, Collected]:
    envs = ScriptedVectorEnv(MODES[next_step], space)
    agent = make_agent(
        envs.single_observation_space, envs.single_action_space, critic, shared=shared
    )
    generator = torch.Generator().manual_seed(0)
    return agent, make_collector(envs).collect(agent, CONFIG.steps, generator)


def learn(
    agent: Agent,
    rollout: Collected,
    config: PPOConfig = CONFIG,
    *,
    seed: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
) -> dict[str, float]:
    optimizer = optimizer or torch.optim.Adam(agent.parameters(), lr=config.learning_rate)
    generator = torch.Generator().manual_seed(seed)
    return update(agent, optimizer, rollout, config, generator, clip=config.clip)


def parameters(agent: Agent) -> Tensor:
    return nn.utils.parameters_to_vector(agent.parameters()).detach().clone()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("name", "space"), CASES)
def test_the_ratio_is_one_before_anything_is_learned(
    name: str, space: gym.Space[Any], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, rollout = collected(VARIANTS[name], space, shared=shared)
    seen = watch(agent, monkeypatch)
    learn(agent, rollout)
    ratios = [
        (new - rollout.log_prob[minibatch.transitions]).exp()
        for new, minibatch in zip(seen.log_prob, seen.minibatches, strict=True)
    ]
    torch.testing.assert_close(ratios[0], torch.ones_like(ratios[0]), rtol=0, atol=1e-5)
    assert (ratios[-1] - 1).abs().max() > 1e-4


# What is logged


@pytest.mark.parametrize("name", VARIANTS)
def test_a_look_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, rollout = collected(VARIANTS[name])
    learn(agent, rollout)
    monkeypatch.setattr(relval_ppo, "_look_at_features", lambda *args: {})
    blind, rollout = collected(VARIANTS[name])
    learn(blind, rollout)
    assert torch.equal(parameters(agent), parameters(blind))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_critics_share_grows_with_its_weight(name: str) -> None:
    ratios = []
    for weight in (0.1, 0.4):
        agent, rollout = collected(replace(VARIANTS[name], coefficient=weight))
        share = learn(agent, rollout)["critic_share"]
        assert 0 < share < 1
        ratios.append(share / (1 - share))
    assert ratios[1] == pytest.approx(4 * ratios[0], rel=1e-3)
    agent, rollout = collected(replace(VARIANTS[name], coefficient=0.0))
    assert learn(agent, rollout)["critic_share"] == 0


def test_features_that_are_never_on_are_dead() -> None:
    agent, rollout = collected(VARIANTS["relative"])
    layer = agent.encoder.layers[-2]
    agent.encoder.layers[-1] = nn.ReLU()
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.bias.fill_(100.0)
        layer.bias[: len(layer.bias) // 4] = -100.0
    assert learn(agent, rollout)["dead_features"] == pytest.approx(0.25)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "dae"])
def test_advantages_are_logged_as_they_are_before_they_are_scaled(name: str) -> None:
    agent, rollout = collected(VARIANTS[name])
    critic: Any = agent.critic
    advantages = critic.prepare(rollout, gamma=CONFIG.gamma, lam=CONFIG.lam).advantages
    metrics = learn(agent, rollout, replace(CONFIG, epochs=1, minibatch=1000))
    assert metrics["advantage_mean"] == pytest.approx(advantages.mean().item(), abs=1e-6)
    spread = advantages.std(correction=0).item()
    assert metrics["advantage_spread"] == pytest.approx(spread, rel=1e-4)
    assert "explained_variance" in metrics
    assert metrics["value_spread"] > 0


def test_the_explained_variance_by_hand() -> None:
    targets = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(targets, targets + 5) == 1
    assert explained_variance(targets, torch.zeros(3)) == 0
    assert explained_variance(targets, -targets) == -3
    assert explained_variance(torch.ones(3), targets) == 0


def test_the_constant_of_lemma_3_2_is_found_in_advantages() -> None:
    traj = Trajectories(torch.zeros(6, 2), torch.zeros(6, 2, dtype=torch.bool))
    too_low = gae(traj, torch.full((14,), -2.0), gamma=0.9, lam=0.8)  # what is worth 0
    found = estimated_constant(traj, too_low.flatten(), gamma=0.9, lam=0.8)
    expected = trajectory_constant(2.0, 6, gamma=0.9, lam=0.8)
    torch.testing.assert_close(found["trajectory_constant_mean"], expected.mean())
    torch.testing.assert_close(found["trajectory_constant_spread"], expected.std(correction=0))


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_clipped_to_their_global_norm(name: str) -> None:
    agent, rollout = collected(VARIANTS[name])
    before = parameters(agent)
    config = replace(CONFIG, epochs=1, minibatch=1000, max_grad_norm=1e-3)
    metrics = learn(agent, rollout, config, optimizer=torch.optim.SGD(agent.parameters(), lr=1.0))
    assert metrics["gradient_norm"] > 1e-2
    assert float((parameters(agent) - before).norm()) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("name", VARIANTS)
def test_without_a_limit_gradients_are_not_clipped(name: str) -> None:
    agent, rollout = collected(VARIANTS[name])
    before = parameters(agent)
    config = replace(CONFIG, epochs=1, minibatch=1000, max_grad_norm=None)
    optimizer = torch.optim.SGD(agent.parameters(), lr=100.0)
    metrics = learn(agent, rollout, config, optimizer=optimizer)
    moved = float((parameters(agent) - before).norm())
    assert moved == pytest.approx(100 * metrics["gradient_norm"], rel=1e-3)
    assert moved > 1.0


@pytest.mark.parametrize("name", VARIANTS)
def test_the_gradient_is_that_of_the_loss_of_ppo(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a ratio of one: policy gradient, entropy bonus, and the weighted loss of the critic."""
    critic = replace(VARIANTS[name], coefficient=0.7)
    agent, rollout = collected(critic)
    twin = copy.deepcopy(agent)
    seen = watch(agent, monkeypatch)
    config = replace(CONFIG, epochs=1, minibatch=1000, max_grad_norm=None, entropy=0.3)
    before = parameters(agent)
    learn(agent, rollout, config, optimizer=torch.optim.SGD(agent.parameters(), lr=1.0))

    (minibatch,) = seen.minibatches
    i = minibatch.transitions
    prepared = twin.critic.prepare(rollout, gamma=config.gamma, lam=config.lam)
    features = twin.encoder(rollout.observations[minibatch.encode])
    verdict = twin.critic.evaluate(prepared, minibatch, features)
    policy = torch.distributions.Categorical(logits=twin.policy(features[: len(i)]))
    gain = (policy.log_prob(rollout.actions[i]) * verdict.advantages).mean()
    (gain + 0.3 * policy.entropy().mean() - 0.7 * verdict.loss).backward()
    expected = torch.cat(
        [
            torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
            for p in twin.parameters()
        ]
    )
    torch.testing.assert_close(parameters(agent) - before, expected, rtol=1e-3, atol=1e-5)


def test_a_ratio_beyond_the_clip_range_pushes_no_further() -> None:
    agent, rollout = collected(AbsoluteConfig(coefficient=0.0))
    config = replace(CONFIG, epochs=60, minibatch=1000, entropy=0.0, clip=0.05)
    free, clipped = copy.deepcopy(agent), copy.deepcopy(agent)
    learn(free, rollout, replace(config, clip=100.0))
    metrics = learn(clipped, rollout, config)
    assert metrics["clip_fraction"] > 0.1
    assert metrics["approx_kl"] > 0.0

    def departure(agent: Agent) -> float:
        with torch.no_grad():
            outputs = agent.policy(agent.encoder(rollout.observations))
            log_prob = agent.policy.log_prob(outputs, rollout.actions)
        return float(((log_prob - rollout.log_prob).exp() - 1).abs().mean())

    assert departure(clipped) < 0.5 * departure(free)


@pytest.mark.parametrize("name", VARIANTS)
def test_minibatches_are_shuffled_anew_in_each_epoch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, rollout = collected(VARIANTS[name], next_step=True)
    seen = watch(agent, monkeypatch)
    learn(agent, rollout)
    assert len(seen.epochs) == CONFIG.epochs
    bounds = zip(seen.epochs, [*seen.epochs[1:], len(seen.minibatches)], strict=True)
    epochs = [
        torch.cat([minibatch.transitions for minibatch in seen.minibatches[begin:end]]).tolist()
        for begin, end in bounds
    ]
    valid = rollout.traj.transitions.tolist()
    assert all(sorted(epoch) == valid for epoch in epochs)
    assert len({tuple(epoch) for epoch in [valid, *epochs]}) == 1 + CONFIG.epochs


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "dae"])
def test_advantages_are_normalised_in_each_minibatch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, rollout = collected(VARIANTS[name])
    seen = watch(agent, monkeypatch)
    learn(agent, rollout)
    for evaluation in seen.evaluations:
        assert not evaluation.advantages.requires_grad
        assert float(evaluation.advantages.mean()) == pytest.approx(0.0, abs=1e-5)
        assert float(evaluation.advantages.std(correction=0)) == pytest.approx(1.0, abs=1e-4)


def test_advantages_stay_as_they_are_if_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, rollout = collected(AbsoluteConfig(normalise_advantages=False))
    seen = watch(agent, monkeypatch)
    learn(agent, rollout)
    expected = gae(rollout.traj, rollout.memory, gamma=CONFIG.gamma, lam=CONFIG.lam).flatten()
    for minibatch, evaluation in zip(seen.minibatches, seen.evaluations, strict=True):
        torch.testing.assert_close(evaluation.advantages, expected[minibatch.transitions])


@pytest.mark.parametrize("normalise", [True, False])
def test_dae_scales_advantages_but_does_not_shift_them(
    normalise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, rollout = collected(DAEConfig(normalise_advantages=normalise))
    twin = copy.deepcopy(agent)
    seen = watch(agent, monkeypatch)
    learn(agent, rollout, replace(CONFIG, epochs=1))
    i, evaluation = seen.minibatches[0].transitions, seen.evaluations[0]
    critic: Any = twin.critic
    with torch.no_grad():
        raw = critic.advantage(twin.encoder(rollout.observations[i]))
        chances = rollout.policy_outputs[i].softmax(-1)
        centred = raw - (chances * raw).sum(-1, keepdim=True)
        sigma = (chances * centred.square()).sum(-1).mean().sqrt() + 1e-5 if normalise else 1.0
        expected = centred[torch.arange(len(i)), rollout.actions[i]] / sigma
    torch.testing.assert_close(evaluation.advantages, expected, rtol=1e-4, atol=1e-5)
    assert abs(float(expected.mean())) > 1e-3
    assert not evaluation.advantages.requires_grad


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_seed_gives_the_same_parameters(name: str) -> None:
    agent, rollout = collected(VARIANTS[name])
    results = []
    for seed in (1, 1, 2):
        twin = copy.deepcopy(agent)
        learn(twin, rollout, seed=seed)
        results.append(parameters(twin))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert not torch.equal(results[0], parameters(agent))


def assert_orthogonal(weight: Tensor, gain: float) -> None:
    singular = torch.linalg.svdvals(weight.detach().flatten(1))
    torch.testing.assert_close(singular, torch.full_like(singular, gain), rtol=1e-4, atol=1e-5)


def assert_no_bias(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()


@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize("shared", [True, False])
def test_weights_begin_orthogonal_with_the_right_gains(name: str, shared: bool) -> None:
    box = gym.spaces.Box(-1, 1, (5,), np.float32)
    spaces = box, gym.spaces.Discrete(3)
    agent = make_agent(*spaces, VARIANTS[name], shared=shared, hidden=(16, 8))
    for encoder in (agent.encoder, agent.critic_encoder):
        hidden = [layer for layer in encoder.layers if isinstance(layer, nn.Linear)]
        assert len(hidden) == 2
        for layer in hidden:
            assert_orthogonal(layer.weight, math.sqrt(2))
    policy: Any = agent.policy
    assert_orthogonal(policy.head.weight, 0.01)
    critic: Any = agent.critic
    if name == "dae":
        assert_orthogonal(critic.value.weight, 1.0)
        assert_orthogonal(critic.advantage.weight, 0.1)
    else:
        assert_orthogonal(critic.head.weight, 1.0)
    assert_no_bias(agent)


@pytest.mark.parametrize("shape", [(4, 84, 84), (6, 10, 10)])
def test_convolutions_begin_orthogonal_too(shape: tuple[int, ...]) -> None:
    encoder = make_encoder(gym.spaces.Box(0, 255, shape, np.uint8), NetworkConfig())
    layers = [layer for layer in encoder.layers if hasattr(layer, "weight")]
    assert len(layers) >= 2
    for layer in layers:
        assert isinstance(layer.weight, Tensor)
        assert_orthogonal(layer.weight, math.sqrt(2))
    assert_no_bias(encoder)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_relative_heads_have_no_bias(head: Any) -> None:
    critic = make_critic(RelativeConfig(head=head), 7, BOX)
    assert all(name.endswith("weight") for name, _ in critic.named_parameters())
    for parameter in critic.parameters():
        assert_orthogonal(parameter, 1.0)


def test_a_gaussian_policy_begins_with_means_near_zero_and_unit_spread() -> None:
    agent = make_agent(gym.spaces.Box(-1, 1, (5,), np.float32), BOX, AbsoluteConfig())
    policy: Any = agent.policy
    assert_orthogonal(policy.head.weight, 0.01)
    assert not policy.log_std.any()
    assert_no_bias(policy)


@pytest.mark.parametrize("anneal_rate", [True, False])
@pytest.mark.parametrize("anneal_clip", [True, False])
def test_learning_rate_and_clip_are_annealed_as_told(
    anneal_rate: bool, anneal_clip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(
        agent: Agent, optimizer: torch.optim.Optimizer, *args: Any, clip: float, **options: Any
    ) -> dict[str, Tensor]:
        seen.append((optimizer.param_groups[0]["lr"], clip))
        return relval_ppo.learn(agent, optimizer, *args, clip=clip)

    monkeypatch.setattr(relval.runs.trainer, "learn", watched)
    ppo = PPOConfig(
        steps=4,
        epochs=1,
        minibatch=8,
        clip=0.2,
        learning_rate=1e-3,
        anneal_learning_rate=anneal_rate,
        anneal_clip=anneal_clip,
    )
    config = Config(
        env="CartPole-v1",
        critic=AbsoluteConfig(),
        total_steps=4 * 8,
        envs=EnvConfig(num_envs=2),
        network=NetworkConfig(hidden=(4,)),
        ppo=ppo,
    )
    trainer = Trainer(config)
    for _ in range(5):
        trainer.iterate()
    trainer.envs.close()
    left = [1.0, 0.75, 0.5, 0.25, 0.0]
    rates = [1e-3 * (x if anneal_rate else 1) for x in left]
    clips = [0.2 * (x if anneal_clip else 1) for x in left]
    assert [rate for rate, _ in seen] == pytest.approx(rates)
    assert [clip for _, clip in seen] == pytest.approx(clips)
