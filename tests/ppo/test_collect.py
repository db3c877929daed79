from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from relval.critics import AbsoluteConfig, Critic
from relval.ppo import Agent, Collected, _Record
from tests.ppo.probes import MODES
from tests.ppo.script import Played, ScriptedVectorEnv
from tests.ppo.training import VARIANTS, make_agent, make_collector
from tests.settings import paper_critic

STEPS = 9
BOX = gym.spaces.Box(-0.5, 0.5, (2,), np.float32)


def rollouts(
    envs: ScriptedVectorEnv, agent: Agent, count: int = 3
) -> Iterator[tuple[Collected, list[Played]]]:
    """Rollouts, each with what the environments did meanwhile."""
    collector = make_collector(envs)
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        envs.played.clear()
        yield collector.collect(agent, STEPS, generator), list(envs.played)


def agent_for(envs: ScriptedVectorEnv, name: str = "absolute", *, shared: bool = True) -> Agent:
    spaces = envs.single_observation_space, envs.single_action_space
    return make_agent(*spaces, VARIANTS[name], shared=shared)


def remembered(agent: Agent, observations: np.ndarray) -> Tensor:
    with torch.no_grad():
        memory: Tensor = agent.critic.remember(agent.critic_encoder(torch.from_numpy(observations)))
    return memory


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_holds_what_the_environments_did(mode: AutoresetMode) -> None:
    envs = ScriptedVectorEnv(mode)
    agent = agent_for(envs)
    for rollout, played in rollouts(envs, agent):
        traj = rollout.traj
        numbers = traj.transitions
        assert len(numbers) == len(played)
        assert (numbers % traj.envs).tolist() == [step.env for step in played]
        observations = np.stack([step.observation for step in played])
        np.testing.assert_array_equal(rollout.observations[numbers].numpy(), observations)
        assert rollout.actions[numbers].tolist() == [int(step.action) for step in played]
        rewards = np.array([step.reward for step in played], dtype=np.float32)
        np.testing.assert_array_equal(traj.rewards.flatten()[numbers].numpy(), rewards)


@pytest.mark.parametrize("mode", MODES)
def test_terminated_wins_where_both_flags_are_reported(mode: AutoresetMode) -> None:
    envs = ScriptedVectorEnv(mode)
    agent = agent_for(envs)
    both = 0
    for rollout, played in rollouts(envs, agent):
        traj = rollout.traj
        numbers = traj.transitions
        terminated = traj.terminated.flatten()[numbers].tolist()
        truncated = traj.truncated.flatten()[numbers].tolist()
        assert terminated == [step.terminated for step in played]
        assert truncated == [step.truncated and not step.terminated for step in played]
        both += sum(step.terminated and step.truncated for step in played)
    assert both > 0


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_successor_is_what_was_observed_next(mode: AutoresetMode, shared: bool) -> None:
    envs = ScriptedVectorEnv(mode)
    agent = agent_for(envs, shared=shared)
    cuts = 0
    for rollout, played in rollouts(envs, agent):
        successor = rollout.traj.successor.flatten()[rollout.traj.transitions]
        alive = [k for k, step in enumerate(played) if not step.terminated]
        following = np.stack([played[k].following for k in alive])
        torch.testing.assert_close(
            rollout.memory[successor[alive]], remembered(agent, following), rtol=1e-5, atol=1e-6
        )
        cuts += sum(played[k].truncated for k in alive)
    assert cuts > 3


def test_same_step_auto_reset_appends_the_last_states_of_truncated_episodes() -> None:
    envs = ScriptedVectorEnv(AutoresetMode.SAME_STEP)
    agent = agent_for(envs)
    for rollout, played in rollouts(envs, agent):
        traj = rollout.traj
        grid = traj.states.numel()
        assert traj.valid.all()
        appended = sum(step.truncated and not step.terminated for step in played)
        assert len(rollout.memory) == traj.num_states == grid + appended
        assert traj.successor[traj.truncated].tolist() == list(range(grid, grid + appended))
        assert torch.equal(traj.successor[~traj.truncated], traj.states[1:][~traj.truncated])


