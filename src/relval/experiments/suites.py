"""Suites: sets of runs that answer a question together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from relval._names import check_name
from relval.envs.atari.names import PAPER_GAMES
from relval.experiments.scores import read_table
from relval.runs import Config, configure


@dataclass(frozen=True)
class Variant:
    """A critic with its options, under the name that tables give it."""

    name: str
    critic: str
    options: dict[str, Any] = field(default_factory=dict)

    def configure(self, env: str, seed: int, total_steps: int) -> Config:
        """The run of this variant on an environment."""
        return configure(
            env, self.critic, seed=seed, total_steps=total_steps, critic_options=self.options
        )


@dataclass(frozen=True)
class Suite:
    """Environments, variants and seeds; every combination is a run."""

    summary: str
    envs: tuple[str, ...]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    total_steps: int
    cites: str | None = None
    """What of the paper it reproduces."""

    def runs(self) -> dict[str, Config]:
        """All runs by name, seed by seed, so that an early stop leaves whole comparisons."""
        return {
            f"{env.replace('/', '-')}/{variant.name}/{seed}": variant.configure(
                env, seed, self.total_steps
            )
            for seed in self.seeds
            for env in self.envs
            for variant in self.variants
        }

    def narrowed(
        self,
        *,
        games: Sequence[str] = (),
        critics: Sequence[str] = (),
        seeds: Sequence[int] = (),
        total_steps: int | None = None,
    ) -> "Suite":
        """The same with some of its games, variants and seeds, or shorter; all where none is named.

        A game may be named without its family: `Breakout` for `MinAtar/Breakout`.
        """
        envs = {env.rpartition("/")[2]: env for env in self.envs} | {env: env for env in self.envs}
        for game in games:
            check_name("game in this suite", game, envs)
        for critic in critics:
            check_name("critic in this suite", critic, [variant.name for variant in self.variants])
        for seed in seeds:
            check_name("seed in this suite", str(seed), map(str, self.seeds))
        chosen = {envs[game] for game in games}
        return replace(
            self,
            envs=tuple(env for env in self.envs if not games or env in chosen),
            variants=tuple(v for v in self.variants if not critics or v.name in critics),
            seeds=tuple(seed for seed in self.seeds if not seeds or seed in seeds),
            total_steps=total_steps or self.total_steps,
        )


ABSOLUTE = Variant("absolute", "absolute")
RELATIVE = Variant("relative", "relative")
RELATIVE_ALL = Variant("relative-all", "relative", {"pairs": "all"})
RELATIVE_MLP = Variant("relative-mlp", "relative", {"head": "mlp"})
DISCOUNTED = Variant("discounted", "discounted")
DAE = Variant("dae", "dae")

_ABLATED_GAMES = tuple(row["game"] for row in read_table("paper_pair_sampling_ablation.csv"))
_ATARI_STEPS = 10_000_000
"""The paper's 40M frames."""

SUITES: dict[str, Suite] = {
    "atari49": Suite(
        summary="PPO, DAE and PPO with the relative critic on the paper's 49 games",
        cites="Table 1, and the figure of aggregates",
        envs=PAPER_GAMES,
        variants=(ABSOLUTE, DAE, RELATIVE),
        seeds=tuple(range(1, 11)),
        total_steps=_ATARI_STEPS,
    ),
    "value-init": Suite(
        summary="relative values that start at zero, or ranked by their start states",
        cites="the figure on value initialization",
        envs=_ABLATED_GAMES,
        variants=(
            Variant("zero", "relative", {"anchor": "zero"}),
            Variant("rank", "relative", {"anchor": "rank"}),
        ),
        seeds=tuple(range(1, 6)),
        total_steps=_ATARI_STEPS,
    ),
    "pair-sampling": Suite(
        summary="partners drawn at random, or from the own episode with probability .33 or .66",
        cites="Table 4",
        envs=_ABLATED_GAMES,
        variants=(
            Variant("random", "relative", {"pairs": "random"}),
            Variant("biased33", "relative", {"pairs": "biased", "same_episode": 0.33}),
            Variant("biased66", "relative", {"pairs": "biased", "same_episode": 0.66}),
        ),
        seeds=tuple(range(1, 6)),
        total_steps=_ATARI_STEPS,
    ),
    "smoke": Suite(
        summary="three critics on small tasks, in minutes, to see that all works",
        envs=("CartPole-v1", "MinAtar/Breakout"),
        variants=(ABSOLUTE, RELATIVE, DAE),
        seeds=(1, 2),
        total_steps=20_000,
    ),
    "cartpole": Suite(
        summary="every critic on CartPole-v1",
        envs=("CartPole-v1",),
        variants=(ABSOLUTE, RELATIVE, RELATIVE_ALL, RELATIVE_MLP, DISCOUNTED, DAE),
        seeds=(1, 2, 3),
        total_steps=300_000,
    ),
    "pendulum": Suite(
        summary="continuous actions and negative values, on Pendulum-v1",
        envs=("Pendulum-v1",),
        variants=(ABSOLUTE, RELATIVE),
        seeds=(1, 2, 3),
        total_steps=500_000,
    ),
    "minatar": Suite(
        summary="four critics on the five games of MinAtar",
        envs=tuple(
            f"MinAtar/{game}"
            for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
        ),
        variants=(ABSOLUTE, RELATIVE, DISCOUNTED, DAE),
        seeds=tuple(range(1, 11)),
        total_steps=1_000_000,
    ),
    "minatar-small": Suite(
        summary="four critics on two MinAtar games",
        envs=("MinAtar/Breakout", "MinAtar/Asterix"),
        variants=(ABSOLUTE, RELATIVE, DISCOUNTED, DAE),
        seeds=(1, 2, 3),
        total_steps=1_000_000,
    ),
}


def suite(name: str) -> Suite:
    """The suite of a name."""
    check_name("suite", name, SUITES)
    return SUITES[name]
