"""Suites: sets of runs that answer a question together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from relval._names import check_name
from relval.critics.relative import Anchor
from relval.envs.atari.names import PAPER_GAMES
from relval.experiments.scores import read_table
from relval.runs import Config, configure
from relval.runs.config import Device, Precision
from relval.runs.files import label as label


@dataclass(frozen=True)
class Variant:
    """A critic with its options, under the name that tables give it."""

    name: str
    critic: str
    options: dict[str, Any] = field(default_factory=dict)
    preset: str | None = None
    """By default the one that suits the environment."""
    ppo: dict[str, Any] = field(default_factory=dict)
    """Changes to PPO's settings."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """Changes to the environments' settings."""
    preferences: dict[str, Any] = field(default_factory=dict)
    """How it learns from comparisons, if it does."""


@dataclass(frozen=True)
class Printed:
    """Where the paper prints what a suite measures."""

    table: str
    """A file in `data`."""
    columns: dict[str, str]
    """How its columns begin, for each variant."""


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
    printed: Printed | None = None
    """The paper's numbers."""
    device: Device = "cpu"
    precision: Precision = "tf32"

    def runs(self) -> dict[str, Config]:
        """All runs by name, seed by seed, so that an early stop leaves whole comparisons."""
        return {
            f"{label(env)}/{variant.name}/{seed}": configure(
                env,
                variant.critic,
                preset=variant.preset,
                seed=seed,
                total_steps=self.total_steps,
                critic_options=variant.options,
                ppo=variant.ppo,
                envs=variant.env_options,
                preferences=variant.preferences,
                device=self.device,
                precision=self.precision,
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
        device: Device | None = None,
        precision: Precision | None = None,
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
            total_steps=self.total_steps if total_steps is None else total_steps,
            device=device or self.device,
            precision=precision or self.precision,
        )


_PAPER = {"target": "n-step", "pairs": "biased", "anchor": "rank"}
_LAMBDA_ALL = {"target": "lambda", "pairs": "all", "clip": None}
_RETURNS = {"target": "returns", "pairs": "all", "clip": None}

ABSOLUTE = Variant("absolute", "absolute")
RELATIVE = Variant("relative", "relative")
RELATIVE_MLP = Variant("relative-mlp", "relative", {"head": "mlp", "pairs": "random"})
PAPER = Variant("paper", "relative", _PAPER)
"""The paper's targets, pairs and anchor, with the weight of the environment's preset."""
DISCOUNTED = Variant("discounted", "discounted")
DAE = Variant("dae", "dae")

_ABLATED_GAMES = tuple(row["game"] for row in read_table("paper_pair_sampling_ablation.csv"))
_ATARI_STEPS = 10_000_000
"""The paper's 40M frames."""
_ATARI_ABSOLUTE = Variant("absolute", "absolute", preset="relval")
_ATARI_RELVAL = Variant("relval", "relative", preset="relval")
_ANCHORS = get_args(Anchor)
_GAUGES = (0, 10, 100, 1000)


def _anchored(anchor: str) -> Variant:
    return Variant(anchor, "relative", {**_PAPER, "anchor": anchor})


def _returns(name: str, anchor: str, **options: Any) -> Variant:
    return Variant(name, "relative", {**_RETURNS, "anchor": anchor, **options})


def _in_gauge(variant: Variant, gauge: int) -> Variant:
    """The same with a constant added to all values, by what is added to rewards."""
    return replace(variant, name=f"{variant.name}+{gauge}", env_options={"gauge": gauge})


def _reading(name: str, **changes: dict[str, Any]) -> Variant:
    """The paper's settings, something read otherwise."""
    return Variant(name, "relative", preset="paper", **changes)


def _fitted(name: str, **options: Any) -> Variant:
    """The reading of the paper's settings that fits its numbers."""
    return Variant(name, "relative", options, preset="paper-fit")


def _candidate(name: str, **options: Any) -> Variant:
    """The paper's settings with a smaller weight, and other settings of the critic."""
    return _reading(name, options={"coefficient": 0.3, **options})


SUITES: dict[str, Suite] = {
    "atari49": Suite(
        summary="PPO, DAE and PPO with the relative critic on the paper's 49 games",
        cites="Table 1, and the figure of aggregates",
        envs=PAPER_GAMES,
        variants=(ABSOLUTE, DAE, _fitted("relative")),
        seeds=tuple(range(1, 11)),
        total_steps=_ATARI_STEPS,
        printed=Printed(
            "paper_table1_atari.csv",
            columns={"absolute": "ppo", "dae": "dae", "relative": "rv"},
        ),
    ),
    "atari": Suite(
        summary="the paper's settings, relval's and PPO's own critic, at full length on four games",
        cites="four games of Table 1",
        envs=("Pong", "Breakout", "Tennis", "Boxing"),
        variants=(
            _ATARI_ABSOLUTE,
            Variant("cleanrl", "absolute", preset="cleanrl"),
            _reading("paper"),
            _reading("weight-0.3", options={"coefficient": 0.3}),
            _ATARI_RELVAL,
        ),
        seeds=tuple(range(1, 11)),
        total_steps=_ATARI_STEPS,
        printed=Printed(
            "paper_table1_atari.csv",
            columns={
                "absolute": "ppo",
                "cleanrl": "ppo",
                "paper": "rv",
                "weight-0.3": "rv",
                "relval": "rv",
            },
        ),
    ),
    "readings": Suite(
        summary="what the paper leaves open, read one way and the other, on two games",
        cites="Table 3, and what it does not say",
        envs=("Pong", "Breakout"),
        variants=(
            _ATARI_ABSOLUTE,
            _reading("paper"),
            _reading("half", options={"coefficient": 0.625}),
            _reading("weight-0.3", options={"coefficient": 0.3}),
            _reading("raw-advantages", options={"normalise_advantages": False}),
            _reading("annealed", ppo={"anneal_learning_rate": True, "anneal_clip": True}),
            _reading("refreshed", options={"refresh_targets": True}),
            _reading("random", options={"pairs": "random"}),
            _reading("minibatch", options={"pairs": "random", "partners": "minibatch"}),
            _reading("unmasked", options={"mask_terminal": False}),
            _reading("whole-games", env_options={"episodic_life": False}),
            _reading("no-fire", env_options={"fire_reset": False}),
            _reading("half-random", options={"coefficient": 0.625, "pairs": "random"}),
        ),
        seeds=(1, 2),
        total_steps=1_000_000,
    ),
    "candidates": Suite(
        summary="settings that might serve the preset relval better, on two games",
        envs=("Pong", "Breakout"),
        variants=(
            _ATARI_ABSOLUTE,
            _candidate("weight-0.3"),
            _candidate("lambda", target="lambda"),
            _candidate("lambda-all", **_LAMBDA_ALL),
            _candidate("lambda-all-0.1", **_LAMBDA_ALL, coefficient=0.1),
            _candidate("lambda-all-minvar-0.1", **_LAMBDA_ALL, anchor="minvar", coefficient=0.1),
            _candidate("returns-mean-0.1", **_RETURNS, anchor="mean", coefficient=0.1),
        ),
        seeds=(1, 2, 3),
        total_steps=1_500_000,
    ),
    "pong": Suite(
        summary="the preset relval and PPO's own critic on Pong, with seeds that did not choose it",
        envs=("Pong",),
        variants=(_ATARI_ABSOLUTE, _ATARI_RELVAL),
        seeds=(5, 6, 7, 8, 9, 10),
        total_steps=1_500_000,
    ),
    "value-init": Suite(
        summary="relative values that start at zero, or ranked by their start states",
        cites="the figure on value initialization",
        envs=_ABLATED_GAMES,
        variants=(
            _fitted("zero", anchor="zero"),
            _fitted("rank", anchor="rank"),
        ),
        seeds=tuple(range(1, 6)),
        total_steps=_ATARI_STEPS,
    ),
    "pair-sampling": Suite(
        summary="partners drawn at random, or from the own episode with probability .33 or .66",
        cites="Table 4",
        envs=_ABLATED_GAMES,
        variants=(
            _fitted("random", pairs="random"),
            _fitted("biased33", pairs="biased", same_episode=0.33),
            _fitted("biased66", pairs="biased", same_episode=0.66),
        ),
        seeds=tuple(range(1, 6)),
        total_steps=_ATARI_STEPS,
        printed=Printed(
            "paper_pair_sampling_ablation.csv",
            columns={"random": "random", "biased33": "biased33", "biased66": "biased66"},
        ),
    ),
    "demo": Suite(
        summary="PPO with its own critic and with the relative one on MinAtar Breakout",
        envs=("MinAtar/Breakout",),
        variants=(ABSOLUTE, RELATIVE),
        seeds=(1,),
        total_steps=250_000,
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
        variants=(ABSOLUTE, RELATIVE, RELATIVE_MLP, PAPER, DISCOUNTED, DAE),
        seeds=(1, 2, 3),
        total_steps=300_000,
    ),
    "pendulum": Suite(
        summary="continuous actions and negative values, on Pendulum-v1",
        envs=("Pendulum-v1",),
        variants=(ABSOLUTE, RELATIVE, PAPER),
        seeds=(1, 2, 3),
        total_steps=500_000,
    ),
    "minatar": Suite(
        summary="four critics on the five games of MinAtar, the relative one in two ways",
        envs=tuple(
            f"MinAtar/{game}"
            for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
        ),
        variants=(ABSOLUTE, RELATIVE, PAPER, DISCOUNTED, DAE),
        seeds=tuple(range(1, 11)),
        total_steps=1_000_000,
    ),
    "minatar-small": Suite(
        summary="four critics on two MinAtar games, the relative one with the paper's settings",
        envs=("MinAtar/Breakout", "MinAtar/Asterix"),
        variants=(ABSOLUTE, PAPER, DISCOUNTED, DAE),
        seeds=(1, 2, 3),
        total_steps=1_000_000,
    ),
    "ends": Suite(
        summary="what a relative critic needs where episodes terminate, step by step",
        envs=("MinAtar/Asterix", "MinAtar/Breakout"),
        variants=(
            ABSOLUTE,
            PAPER,
            Variant("all", "relative", {**_PAPER, "pairs": "all"}),
            Variant("lambda-all", "relative", {**_PAPER, **_LAMBDA_ALL}),
            Variant("lambda-all-mean", "relative", {**_LAMBDA_ALL, "anchor": "mean"}),
            _returns("returns-rank", "rank"),
            _returns("returns-terminal", "terminal"),
            _returns("returns-minvar", "minvar"),
            _returns("returns-mean-newest", "mean", offset_rate=1.0),
            RELATIVE,
        ),
        seeds=(1, 2, 3),
        total_steps=400_000,
    ),
    "anchors": Suite(
        summary="where relative values start, on tasks with negative and with positive values",
        envs=("Pendulum-v1", "Acrobot-v1", "CartPole-v1", "MinAtar/Breakout"),
        variants=(
            ABSOLUTE,
            *map(_anchored, _ANCHORS),
            RELATIVE,
            Variant("relative-raw", "relative", env_options={"normalise_rewards": False}),
        ),
        seeds=tuple(range(1, 6)),
        total_steps=300_000,
    ),
    "gauge": Suite(
        summary="a constant added to all values: on two tasks that never terminate, and on one "
        "that does",
        cites="Lemma B.1",
        envs=("Pendulum-v1", "HalfCheetah-v5", "Acrobot-v1"),
        variants=tuple(
            _in_gauge(variant, gauge)
            for variant in (
                ABSOLUTE,
                *map(_anchored, ("zero", "rank", "terminal", "minvar")),
                RELATIVE,
            )
            for gauge in _GAUGES
        ),
        seeds=(1, 2, 3),
        total_steps=200_000,
    ),
    "preferences": Suite(
        summary="rewards that are known only from comparisons of segments, and as they are",
        envs=("Pendulum-v1", "HalfCheetah-v5"),
        variants=(
            Variant("absolute-rewarded", "absolute"),
            *(
                replace(variant, preferences={"comparisons": 16})
                for variant in (ABSOLUTE, RELATIVE, _anchored("rank"), _anchored("minvar"))
            ),
        ),
        seeds=tuple(range(1, 6)),
        total_steps=300_000,
    ),
    "mujoco": Suite(
        summary="continuous control",
        envs=("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"),
        variants=(ABSOLUTE, RELATIVE),
        seeds=tuple(range(1, 6)),
        total_steps=1_000_000,
    ),
}


def suite(name: str) -> Suite:
    """The suite of a name."""
    check_name("suite", name, SUITES)
    return SUITES[name]
