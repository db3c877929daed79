import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from relval.critics import Minibatch, RelativeConfig
from relval.critics.pairs import Pairs
from relval.relative import (
    Delta,
    LinearDelta,
    Trajectories,
    gae,
    lambda_targets,
    mean_offset,
    minvar_offset,
    n_step_targets,
    one_step_targets,
    pair_loss,
    ranked_values,
    telescoped_values,
    terminal_offset,
    trajectory_constant,
)
from tests.critics.rollouts import GAMMA, LAM, Case, assert_same_loss
from tests.settings import paper_critic

HEADS: list[Any] = ["linear", "mlp"]
BOTH_TERMINAL: list[Any] = ["zero", "derived"]
ANCHORS: dict[Any, Callable[[Delta, Trajectories], Tensor]] = {
    "zero": telescoped_values,
    "rank": ranked_values,
    "terminal": lambda delta, traj: (
        ranked_values(delta, traj)
        + terminal_offset(traj, ranked_values(delta, traj), gamma=GAMMA, decay=LAM)
    ),
    "mean": lambda delta, traj: (
        ranked_values(delta, traj)
        + mean_offset(traj, ranked_values(delta, traj), gamma=GAMMA, lam=LAM)
    ),
    "minvar": lambda delta, traj: (
        ranked_values(delta, traj)
        + minvar_offset(traj, ranked_values(delta, traj), gamma=GAMMA, lam=LAM)
    ),
}


def partners(minibatch: Minibatch) -> Tensor:
    """The second states of sampled pairs, which are encoded behind the first ones."""
    count = len(minibatch.transitions)
    assert len(minibatch.encode) == 2 * count
    return minibatch.encode[count:]


def learned_pairs(minibatch: Minibatch, pairs: str) -> tuple[Tensor, Tensor]:
    """The pairs that a minibatch is learned from: all of its own, or each with its partner."""
    i = minibatch.transitions
    if pairs == "all":
        first, second = torch.meshgrid(i, i, indexing="ij")
        return first, second
    return i, partners(minibatch)


def frozen(case: Case) -> Delta:
    """The differences as the critic sees them now, whatever is learned later."""
    if case.rollout.memory.ndim == 1:
        return LinearDelta(case.rollout.memory.clone())
    head, memory = copy.deepcopy(case.head), case.rollout.memory.clone()
    return lambda a, b: head(memory[a] - memory[b])


def differences(case: Case, i: Tensor, j: Tensor) -> Tensor:
    """What the critic predicts with its current parameters."""
    difference: Tensor = case.head(case.features[i] - case.features[j])
    return difference.squeeze(-1) if difference.ndim > i.ndim else difference


def n_step_loss(case: Case, old: Delta, i: Tensor, j: Tensor) -> Tensor:
    """The loss over given pairs, by hand."""
    config: Any = case.critic.config
    target = n_step_targets(
        old, case.traj, i, j, n=config.n, gamma=GAMMA, both_terminal=config.both_terminal
    )
    prediction = differences(case, i, j)
    error = (prediction - target).square()
    if config.clip is not None:
        before = old(i, j)
        clipped = before + (prediction - before).clamp(-config.clip, config.clip)
        error = torch.maximum(error, (clipped - target).square())
    return error.mean()


@pytest.mark.parametrize("both_terminal", BOTH_TERMINAL)
@pytest.mark.parametrize("n", [1, 3, 5, 40])
@pytest.mark.parametrize("size", [5, 16, 1000])
def test_the_closed_form_is_the_mean_over_all_pairs(n: int, both_terminal: Any, size: int) -> None:
    case = Case(paper_critic(pairs="all", clip=None, n=n, both_terminal=both_terminal))
    old = frozen(case)
    case.learn_something()
    for minibatch in case.minibatches(size):
        i, j = torch.meshgrid(minibatch.transitions, minibatch.transitions, indexing="ij")
        expected = n_step_loss(case, old, i, j)
        assert_same_loss(case, case.evaluate(minibatch).loss, expected)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("clip", [0.15, 1e6])
def test_all_pairs_are_all_pairs_of_the_minibatch(head: Any, clip: float) -> None:
    case = Case(paper_critic(pairs="all", head=head, clip=clip))
    old = frozen(case)
    case.learn_something()
    for minibatch in case.minibatches():
        i, j = torch.meshgrid(minibatch.transitions, minibatch.transitions, indexing="ij")
        expected = n_step_loss(case, old, i, j)
        assert_same_loss(case, case.evaluate(minibatch).loss, expected)


