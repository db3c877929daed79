"""The absolute critic and the discounted one."""

import pytest
import torch

from relval.critics import AbsoluteConfig, DiscountedConfig
from relval.relative import gae
from tests.critics.rollouts import GAMMA, LAM, Case, assert_same_loss


@pytest.mark.parametrize("clip", [None, 0.1])
def test_absolute_values_learn_from_half_the_squared_error_of_returns(clip: float | None) -> None:
    case = Case(AbsoluteConfig(clip=clip, normalise_advantages=False))
    old = case.rollout.memory.clone()
    advantages = gae(case.traj, old, gamma=GAMMA, lam=LAM).flatten()
    case.learn_something()
    clipped_somewhere = False
    for minibatch in case.minibatches():
        i = minibatch.transitions
        values = case.head(case.features[i]).squeeze(-1)
        target = old[i] + advantages[i]
        error = (values - target).square()
        if clip is not None:
            low, high = old[i] - clip, old[i] + clip
            held = (torch.minimum(torch.maximum(values, low), high) - target).square()
            clipped_somewhere |= bool((held > error).any())
            error = torch.maximum(error, held)
        evaluation = case.evaluate(minibatch)
        assert_same_loss(case, evaluation.loss, 0.5 * error.mean())
        torch.testing.assert_close(evaluation.advantages, advantages[i])
    assert clipped_somewhere is (clip is not None)


@pytest.mark.parametrize("pairs", ["random", "biased"])
@pytest.mark.parametrize("clip", [None, 0.15])
@pytest.mark.parametrize("n", [1, 4])
def test_discounted_differences_by_hand(pairs: str, clip: float | None, n: int) -> None:
    config = DiscountedConfig(pairs="random" if pairs == "random" else "biased", clip=clip, n=n)
    case = Case(config)
    old, traj = case.rollout.memory.clone(), case.traj
    rewards, successor = traj.rewards.flatten(), traj.successor.flatten()
    terminated = traj.terminated.flatten()
    case.learn_something()
    for minibatch in case.minibatches():
        count = len(minibatch.transitions)
        u = case.head(case.features[minibatch.encode]).squeeze(-1)
        errors = []
        for b in range(count):
            i, j = int(minibatch.encode[b]), int(minibatch.encode[count + b])
            k = min(n, int(traj.remaining[i]), int(traj.remaining[j]))
            y = torch.zeros((), dtype=torch.float64)
            for m in range(k):
                ahead = m * traj.envs
                y += GAMMA**m * (GAMMA * rewards[i + ahead] - rewards[j + ahead])
            for sign, end in ((GAMMA, i + (k - 1) * traj.envs), (-1, j + (k - 1) * traj.envs)):
                if not terminated[end]:
                    y += GAMMA**k * sign * old[successor[end]]
            prediction = GAMMA * u[b] - u[count + b]
            error = (prediction - y).square()
            if clip is not None:
                before = GAMMA * old[i] - old[j]
                held = before + (prediction - before).clamp(-clip, clip)
                error = torch.maximum(error, (held - y).square())
            errors.append(error)
        assert_same_loss(case, case.evaluate(minibatch).loss, torch.stack(errors).mean())


def test_discounted_advantages_are_gae_of_the_scores() -> None:
    case = Case(DiscountedConfig(normalise_advantages=False))
    expected = gae(case.traj, case.rollout.memory.clone(), gamma=GAMMA, lam=LAM)
    case.learn_something()
    torch.testing.assert_close(case.advantages(), expected[case.traj.valid])


def test_the_score_of_the_discounted_critic_has_a_bias() -> None:
    assert Case(DiscountedConfig()).head.bias is not None