def test_next_step_auto_reset_leaves_them_in_the_next_row_which_is_invalid() -> None:
    envs = ScriptedVectorEnv(AutoresetMode.NEXT_STEP)
    agent = agent_for(envs)
    ended = torch.zeros(envs.num_envs, dtype=torch.bool)
    for rollout, _ in rollouts(envs, agent):
        traj = rollout.traj
        assert len(rollout.memory) == traj.states.numel()
        assert torch.equal(traj.successor, traj.states[1:])
        for t in range(STEPS):
            assert torch.equal(traj.valid[t], ~ended)
            ended = traj.terminated[t] | traj.truncated[t]
        assert not (~traj.valid & (traj.terminated | traj.truncated)).any()
    assert (~traj.valid).any()


@pytest.mark.parametrize("mode", MODES)
def test_episodes_have_the_score_and_the_length_that_they_had(mode: AutoresetMode) -> None:
    envs = ScriptedVectorEnv(mode)
    agent = agent_for(envs)
    scores, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=np.int64)
    for rollout, played in rollouts(envs, agent):
        expected = []
        for step in played:
            scores[step.env] += step.reward
            lengths[step.env] += 1
            if step.terminated or step.truncated:
                expected.append((step.env, scores[step.env], int(lengths[step.env])))
                scores[step.env] = lengths[step.env] = 0
        found = [(episode.env, episode.score, episode.length) for episode in rollout.episodes]
        assert [(env, length) for env, _, length in found] == [
            (env, length) for env, _, length in expected
        ]
        np.testing.assert_allclose([s for _, s, _ in found], [s for _, s, _ in expected])
        assert len(found) > 3


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", VARIANTS)
def test_memory_is_what_the_critic_remembers_of_all_states(
    name: str, mode: AutoresetMode, shared: bool
) -> None:
    envs = ScriptedVectorEnv(mode)
    agent = agent_for(envs, name, shared=shared)
    assert agent.shared is shared
    for rollout, _ in rollouts(envs, agent, count=1):
        expected = remembered(agent, rollout.observations.numpy())
        count = len(rollout.observations)
        torch.testing.assert_close(rollout.memory[:count], expected, rtol=1e-5, atol=1e-6)
        assert len(rollout.memory) == rollout.traj.num_states
        row = rollout.memory[count : count + envs.num_envs]
        torch.testing.assert_close(row, remembered(agent, envs.observe()), rtol=1e-5, atol=1e-6)
        assert not rollout.memory.requires_grad


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), BOX], ids=["discrete", "continuous"])
@pytest.mark.parametrize("mode", MODES)
def test_log_probabilities_are_those_of_the_actions(
    mode: AutoresetMode, space: gym.Space[np.ndarray]
) -> None:
    envs = ScriptedVectorEnv(mode, space)
    agent = agent_for(envs)
    with torch.no_grad():
        for rollout, _ in rollouts(envs, agent):
            outputs = agent.policy(agent.encoder(rollout.observations))
            torch.testing.assert_close(rollout.policy_outputs, outputs, rtol=1e-5, atol=1e-6)
            expected = agent.policy.log_prob(outputs, rollout.actions)
            torch.testing.assert_close(rollout.log_prob, expected, rtol=1e-5, atol=1e-5)