def test_the_closed_form_equals_the_form_with_pairs_whose_clip_never_acts() -> None:
    closed = Case(paper_critic(pairs="all", clip=None))
    explicit = Case(paper_critic(pairs="all", clip=1e6))
    closed.learn_something()
    explicit.learn_something()
    for a, b in zip(closed.minibatches(), explicit.minibatches(), strict=True):
        assert torch.equal(a.transitions, b.transitions)
        one, other = closed.evaluate(a).loss, explicit.evaluate(b).loss
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(closed.gradient(one), explicit.gradient(other))


@pytest.mark.parametrize("pairs", ["random", "biased"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("clip", [None, 0.15])
def test_the_loss_of_sampled_pairs_by_hand(pairs: Any, head: Any, clip: float | None) -> None:
    case = Case(paper_critic(pairs=pairs, head=head, clip=clip))
    old = frozen(case)
    case.learn_something()
    for minibatch in case.minibatches():
        expected = n_step_loss(case, old, minibatch.transitions, partners(minibatch))
        assert_same_loss(case, case.evaluate(minibatch).loss, expected)


@pytest.mark.parametrize("head", HEADS)
def test_clipping_departs_from_old_differences(head: Any) -> None:
    """Before anything is learned clipping changes nothing; later it makes the loss larger."""
    for learned in (False, True):
        losses = []
        for clip in (None, 0.15):
            case = Case(paper_critic(head=head, clip=clip))
            if learned:
                case.learn_something()
            losses.append(torch.stack([case.evaluate(m).loss for m in case.minibatches()]))
        assert torch.allclose(losses[0], losses[1]) is not learned
        assert (losses[1] >= losses[0] - 1e-12).all()


@pytest.mark.parametrize("pairs", ["biased", "all"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("clip", [None, 0.15])
@pytest.mark.parametrize("both_terminal", BOTH_TERMINAL)
@pytest.mark.parametrize("target", ["one-step", "n-step", "lambda"])
def test_the_target_is_the_one_asked_for(
    target: Any, both_terminal: Any, clip: float | None, head: Any, pairs: Any
) -> None:
    config = paper_critic(
        target=target,
        both_terminal=both_terminal,
        pairs=pairs,
        clip=clip,
        head=head,
        n=3,
        target_lam=0.7,
    )
    case = Case(config)
    old = frozen(case)
    case.learn_something()
    for minibatch in case.minibatches():
        i, j = learned_pairs(minibatch, pairs)
        options: Any = {"gamma": GAMMA, "both_terminal": both_terminal}
        if target == "one-step":
            y = one_step_targets(old, case.traj, i, j, **options)
        elif target == "n-step":
            y = n_step_targets(old, case.traj, i, j, n=3, **options)
        else:
            y = lambda_targets(old, case.traj, i, j, lam=0.7, **options)
        expected = pair_loss(differences(case, i, j), y, old=old(i, j), clip=clip)
        assert_same_loss(case, case.evaluate(minibatch).loss, expected)


@pytest.mark.parametrize("pairs", ["biased", "all"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("clip", [None, 0.15])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_differences_of_returns_are_those_of_anchored_values(
    anchor: Any, clip: float | None, head: Any, pairs: Any
) -> None:
    config = paper_critic(
        target="returns", anchor=anchor, pairs=pairs, clip=clip, head=head, target_lam=0.7
    )
    case = Case(config)
    old = frozen(case)
    with torch.no_grad():
        values = ANCHORS[anchor](old, case.traj)
        returns = (
            gae(case.traj, values, gamma=GAMMA, lam=0.7).flatten()
            + values[: case.traj.rewards.numel()]
        )
    case.learn_something()
    for minibatch in case.minibatches():
        i, j = learned_pairs(minibatch, pairs)
        expected = pair_loss(
            differences(case, i, j), returns[i] - returns[j], old=old(i, j), clip=clip
        )
        assert_same_loss(case, case.evaluate(minibatch).loss, expected)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("clip", [None, 0.15])
def test_partners_of_the_minibatch_are_each_of_it_once(head: Any, clip: float | None) -> None:
    case = Case(paper_critic(pairs="random", partners="minibatch", head=head, clip=clip))
    old = frozen(case)
    case.learn_something()
    for minibatch in case.minibatches():
        assert isinstance(minibatch, Pairs)
        assert minibatch.partners is not None
        i = minibatch.transitions
        j = i[minibatch.partners]
        assert torch.equal(minibatch.encode, i)
        assert torch.equal(j.sort().values, i.sort().values)
        assert not torch.equal(j, i)
        assert_same_loss(case, case.evaluate(minibatch).loss, n_step_loss(case, old, i, j))


@pytest.mark.parametrize("pairs", ["biased", "all"])
@pytest.mark.parametrize("clip", [None, 0.15])
def test_refreshed_targets_are_those_of_the_parameters_of_now(
    pairs: Any, clip: float | None
) -> None:
    """Clipping still departs from the old differences, and the policy has its old advantages."""
    case = Case(paper_critic(pairs=pairs, clip=clip, refresh_targets=True))
    assert case.critic.refreshes
    old, advantages = frozen(case), case.advantages()
    case.learn_something()
    with torch.no_grad():
        now = case.critic.remember(case.features)
    rollout = replace(case.rollout, memory=now)
    case.prepared = case.critic.refresh(case.prepared, rollout, gamma=GAMMA, lam=LAM)
    for minibatch in case.minibatches():
        i, j = learned_pairs(minibatch, pairs)
        y = n_step_targets(LinearDelta(now), case.traj, i, j, n=5, gamma=GAMMA)
        expected = pair_loss(differences(case, i, j), y, old=old(i, j), clip=clip)
        assert_same_loss(case, case.evaluate(minibatch).loss, expected)
    assert torch.equal(case.advantages(), advantages)


def test_a_rollout_moves_the_constant_once_however_often_targets_are_refreshed() -> None:
    case = Case(RelativeConfig(refresh_targets=True))
    remembered = {name: value.clone() for name, value in case.critic.named_buffers()}
    assert remembered["prepared_rollouts"] == 1
    other = replace(case.rollout, memory=case.rollout.memory + 5.0)
    case.critic.refresh(case.prepared, other, gamma=GAMMA, lam=LAM)
    assert dict(case.critic.named_buffers()) == remembered


def test_partners_of_the_minibatch_are_random_ones() -> None:
    with pytest.raises(ValueError, match=r"is for critic\.pairs random, got biased"):
        paper_critic(partners="minibatch")


def test_partners_are_drawn_anew_in_each_epoch() -> None:
    case = Case(paper_critic())
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(2):
        dealt = case.critic.minibatches(case.rollout, case.prepared, 10**6, generator)
        (minibatch,) = dealt
        drawn.append(partners(minibatch)[minibatch.transitions.argsort()])
    assert not torch.equal(*drawn)


def test_biased_pairs_share_an_episode_more_often_than_random_ones() -> None:
    def shared(pairs: Any, probability: float) -> float:
        case = Case(paper_critic(pairs=pairs, same_episode=probability))
        traj = case.traj
        segment = torch.arange(len(traj.elapsed)) - traj.elapsed * traj.envs
        same = [
            segment[minibatch.transitions] == segment[partners(minibatch)]
            for seed in range(40)
            for minibatch in case.minibatches(seed=seed)
        ]
        return float(torch.cat(same).double().mean())

    chance = shared("random", 0.9)
    assert chance == pytest.approx(shared("biased", 0.0), abs=0.03)
    assert shared("biased", 1.0) == 1.0
    assert shared("biased", 0.5) == pytest.approx(0.5 + 0.5 * chance, abs=0.04)


@pytest.mark.parametrize("head", HEADS)
def test_the_head_is_odd(head: Any) -> None:
    case = Case(paper_critic(head=head))
    assert torch.equal(case.head(-case.features), -case.head(case.features))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("anchor", ANCHORS)
def test_advantages_are_gae_of_anchored_values(anchor: Any, head: Any) -> None:
    config = paper_critic(head=head, anchor=anchor, normalise_advantages=False)
    case = Case(config)
    with torch.no_grad():
        values = ANCHORS[anchor](frozen(case), case.traj)
        expected = gae(case.traj, values, gamma=GAMMA, lam=LAM)[case.traj.valid]
    case.learn_something()
    torch.testing.assert_close(case.advantages(), expected, rtol=1e-10, atol=1e-10)

    normalised = Case(replace(config, normalise_advantages=True)).advantages()
    scaled = (expected - expected.mean()) / expected.std(correction=0)
    torch.testing.assert_close(normalised, scaled, rtol=1e-6, atol=1e-6)


def test_an_end_that_is_not_masked_is_worth_what_follows() -> None:
    config = paper_critic(mask_terminal=False, normalise_advantages=False)
    case = Case(config)
    traj, advantages = case.traj, case.critic.prepare(case.rollout, gamma=GAMMA, lam=LAM).advantages
    values = ranked_values(frozen(case), traj)
    advantages = advantages.view(traj.steps, traj.envs)
    for t, n in traj.valid.nonzero().tolist():
        expected = traj.rewards[t, n] + GAMMA * values[traj.successor[t, n]]
        expected -= values[t * traj.envs + n]
        ended = traj.terminated[t, n] or traj.truncated[t, n] or t == traj.steps - 1
        if not ended:
            expected += GAMMA * LAM * advantages[t + 1, n]
        assert advantages[t, n] == pytest.approx(expected.item())
    masked = Case(replace(config, mask_terminal=True)).prepared.advantages
    assert not torch.allclose(advantages.flatten(), masked)


def test_the_anchors_differ() -> None:
    advantages = [
        Case(paper_critic(anchor=anchor, normalise_advantages=False)).advantages()
        for anchor in ANCHORS
    ]
    for one, other in combinations(advantages, 2):
        assert not torch.allclose(one, other)


def test_the_terminal_anchor_keeps_its_offset_where_nothing_terminates() -> None:
    config = paper_critic(anchor="terminal", normalise_advantages=False)
    case = Case(config)
    offset = case.critic.state_dict()["offset"].clone()
    assert offset != 0
    traj = case.traj
    endless = traj.changed(terminated=torch.zeros_like(traj.terminated))
    later = case.critic.prepare(replace(case.rollout, traj=endless), gamma=GAMMA, lam=LAM)
    expected = gae(endless, case.rollout.memory + offset, gamma=GAMMA, lam=LAM).flatten()
    torch.testing.assert_close(later.advantages, expected)
    assert torch.equal(case.critic.state_dict()["offset"], offset)


def test_the_constant_of_the_mean_is_an_average_over_rollouts() -> None:
    """Of the first ones all count alike, and later the newest as the rate says."""
    config = paper_critic(anchor="mean", offset_rate=0.3, normalise_advantages=False)
    case = Case(config)
    single = float(mean_offset(case.traj, case.rollout.memory, gamma=GAMMA, lam=LAM))
    expected = single
    assert float(case.critic.state_dict()["offset"]) == pytest.approx(single)
    for shift, weight in ((2.0, 1 / 2), (5.0, 1 / 3), (-1.0, 0.3), (4.0, 0.3)):
        shifted = replace(case.rollout, memory=case.rollout.memory - shift)
        prepared = case.critic.prepare(shifted, gamma=GAMMA, lam=LAM)
        expected += weight * (single + shift - expected)
        assert float(case.critic.state_dict()["offset"]) == pytest.approx(expected)
        values = shifted.memory + expected
        torch.testing.assert_close(
            prepared.advantages, gae(case.traj, values, gamma=GAMMA, lam=LAM).flatten()
        )


@pytest.mark.parametrize("anchor", ANCHORS)
def test_in_another_gauge_differences_are_the_same_and_advantages_as_anchored(anchor: Any) -> None:
    """Where nothing terminates, (1 − γ) c added to rewards is c added to values (Lemma B.1)."""
    gauge = torch.tensor(100.0, dtype=torch.float64)
    none = torch.zeros(12, 4, dtype=torch.bool)
    rewards = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    config = paper_critic(anchor=anchor, normalise_advantages=False)
    plain = Case(config, Trajectories(rewards, none))
    shifted = Case(config, Trajectories(rewards + (1 - GAMMA) * gauge, none))
    for one, other in zip(plain.minibatches(), shifted.minibatches(), strict=True):
        assert isinstance(one, Pairs)
        assert isinstance(other, Pairs)
        torch.testing.assert_close(one.target, other.target)
    gained = (shifted.advantages() - plain.advantages()).view(12, 4)
    constant = trajectory_constant(gauge, 12, gamma=GAMMA, lam=LAM)
    expected = torch.zeros_like(constant) if anchor in ("mean", "minvar") else constant
    torch.testing.assert_close(gained, expected[:, None].expand(12, 4))


def test_anchors_that_know_ends_need_them() -> None:
    with pytest.raises(ValueError, match=r"needs critic\.mask_terminal"):
        paper_critic(anchor="minvar", mask_terminal=False)


@pytest.mark.parametrize("head", HEADS)
def test_gradients_flow_through_both_states_of_a_pair(head: Any) -> None:
    case = Case(paper_critic(head=head, clip=None))
    minibatch = case.minibatches()[0]
    features = case.features[minibatch.encode].requires_grad_()
    loss = case.critic.evaluate(case.prepared, minibatch, features).loss
    (gradient,) = torch.autograd.grad(loss, features)
    first, second = gradient.chunk(2)
    apart = minibatch.transitions != partners(minibatch)
    assert (first[apart] != 0).any(1).all()
    torch.testing.assert_close(first, -second)
