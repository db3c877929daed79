"""The paper's critic: value differences, learned from pairs of states (Sec. 3 to 5)."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

from relval._bounds import Count, Positive, Share, Weight
from relval.critics.base import (
    Critic,
    CriticConfig,
    Evaluation,
    Minibatch,
    Rollout,
    estimated_constant,
    explained_variance,
    shuffled_parts,
)
from relval.critics.pairs import Pairs, some_pairs, with_partners
from relval.networks import OddHead, score_head
from relval.relative import (
    AllPairs,
    Delta,
    Expansion,
    LinearDelta,
    SeparablePairs,
    Trajectories,
    gae,
    lambda_returns,
    lambda_targets,
    mean_offset,
    minvar_offset,
    n_step_targets,
    pair_loss,
    ranked_values,
    telescoped_values,
    terminal_offset,
)
from relval.relative.targets import BothTerminal

Anchor = Literal["zero", "rank", "mean", "terminal", "minvar"]
_LASTING = ("mean", "terminal")
"""Anchors whose constant belongs to the scores themselves, and so lasts from one rollout to the
next; that of ranks does not."""
_GAUGES: dict[Anchor, str] = {
    "zero": "relative, from zero at each episode's start",
    "rank": "relative, ranked by their start states",
    "mean": "relative, with the constant that centres advantages",
    "terminal": "relative, with the constant that returns before ends tell",
    "minvar": "relative, with the constant that makes advantages smallest",
}


@dataclass(frozen=True)
class RelativeConfig(CriticConfig):
    """Value differences Δ(s, s'), learned from pairs with the mean squared error.

    By default with what was found best; the preset `paper` has the paper's settings.
    """

    coefficient: Weight = 0.1
    """Weight of the critic's loss. The paper prints 1.25, which drowns the policy's gradient where
    both share an encoder."""
    head: Literal["linear", "mlp"] = "linear"
    """Difference of one score per state (the paper's), or an odd function of embeddings."""
    pairs: Literal["random", "biased", "all"] = "all"
    """Partners drawn from the batch, some of them from the own episode, or all in the minibatch."""
    same_episode: Share = 0.33
    """With biased pairs: the probability of a partner from the own episode."""
    partners: Literal["batch", "minibatch"] = "batch"
    """With random pairs: where partners are drawn from. Those of the minibatch are encoded anyway,
    which saves half the work."""
    refresh_targets: bool = False
    """Compute targets anew in each epoch, in place of once for a rollout."""
    target: Literal["one-step", "n-step", "lambda", "returns"] = "returns"
    """What the differences are regressed on: the paper's targets, which hardly see that an end is
    worth zero, or beyond the paper the differences of λ-returns of anchored values."""
    n: Count = 5
    """Steps of n-step targets."""
    target_lam: Share = 0.95
    """λ of λ targets and returns."""
    both_terminal: BothTerminal = "zero"
    """What two terminal successors differ by: nothing, or what Eq. 20 derives."""
    anchor: Anchor = "mean"
    """Where relative values start: at zero, or ranked by their start states (Sec. 4). Or beyond the
    paper, with one constant for all: what centres advantages, what returns before terminations
    tell, or what makes advantages smallest."""
    offset_rate: Share = 0.1
    """With the anchor mean and a linear head: the weight of the newest rollout in the constant."""
    mask_terminal: bool = True
    """Let the end of an episode be worth zero in advantages, as in GAE; or else as much as what is
    seen next, which in Atari is the next episode's start."""
    clip: Positive | None = None
    """Largest departure from the old difference that the loss rewards; None for no limit."""

    def __post_init__(self) -> None:
        if self.partners == "minibatch" and self.pairs != "random":
            raise ValueError(
                f"critic.partners minibatch is for critic.pairs random, got {self.pairs}"
            )
        if not self.mask_terminal and self.anchor not in ("zero", "rank"):
            raise ValueError(
                f"critic.anchor {self.anchor} knows that an end is worth zero, so it needs "
                "critic.mask_terminal"
            )


@dataclass(frozen=True, eq=False)
class _AllPairs(Minibatch):
    expansion: Expansion | SeparablePairs


@dataclass(frozen=True, eq=False)
class _Prepared:
    old: Delta
    targets: Callable[[Tensor, Tensor], Tensor]
    advantages: Tensor
    all_pairs: AllPairs | SeparablePairs | None
    """What gives the mean over all pairs in closed form, if there is one."""

    @torch.no_grad()
    def judge(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """What differences should be, and what they were."""
        return self.targets(i, j), self.old(i, j)


class RelativeCritic(Critic[_Prepared]):
    """Pairs of states, their targets, and R-GAE under an anchor."""

    def __init__(self, config: RelativeConfig, features: int, actions: int) -> None:
        super().__init__()
        self.config: RelativeConfig = config
        self.head = score_head(features) if config.head == "linear" else OddHead(features)
        if config.anchor in _LASTING:
            self.offset: Tensor
            self.prepared_rollouts: Tensor
            self.register_buffer("offset", torch.zeros(()))
            self.register_buffer("prepared_rollouts", torch.zeros(()))

    @property
    def in_closed_form(self) -> bool:
        """Whether the mean over all pairs needs no pairs: where it is linear and unclipped."""
        config = self.config
        return config.pairs == "all" and config.head == "linear" and config.clip is None

    @property
    def static(self) -> bool:
        """True except for ranks by a head that is not linear, which compares all start states."""
        return self.config.head == "linear" or self.config.anchor == "zero"

    def remember(self, features: Tensor) -> Tensor:
        """The score, or for a head that is not linear the features themselves."""
        return self.head(features).squeeze(-1) if self.config.head == "linear" else features

    def prepare(self, rollout: Rollout, *, gamma: float, lam: float) -> _Prepared:
        """Old differences, targets for any pair, and relative advantages."""
        prepared, offset = self._prepare(rollout, gamma=gamma, lam=lam)
        if self.config.anchor in _LASTING:
            self.offset.copy_(offset)
            self.prepared_rollouts += 1
        return prepared

    def _prepare(self, rollout: Rollout, *, gamma: float, lam: float) -> tuple[_Prepared, Tensor]:
        """The same, and the constant that a rollout leaves behind, once."""
        config, traj, memory = self.config, rollout.traj, rollout.memory
        old = self.delta(memory)
        with torch.no_grad():
            values, offset = self._anchored(old, traj, gamma=gamma, lam=lam)
        masked = traj if config.mask_terminal else _going_on(traj)
        advantages = gae(masked, values, gamma=gamma, lam=lam).flatten()
        if config.target == "returns":
            returns = lambda_returns(masked, values, gamma=gamma, lam=config.target_lam).flatten()
            separable = SeparablePairs(returns)
            return _Prepared(old, LinearDelta(returns), advantages, separable), offset
        rule, target_lam = config.both_terminal, 1.0
        if config.target == "lambda":
            n, target_lam = traj.steps, config.target_lam
            targets = partial(lambda_targets, lam=target_lam)
        else:
            n = 1 if config.target == "one-step" else config.n
            targets = partial(n_step_targets, n=n)
        prepared = _Prepared(
            old,
            partial(targets, old, traj, gamma=gamma, both_terminal=rule),
            advantages,
            AllPairs(memory, traj, n=n, gamma=gamma, lam=target_lam, both_terminal=rule)
            if self.in_closed_form
            else None,
        )
        return prepared, offset

    def _anchored(
        self, delta: Delta, traj: Trajectories, *, gamma: float, lam: float
    ) -> tuple[Tensor, Tensor]:
        """One value per state, from differences, `[S]`, and the constant that is part of it."""
        anchor, none = self.config.anchor, traj.rewards.new_zeros(())
        if anchor == "zero":
            return telescoped_values(delta, traj), none
        if anchor in _LASTING and isinstance(delta, LinearDelta):
            values = delta.scores[: traj.num_states]
        else:
            values = ranked_values(delta, traj)
        if anchor == "rank":
            return values, none
        if anchor == "mean":
            offset = mean_offset(traj, values, gamma=gamma, lam=lam)
            if isinstance(delta, LinearDelta):
                weight = (1 / (1 + self.prepared_rollouts)).clamp(min=self.config.offset_rate)
                offset = self.offset.lerp(offset, weight)
        elif anchor == "minvar":
            offset = minvar_offset(traj, values, gamma=gamma, lam=lam)
        else:
            offset = terminal_offset(traj, values, gamma=gamma, decay=lam)
            offset = torch.where(offset.isnan(), self.offset, offset)
        return values + offset, offset

    @property
    def refreshes(self) -> bool:
        """Whether targets are computed anew in each epoch."""
        return self.config.refresh_targets

    def refresh(
        self, prepared: _Prepared, rollout: Rollout, *, gamma: float, lam: float
    ) -> _Prepared:
        """New targets, with the old differences and advantages."""
        again, _ = self._prepare(rollout, gamma=gamma, lam=lam)
        return replace(again, old=prepared.old, advantages=prepared.advantages)

    def minibatches(
        self, rollout: Rollout, prepared: _Prepared, size: int, generator: torch.Generator
    ) -> Iterator[Minibatch]:
        """Shuffled transitions, each part with its partners, drawn anew in each epoch."""
        traj = rollout.traj
        parts = shuffled_parts(traj.transitions, size, generator)
        if self.in_closed_form:
            assert prepared.all_pairs is not None
            yield from _in_closed_form(prepared.all_pairs, parts)
            return
        if self.config.pairs == "all":
            for part in parts:
                i, j = torch.meshgrid(part, part, indexing="ij")
                yield Pairs(part, part, *prepared.judge(i, j))
            return
        if self.config.partners == "minibatch":
            for part in parts:
                order = torch.randperm(len(part), generator=generator, device=part.device)
                yield Pairs(part, part, *prepared.judge(part, part[order]), partners=order)
            return
        p = self.config.same_episode if self.config.pairs == "biased" else 0.0
        yield from with_partners(parts, traj, prepared.judge, same_episode=p, generator=generator)

    def evaluate(self, prepared: _Prepared, minibatch: Minibatch, features: Tensor) -> Evaluation:
        """The loss over the minibatch's pairs."""
        if isinstance(minibatch, _AllPairs):
            loss = minibatch.expansion.loss(self.head(features).squeeze(-1))
        else:
            assert isinstance(minibatch, Pairs)
            differences = self._differences(features, minibatch)
            clip = self.config.clip
            loss = pair_loss(differences, minibatch.target, old=minibatch.old, clip=clip)
        return self.judged(loss, prepared.advantages[minibatch.transitions])

    def diagnose(
        self, rollout: Rollout, prepared: _Prepared, *, gamma: float, lam: float
    ) -> dict[str, Tensor]:
        """How well differences explain their targets, and how much relative values differ."""
        i, j = some_pairs(rollout.traj.transitions)
        target, old = prepared.judge(i, j)
        return {
            "explained_variance": explained_variance(target, old),
            "value_spread": (old.square().mean() / 2).sqrt(),
            **estimated_constant(rollout.traj, prepared.advantages, gamma=gamma, lam=lam),
        }

    def delta(self, memory: Tensor) -> Delta:
        """The differences as the parameters of now see them, whatever is learned later."""
        if self.config.head == "linear":
            return LinearDelta(memory)
        head = copy.deepcopy(self.head).requires_grad_(False)
        return lambda a, b: head(memory[a] - memory[b])

    def values(self, memory: Tensor, traj: Trajectories, *, gamma: float, lam: float) -> Tensor:
        """Relative values under the anchor, as advantages are made of."""
        return self._anchored(self.delta(memory), traj, gamma=gamma, lam=lam)[0]

    @property
    def gauge(self) -> str:
        """Relative to what."""
        return _GAUGES[self.config.anchor]

    def _differences(self, features: Tensor, minibatch: Pairs) -> Tensor:
        """Predicted differences: of each state to its partner, or of all to all."""
        if self.config.head == "linear":
            features = self.head(features).squeeze(-1)
        if self.config.pairs == "all":
            difference = features[:, None] - features[None, :]
        elif minibatch.partners is not None:
            difference = features - features[minibatch.partners]
        else:
            count = len(minibatch.transitions)
            difference = features[:count] - features[count:]
        return difference if self.config.head == "linear" else self.head(difference)


def _going_on(traj: Trajectories) -> Trajectories:
    """The same with nothing terminal: what ends is cut off, and its successor has a value."""
    return traj.changed(
        terminated=torch.zeros_like(traj.terminated), truncated=traj.terminated | traj.truncated
    )


def _in_closed_form(
    all_pairs: AllPairs | SeparablePairs, parts: tuple[Tensor, ...]
) -> Iterator[Minibatch]:
    """Minibatches with their losses as functions of scores, made together where equally large."""
    for _, equally_large in groupby(parts, key=len):
        group = list(equally_large)
        expanded = all_pairs.expand(torch.stack(group))
        expansions: Sequence[Expansion | SeparablePairs] = expanded.unbind()
        for part, expansion in zip(group, expansions, strict=True):
            yield _AllPairs(part, part, expansion)
