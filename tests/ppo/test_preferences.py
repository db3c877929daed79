from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from relval.networks import NetworkConfig
from relval.ppo import Collected
from relval.preferences import Comparisons, PreferenceConfig, Preferences, compare
from relval.relative import Trajectories
from relval.runs import load, resume, train
from relval.runs.trainer import Trainer
from tests.runs.helpers import UPDATE, assert_same_run, small, train_until

STEPS, ENVS = 32, 4
CONFIG = PreferenceConfig(comparisons=50, segment=5)
OBSERVED = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = gym.spaces.Discrete(2)


def a_rollout(seed: int = 0, *, every: int = 10, offset: float = 0.0) -> Collected:
    """Rewards are the first number of an observation, or with action 1 its negative."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn((STEPS + 1) * ENVS, 3, generator=generator)
    actions = torch.randint(2, (STEPS * ENVS,), generator=generator)
    rewards = states[: STEPS * ENVS, 0] * (1 - 2 * actions) + offset
    terminated = torch.zeros(STEPS, ENVS, dtype=torch.bool)
    terminated[every - 1 :: every] = True
    return Collected(
        traj=Trajectories(rewards.view(STEPS, ENVS), terminated),
        actions=actions,
        policy_outputs=torch.zeros(STEPS * ENVS, 2),
        memory=torch.zeros((STEPS + 1) * ENVS),
        states=states,
        log_prob=torch.zeros(STEPS * ENVS),
        episodes=[],
    )


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def compared_in(rollout: Collected, config: PreferenceConfig) -> Comparisons:
    compared = compare(rollout, config, generator())
    assert compared is not None
    return compared


def test_segments_lie_within_an_episode() -> None:
    rollout = a_rollout()
    compared = compared_in(rollout, CONFIG)
    assert compared.observations.shape == (50, 2, 5, 3)
    place = {tuple(row.tolist()): i for i, row in enumerate(rollout.observations)}
    for segment in compared.observations.flatten(0, 1):
        steps = [place[tuple(row.tolist())] for row in segment]
        assert np.diff(steps).tolist() == [ENVS] * 4
        assert not rollout.traj.terminated.flatten()[steps[:-1]].any()


def test_the_teacher_prefers_higher_returns_as_surely_as_it_is_told() -> None:
    config = replace(CONFIG, comparisons=20_000, certainty=2.0)
    compared = compared_in(a_rollout(), config)
    rewards = compared.observations[..., 0] * (1 - 2 * compared.actions)
    first, second = rewards.sum(-1).unbind(1)
    distance = (first - second) / torch.cat([first, second]).std(correction=0)
    for low, high in ((-3.0, -1.0), (-0.2, 0.2), (0.5, 1.0)):
        chosen = (distance > low) & (distance < high)
        expected = torch.sigmoid(2 * distance[chosen]).mean().item()
        assert compared.first_preferred[chosen].mean().item() == pytest.approx(expected, abs=0.03)
    sure = compared_in(a_rollout(), replace(config, certainty=1e6)).first_preferred
    different = first != second
    assert torch.equal(sure[different] == 1, (first > second)[different])


def test_a_constant_reward_more_changes_no_comparison() -> None:
    one, other = (compared_in(a_rollout(offset=offset), CONFIG) for offset in (0.0, 7.0))
    assert torch.equal(one.first_preferred, other.first_preferred)


def test_without_an_episode_as_long_as_a_segment_nothing_is_compared() -> None:
    assert compare(a_rollout(every=4), CONFIG, generator()) is None
    preferences = Preferences(CONFIG, OBSERVED, ACTIONS, NetworkConfig(), seed=0)
    _, metrics = preferences.reward(a_rollout(every=4))
    assert metrics["reward_loss"] == 0


def test_the_model_learns_what_the_teacher_prefers() -> None:
    config = replace(CONFIG, certainty=20.0, remembered=200)
    preferences = Preferences(config, OBSERVED, ACTIONS, NetworkConfig(), seed=0)
    correlations = []
    for seed in range(15):
        rollout = a_rollout(seed)
        rewarded, metrics = preferences.reward(rollout)
        correlations.append(metrics["reward_correlation"])
    assert correlations[-1] > 0.8 > correlations[0]
    assert metrics["reward_loss"] < 0.5
    assert preferences.known is not None
    assert len(preferences.known) == 200
    with torch.no_grad():
        expected = preferences.model(rollout.observations, rollout.actions)
    assert torch.equal(rewarded.traj.rewards.flatten(), expected)
    assert torch.equal(rewarded.traj.terminated, rollout.traj.terminated)
    assert metrics["reward_mean"] == pytest.approx(expected.mean().item(), rel=1e-4)


@pytest.mark.parametrize("env", ["CartPole-v1", "MinAtar/Breakout"])
def test_a_run_that_learns_from_comparisons_resumes_where_it_was(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(env, preferences={"comparisons": 4, "segment": 3, "batches": 2})
    train(config, tmp_path / "whole", quiet=True)
    train_until(monkeypatch, config, tmp_path / "resumed", update=9)
    assert load(tmp_path / "resumed").config.preferences == config.preferences
    resume(tmp_path / "resumed", quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")


def test_scores_are_those_of_true_rewards() -> None:
    config = small("CartPole-v1", preferences={"comparisons": 4, "segment": 3})
    trainer = Trainer(config)
    for _ in range(4):
        metrics, _, episodes = trainer.iterate()
        assert "reward_loss" in metrics
        assert all(episode.score == episode.length for episode in episodes)
    trainer.envs.close()
    assert trainer.step == 4 * UPDATE


def test_a_segment_longer_than_a_rollout_is_refused() -> None:
    with pytest.raises(ValueError, match=r"preferences\.segment must be at most 16"):
        small("CartPole-v1", preferences={"comparisons": 1})
