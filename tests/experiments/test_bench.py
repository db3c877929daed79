from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from relval.critics import AbsoluteConfig
from relval.envs import AtariPool
from relval.experiments.bench import mathematics, training
from relval.experiments.bench.plain import PlainLoop
from relval.networks import NetworkConfig
from relval.optimizer import make_optimizer
from relval.ppo import Agent, Collected, PPOConfig, update
from relval.relative import Trajectories, gae


def test_the_closed_form_and_the_plain_form_are_the_same_work() -> None:
    torch.testing.assert_close(mathematics.closed_form(500)(), mathematics.plain_form(500)())


def test_the_benchmark_prints_a_row_for_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mathematics, "_SIZES", (125, 1_250))
    monkeypatch.setattr(mathematics, "_fits", lambda size: size < 1_000)
    mathematics.run()
    printed = capsys.readouterr().out
    assert "125 " in printed
    assert "1,250" in printed
    assert "does not fit" in printed
    assert "all_pairs_loss           B^" in printed


def test_training_is_measured_beside_its_peer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "_UPDATES", {"CartPole-v1": 1, "MinAtar/Breakout": 1})
    monkeypatch.setattr(training, "_REPEATS", {"CartPole-v1": 1, "MinAtar/Breakout": 1})
    monkeypatch.setattr(training, "_STEPS", 32)
    training.run()
    printed = capsys.readouterr().out
    assert printed.count("Stable-Baselines3 PPO") == 2
    assert printed.count("% of the absolute one's steps") == 2


@pytest.fixture
def loop() -> Iterator[PlainLoop]:
    """A plain loop that has played a rollout, with rewards and ends of the test's own."""
    torch.manual_seed(0)
    envs = AtariPool("Pong", 2, workers=0)
    space, config = envs.single_observation_space, PPOConfig(steps=16)
    loop = PlainLoop(envs, space, len(envs.action_meanings), 2, config, critic_weight=0.5)
    loop._play()
    loop.rewards.normal_()
    loop.ended.bernoulli_(0.2)
    yield loop
    envs.close()


def test_the_plain_loop_has_the_advantages_of_the_library(loop: PlainLoop) -> None:
    expected = gae(Trajectories(loop.rewards, loop.ended), values_of(loop), gamma=0.99, lam=0.95)
    torch.testing.assert_close(loop._advantages(), expected)


def test_the_plain_loop_learns_as_the_library_does(loop: PlainLoop) -> None:
    """From the same rollout, in one gradient step, parameters come to be the same."""
    config = replace(loop.config, epochs=1, minibatch=loop.rewards.numel())
    agent = Agent(
        loop.envs.single_observation_space,
        loop.envs.single_action_space,
        NetworkConfig(shared=True),
        AbsoluteConfig(coefficient=loop.critic_weight),
    )
    agent.load_state_dict(weights(loop))
    rollout = Collected(
        traj=Trajectories(loop.rewards, loop.ended),
        actions=loop.actions.flatten(),
        policy_outputs=torch.zeros(loop.rewards.numel(), loop.policy.out_features),
        memory=values_of(loop),
        states=torch.cat([loop.observations, loop.observation[None]]).flatten(0, 1),
        log_prob=loop.log_probs.flatten(),
        episodes=[],
    )
    optimizer = make_optimizer(agent, rate=config.learning_rate, eps=config.adam_eps)
    update(agent, optimizer, rollout, config, torch.Generator(), clip=config.clip)
    advantages = loop._advantages()
    loop._step(
        *(
            part.flatten(0, 1)
            for part in (
                loop.observations,
                loop.actions,
                loop.log_probs,
                advantages,
                advantages + loop.values,
            )
        )
    )
    torch.testing.assert_close(dict(agent.state_dict()), weights(loop))


def values_of(loop: PlainLoop) -> torch.Tensor:
    with torch.no_grad():
        last = loop.critic(loop.encoder(loop.observation)).T
    return torch.cat([loop.values, last]).flatten()


def weights(loop: PlainLoop) -> dict[str, torch.Tensor]:
    """Under the names that the library gives them."""
    parts = {"encoder": loop.encoder, "policy.head": loop.policy, "critic.head": loop.critic}
    return {
        f"{part}.{name}": value
        for part, module in parts.items()
        for name, value in module.state_dict().items()
    }
