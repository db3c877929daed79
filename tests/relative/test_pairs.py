from functools import partial

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from relval.relative import (
    AllPairs,
    LinearDelta,
    SeparablePairs,
    Trajectories,
    all_pairs_loss,
    lambda_targets,
    n_step_targets,
    pair_loss,
    sample_pairs,
)
from relval.relative.targets import BothTerminal
from tests.relative import reference
from tests.relative.strategies import assert_close, discounts, random_scores, trajectories


def brute_force_loss(
    scores: Tensor,
    old: Tensor,
    traj: Trajectories,
    i: Tensor,
    *,
    n: int,
    gamma: float,
    lam: float = 1.0,
    both_terminal: BothTerminal = "zero",
) -> Tensor:
    a, b = torch.meshgrid(i, i, indexing="ij")
    targets = partial(
        n_step_targets, LinearDelta(old), traj, a, b, gamma=gamma, both_terminal=both_terminal
    )
    target = lam ** (n - 1) * targets(n=n)
    for shorter in range(1, n):
        target += (1 - lam) * lam ** (shorter - 1) * targets(n=shorter)
    return pair_loss(scores[:, None] - scores[None, :], target)


@given(
    trajectories(),
    st.integers(1, 9),
    discounts,
    discounts,
    st.sampled_from(["zero", "derived"]),
    st.integers(0, 2**32),
)
def test_all_pairs_loss_and_its_gradient_equal_brute_force(
    traj: Trajectories, n: int, gamma: float, lam: float, rule: BothTerminal, seed: int
) -> None:
    valid = traj.transitions
    assume(len(valid) > 0)
    generator = torch.Generator().manual_seed(seed)
    i = valid[torch.randint(len(valid), (2 * len(valid),), generator=generator)]
    scores = torch.randn(len(i), dtype=torch.float64, generator=generator, requires_grad=True)
    old = random_scores(traj)
    loss, expected = (
        compute(scores, old, traj, i, n=n, gamma=gamma, lam=lam, both_terminal=rule)
        for compute in (all_pairs_loss, brute_force_loss)
    )
    assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, scores)
    (expected_gradient,) = torch.autograd.grad(expected, scores)
    assert_close(gradient, expected_gradient)


def rollout_with_episodes(steps: int = 128, envs: int = 8) -> Trajectories:
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(steps, envs, generator=generator)
    return Trajectories(rewards, torch.rand(steps, envs, generator=generator) < 0.1)


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e3])
def test_all_pairs_loss_is_accurate_in_float32_under_an_offset(offset: float) -> None:
    traj = rollout_with_episodes(steps=32)
    traj = Trajectories(0.1 * traj.rewards, traj.terminated)
    i = traj.transitions
    old = (0.1 * random_scores(traj)).float() + offset
    scores = (old[i] + 0.1).requires_grad_()
    loss = all_pairs_loss(scores, old, traj, i, n=5, gamma=0.99)
    exact_scores = scores.detach().double().requires_grad_()
    exact_traj = Trajectories(traj.rewards.double(), traj.terminated)
    exact = brute_force_loss(exact_scores, old.double(), exact_traj, i, n=5, gamma=0.99)
    (gradient,) = torch.autograd.grad(loss, scores)
    (exact_gradient,) = torch.autograd.grad(exact, exact_scores)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-6)
    assert_close(gradient.double(), exact_gradient, tolerance=1e-8)


@given(trajectories(), discounts, discounts)
def test_all_pairs_loss_over_the_whole_rollout_has_lambda_targets(
    traj: Trajectories, gamma: float, lam: float
) -> None:
    i = traj.transitions
    assume(len(i) > 0)
    old = random_scores(traj)
    a, b = torch.meshgrid(i, i, indexing="ij")
    target = lambda_targets(LinearDelta(old), traj, a, b, gamma=gamma, lam=lam)
    loss = all_pairs_loss(old[i], old, traj, i, n=traj.steps, gamma=gamma, lam=lam)
    assert_close(loss, pair_loss(old[a] - old[b], target))


def test_all_pairs_loss_of_one_transition_is_zero() -> None:
    traj = rollout_with_episodes(4, 1)
    loss = all_pairs_loss(torch.ones(1), torch.ones(5), traj, torch.tensor([0]), n=5, gamma=0.9)
    assert loss.item() == 0


def test_pair_loss_by_hand() -> None:
    prediction = torch.tensor([1.0, 2.0], requires_grad=True)
    target = torch.tensor([0.0, 5.0], requires_grad=True)
    loss = pair_loss(prediction, target)
    gradient, nothing = torch.autograd.grad(loss, (prediction, target), allow_unused=True)
    assert loss.item() == (1 + 9) / 2
    assert gradient.tolist() == [1, -3]
    assert nothing is None


