"""Suites: sets of runs that answer a question together."""

from dataclasses import dataclass
from typing import Any

from relval._names import check_name
from relval.runs import Config, configure


@dataclass(frozen=True)
class Variant:
    """A critic with its options, under the name that tables give it."""

    name: str
    critic: str
    options: dict[str, Any]

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


ABSOLUTE = Variant("absolute", "absolute", {})
RELATIVE = Variant("relative", "relative", {})
RELATIVE_ALL = Variant("relative-all", "relative", {"pairs": "all"})
RELATIVE_MLP = Variant("relative-mlp", "relative", {"head": "mlp"})
DISCOUNTED = Variant("discounted", "discounted", {})
DAE = Variant("dae", "dae", {})

SUITES: dict[str, Suite] = {
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
