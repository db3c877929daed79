from pathlib import Path

import pytest
import torch

from relval.ppo import Collector
from relval.runs import train
from relval.runs.trainer import Trainer
from tests.runs.helpers import assert_same_run, same_weights, small

ENVS = ["CartPole-v1", "MinAtar/Breakout"]


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("critic", ["absolute", "relative"])
def test_a_run_repeats_itself_to_the_last_bit(env: str, critic: str, tmp_path: Path) -> None:
    config = small(env, critic, updates=32)
    for name in ("one", "other"):
        train(config, tmp_path / name, quiet=True)
    assert_same_run(tmp_path / "one", tmp_path / "other")


@pytest.mark.parametrize("env", ENVS)
def test_another_seed_makes_another_run(env: str, tmp_path: Path) -> None:
    for seed in (1, 2):
        train(small(env, seed=seed, updates=8), tmp_path / str(seed), quiet=True)
    assert not same_weights(tmp_path / "1", tmp_path / "2")
    assert (tmp_path / "1/episodes.csv").read_bytes() != (tmp_path / "2/episodes.csv").read_bytes()


def test_checkpoints_do_not_change_a_run(tmp_path: Path) -> None:
    for every in (64, 10**6):
        config = small("CartPole-v1", updates=8, checkpoint_every=every)
        train(config, tmp_path / str(every), quiet=True)
    assert_same_run(tmp_path / "64", tmp_path / "1000000")


@pytest.mark.parametrize("env", ENVS)
def test_the_weights_at_the_start_do_not_depend_on_pytorch_s_threads(env: str) -> None:
    states = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        trainer = Trainer(small(env))
        trainer.envs.close()
        states.append(trainer.agent.state_dict())
    torch.set_num_threads(1)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("env", ENVS)
def test_bf16_is_heeded_on_a_cpu_when_acting_and_when_learning(env: str) -> None:
    trainer = Trainer(small(env, precision="bf16"))
    agent, collector = trainer.agent, trainer.collector
    assert isinstance(collector, Collector)
    rollout = collector.collect(agent, 16, trainer.generator)
    trainer.envs.close()
    with torch.no_grad():
        learning = agent.policy(agent.encoder(rollout.observations))
        agent.encoder.bf16 = False
        exact = agent.policy(agent.encoder(rollout.observations))
    assert (rollout.policy_outputs - learning).abs().max() < 1e-6
    assert 1e-5 < (exact - learning).abs().max() < 1e-2 * exact.abs().max()


def test_a_run_leaves_pytorch_s_threads_as_they_were(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    train(small("CartPole-v1", updates=2), tmp_path / "run", quiet=True)
    left = torch.get_num_threads()
    torch.set_num_threads(1)
    assert left == 2