def test_pair_loss_is_clipped_as_in_ppo() -> None:
    old = torch.zeros(4)
    prediction = torch.tensor([0.1, 0.9, 0.9, -0.9], requires_grad=True)
    target = torch.tensor([1.0, 1.0, -1.0, 1.0])
    # Within the clip range; beyond it towards the target, where the clipped error is larger, and
    # flat; beyond it away from the target, where the unclipped error is larger, twice.
    losses = [0.81, (0.5 - 1.0) ** 2, 3.61, 3.61]
    loss = pair_loss(prediction, target, old=old, clip=0.5)
    (gradient,) = torch.autograd.grad(loss, prediction)
    assert loss.item() == pytest.approx(sum(losses) / 4)
    assert gradient.tolist() == pytest.approx([-0.45, 0.0, 0.95, -0.95])


def chi_square_bound(degrees: int) -> float:
    """Five standard deviations above the mean of a chi-square variable."""
    return float(degrees + 5 * (2 * degrees) ** 0.5)


@pytest.mark.parametrize("same_episode", [0.0, 0.33, 1.0])
def test_partners_are_drawn_as_promised(same_episode: float) -> None:
    rewards = torch.zeros(6, 2)
    terminated = torch.zeros(6, 2, dtype=torch.bool)
    terminated[1, 0] = terminated[3, 1] = True
    valid = torch.ones(6, 2, dtype=torch.bool)
    valid[2, 0] = False
    traj = Trajectories(rewards, terminated, valid=valid)
    draws = 50_000
    generator = torch.Generator().manual_seed(1)
    for segment in reference.segments(traj):
        i = torch.full((draws,), segment[-1])
        j = sample_pairs(traj, i, same_episode=same_episode, generator=generator)
        expected = torch.zeros(12).double()
        expected[traj.transitions] += (1 - same_episode) / len(traj.transitions)
        expected[segment] += same_episode / len(segment)
        counts = torch.bincount(j, minlength=12)
        assert (counts[expected == 0] == 0).all()
        possible = expected > 0
        deviation = (counts - draws * expected)[possible].square() / (draws * expected[possible])
        assert deviation.sum() < chi_square_bound(int(possible.sum()) - 1)


def test_a_generator_makes_pairs_reproducible() -> None:
    traj = rollout_with_episodes()
    first, second = (
        sample_pairs(
            traj,
            traj.transitions.view(64, 16),
            same_episode=0.33,
            generator=torch.Generator().manual_seed(7),
        )
        for _ in range(2)
    )
    assert first.shape == (64, 16)
    assert torch.equal(first, second)


def test_bad_input_is_refused_with_a_reason() -> None:
    traj = rollout_with_episodes(3, 2)
    i = torch.arange(6)
    scores, old = torch.zeros(6), torch.zeros(8)
    with pytest.raises(ValueError, match=r"same_episode must lie in \[0, 1\]"):
        sample_pairs(traj, i, same_episode=1.5)
    with pytest.raises(ValueError, match="transition numbers from 0 to 5"):
        sample_pairs(traj, i + 1, same_episode=0.5)
    with pytest.raises(TypeError, match="i must be a tensor, got list"):
        sample_pairs(traj, [0, 1], same_episode=0.5)  # type: ignore[arg-type]
    for each in (SeparablePairs(scores), AllPairs(old, traj, n=1, gamma=0.9).expand(i)):
        with pytest.raises(ValueError, match=r"must have the same shape, got \[6, 1\] and \[6\]"):
            each.loss(scores[:, None])
    with pytest.raises(ValueError, match=r"one number for each state, shape \[S\], got"):
        LinearDelta(torch.zeros(3, 3))
    with pytest.raises(ValueError, match="scores and i must have the same shape"):
        all_pairs_loss(scores[:5], old, traj, i, n=1, gamma=0.9)
    with pytest.raises(ValueError, match="one number for each of the 8 states"):
        all_pairs_loss(scores, old[:7], traj, i, n=1, gamma=0.9)
    with pytest.raises(ValueError, match=r"i must have shape \[B\]"):
        all_pairs_loss(scores.view(2, 3), old, traj, i.view(2, 3), n=1, gamma=0.9)
    with pytest.raises(ValueError, match="n must be a whole number"):
        all_pairs_loss(scores, old, traj, i, n=0, gamma=0.9)
    with pytest.raises(ValueError, match="gamma must lie"):
        all_pairs_loss(scores, old, traj, i, n=1, gamma=2.0)
    with pytest.raises(ValueError, match="both_terminal must be one of"):
        all_pairs_loss(scores, old, traj, i, n=1, gamma=0.9, both_terminal="")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prediction and target must have the same shape"):
        pair_loss(scores, scores[:, None])
    with pytest.raises(ValueError, match="clip needs `old`"):
        pair_loss(scores, scores, clip=0.1)
    with pytest.raises(ValueError, match="prediction and old must have the same shape"):
        pair_loss(scores, scores, old=old, clip=0.1)
    with pytest.raises(ValueError, match="clip must be above 0"):
        pair_loss(scores, scores, old=scores, clip=0.0)


def test_constants_of_scores_and_targets_cost_no_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = 5 + 1e-3 * torch.randn(100, generator=generator)
    targets = 1000 + torch.randint(16, (100,), generator=generator) / 2**10
    errors = (scores.double() - targets.double()).var(correction=0)
    assert float(SeparablePairs(targets).loss(scores)) == pytest.approx(2 * float(errors), rel=1e-5)