def test_continuous_actions_are_stored_as_drawn_and_played_as_allowed() -> None:
    envs = ScriptedVectorEnv(action_space=BOX)
    agent = agent_for(envs)
    for rollout, played in rollouts(envs, agent, count=1):
        actions = rollout.actions.numpy()
        assert (np.abs(actions) > 0.5).any()
        np.testing.assert_array_equal(
            np.stack([step.action for step in played]), np.clip(actions, -0.5, 0.5)
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", VARIANTS)
def test_an_epoch_deals_out_each_valid_transition_once(name: str, mode: AutoresetMode) -> None:
    envs = ScriptedVectorEnv(mode)
    agent = agent_for(envs, name)
    critic: Critic[object] = agent.critic
    generator = torch.Generator().manual_seed(2)
    for rollout, _ in rollouts(envs, agent):
        prepared = critic.prepare(rollout, gamma=0.9, lam=0.8)
        valid = rollout.traj.valid.flatten()
        for size in (1, 7, 10, 1000):
            dealt = list(critic.minibatches(rollout, prepared, size, generator))
            transitions = torch.cat([minibatch.transitions for minibatch in dealt])
            assert transitions.sort().values.tolist() == rollout.traj.transitions.tolist()
            for minibatch in dealt:
                assert len(minibatch.transitions) > 0
                assert valid[minibatch.encode].all()
                first = minibatch.encode[: len(minibatch.transitions)]
                assert torch.equal(first, minibatch.transitions)


@pytest.mark.parametrize("mode", MODES)
def test_rank_does_not_look_at_terminal_states(mode: AutoresetMode) -> None:
    """Next-step auto-reset leaves terminal observations in the rollout; they have no value."""
    envs = ScriptedVectorEnv(mode)
    config = paper_critic(normalise_advantages=False, clip=None)
    agent = make_agent(envs.single_observation_space, envs.single_action_space, config)
    looked = 0
    for rollout, _ in rollouts(envs, agent, count=6):
        traj = rollout.traj
        # What is neither acted in, nor follows a transition that goes on, nor begins an episode.
        used = torch.zeros(traj.num_states, dtype=torch.bool)
        used[traj.transitions] = True
        used[traj.successor[traj.valid & ~traj.terminated]] = True
        begun = ~traj.terminated[-1] | (mode is AutoresetMode.SAME_STEP)
        used[traj.states[-1][begun]] = True
        looked += int((~used).sum())
        before = advantages_of(agent.critic, rollout)
        rollout.memory[~used] -= 100.0
        torch.testing.assert_close(advantages_of(agent.critic, rollout), before)
    assert (looked > 0) is (mode is AutoresetMode.NEXT_STEP)


def advantages_of(critic: Critic[object], rollout: Collected) -> Tensor:
    """Of all valid transitions, in order."""
    prepared = critic.prepare(rollout, gamma=0.9, lam=0.8)
    generator = torch.Generator().manual_seed(0)
    (minibatch,) = critic.minibatches(rollout, prepared, len(rollout.actions), generator)
    features = torch.zeros(len(minibatch.encode), 16)
    advantages = critic.evaluate(prepared, minibatch, features).advantages
    return advantages[minibatch.transitions.argsort()]


def test_advantages_of_a_rollout_do_not_depend_on_the_auto_reset_mode() -> None:
    """The same episodes give the same advantages, step for step, however they are laid out."""
    found = []
    for mode in MODES:
        envs = ScriptedVectorEnv(mode)
        config = AbsoluteConfig(normalise_advantages=False)
        agent = make_agent(envs.single_observation_space, envs.single_action_space, config)
        collector = make_collector(envs)
        rollout = collector.collect(agent, 12, torch.Generator().manual_seed(0))
        traj = rollout.traj
        # Rewards that depend on the observation alone, so that both modes pay the same.
        rewards = rollout.observations.sin().sum(-1)
        traj.rewards.copy_(rewards.view(traj.rewards.shape))
        advantages = advantages_of(agent.critic, rollout)
        ended_at = {
            n: int((traj.terminated | traj.truncated)[:, n].nonzero()[-1]) * envs.num_envs + n
            for n in range(4)
        }
        keep = [k for k in traj.transitions.tolist() if k <= ended_at.get(k % 5, -1)]
        index = {k: position for position, k in enumerate(traj.transitions.tolist())}
        found.append(
            {tuple(rollout.observations[k].tolist()): float(advantages[index[k]]) for k in keep}
        )
    common = found[0].keys() & found[1].keys()
    assert len(common) > 20
    for key in common:
        assert found[0][key] == pytest.approx(found[1][key], abs=1e-5)


def test_images_of_a_rollout_lie_channels_last_with_those_that_were_cut_off() -> None:
    first = np.zeros((2, 3, 10, 10), np.uint8)
    record = _Record(4, first)
    record.observations[:] = np.arange(5 * 2).reshape(5, 2, 1, 1, 1)
    record.cut(1, 0, first[0] + 99)
    states = record.states(torch.device("cpu"))
    assert states.is_contiguous(memory_format=torch.channels_last)
    assert states[:, 0, 0, 0].tolist() == [*range(10), 99]
