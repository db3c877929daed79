"""The numbers of a report: aggregates with intervals, comparisons, curves with bands."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relval._statistics import mean_and_margin
from relval.experiments import scores as s
from relval.experiments.results import Results
from relval.experiments.scores import Interval

_BASELINE = "absolute"
_PROFILE_POINTS = 101
_CURVE_POINTS = 51
_SIMULATED_GAMES = 10
_TRIALS, _RESAMPLES = 1_000, 1_000
_ENOUGH, _ENOUGH_ALONE = 3, 10
"""Seeds from which on intervals say something: of several games together, of a single one."""


@dataclass(frozen=True)
class Curves:
    """A line with a band for each variant, over the same points."""

    x: np.ndarray
    lines: dict[str, list[Interval | None]]
    """None where nothing is known."""


@dataclass(frozen=True)
class Study:
    """What finished runs say when they are put together.

    Aggregates are over the games on which every variant has a run, so that all are compared on the
    same ones.
    """

    results: Results

    @property
    def variants(self) -> tuple[str, ...]:
        """Those that have a run."""
        return self.results.variants

    @property
    def baseline(self) -> str:
        """What the others are compared with: the absolute critic where there is one."""
        return _BASELINE if _BASELINE in self.variants else self.variants[0]

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """The games on which every variant has a run."""
        return tuple(
            game
            for game in self.results.games
            if all(np.isfinite(self.results.of(game, name)).any() for name in self.variants)
        )

    @property
    def several_games(self) -> bool:
        """Whether there is something to put together."""
        return len(self.shared) > 1

    @property
    def enough_seeds(self) -> bool:
        """Whether every shared game has runs enough to tell variants apart."""
        if not self.shared:
            return False
        fewest = min(np.isfinite(scores).sum(1).min() for scores in self.normalised.values())
        return bool(fewest >= (_ENOUGH if self.several_games else _ENOUGH_ALONE))

    @cached_property
    def normalised(self) -> dict[str, np.ndarray]:
        """The normalised scores of each variant on the shared games, `[G, K]`."""
        rows = [self.results.games.index(game) for game in self.shared]
        return {
            name: np.array(
                [
                    self.results.normalised(game, scores)
                    for game, scores in zip(
                        self.shared, self.results.matrix(name)[rows], strict=True
                    )
                ]
            )
            for name in self.variants
        }

    @cached_property
    def aggregates(self) -> dict[str, dict[str, Interval]]:
        """By aggregate and variant; the optimality gap only where 1 is a human's score."""
        if not self.several_games:
            return {}
        found = {name: s.intervals(scores) for name, scores in self.normalised.items()}
        chosen = [
            aggregate
            for aggregate in s.AGGREGATES
            if self.results.by_humans or aggregate != "optimality gap"
        ]
        return {
            aggregate: {name: found[name][aggregate] for name in self.variants}
            for aggregate in chosen
        }

    @cached_property
    def improvements(self) -> dict[str, Interval]:
        """How likely a run of each other variant beats one of the baseline."""
        if not self.shared:
            return {}
        return {
            name: s.probability_of_improvement(
                self.normalised[name], self.normalised[self.baseline], resamples=10_000
            )
            for name in self.variants
            if name != self.baseline
        }

    @cached_property
    def profiles(self) -> Curves | None:
        """The share of runs above each normalised score."""
        if not self.several_games:
            return None
        everything = np.concatenate([x.ravel() for x in self.normalised.values()])
        low, high = np.nanmin(everything), np.nanmax(everything)
        if self.results.by_humans:
            low, high = min(0.0, low), min(8.0, high)
        x = np.linspace(low, high, _PROFILE_POINTS)
        return Curves(
            x,
            {
                name: list(s.performance_profile(scores, x.tolist()))
                for name, scores in self.normalised.items()
            },
        )

    @cached_property
    def efficiency(self) -> Curves | None:
        """The IQM of the shared games, over the steps of training."""
        if not self.several_games or self.results.only_printed:
            return None
        return Curves(
            self._steps,
            {
                name: s.sample_efficiency(
                    np.stack(
                        [self.results.normalised(g, self._runs[g, name]) for g in self.shared],
                        axis=1,
                    )
                )
                for name in self.variants
            },
        )

    def curves(self, game: str) -> Curves:
        """The mean score on a game over the steps of training, with 95% intervals."""
        lines: dict[str, list[Interval | None]] = {}
        for name in self.variants:
            lines[name] = [_mean_of(seeds) for seeds in self._runs[game, name]]
        return Curves(self._steps, lines)

    @cached_property
    def _steps(self) -> np.ndarray:
        last = max((point.step for point in self.results.curves), default=1)
        return np.linspace(0, last, _CURVE_POINTS)[1:]

    @cached_property
    def _runs(self) -> dict[tuple[str, str], np.ndarray]:
        """Each run's score at common steps, `[points, seeds]`, by game and variant."""
        seeds = {seed: k for k, seed in enumerate(self.results.suite.seeds)}
        points: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
        for point in self.results.curves:
            if np.isfinite(point.score):
                key = point.env, point.variant, point.seed
                points.setdefault(key, []).append((point.step, point.score))
        runs = {
            (game, name): np.full((len(self._steps), len(seeds)), np.nan)
            for game in self.results.games
            for name in self.variants
        }
        for (game, name, seed), curve in points.items():
            steps, scores = zip(*curve, strict=True)
            runs[game, name][:, seeds[seed]] = np.interp(
                self._steps, steps, scores, left=np.nan, right=scores[-1]
            )
        return runs

    def __str__(self) -> str:
        """The aggregates, and how far to trust their intervals, as text."""
        lines = []
        for aggregate, rows in self.aggregates.items():
            cells = ", ".join(f"{name} {_told(row)}" for name, row in rows.items())
            lines.append(f"{aggregate}: {cells}")
        for seeds, shares in self.coverage.items():
            cells = ", ".join(f"{name} {100 * share:.0f}%" for name, share in shares.items())
            lines.append(f"95% intervals of {seeds} seeds cover the truth, simulated: {cells}")
        return "\n".join(lines)

    @cached_property
    def coverage(self) -> dict[int, dict[str, float]]:
        """How often such intervals cover the truth, in simulated studies, by number of seeds."""
        if not self.several_games or self.results.only_printed:
            return {}
        games = min(len(self.shared), _SIMULATED_GAMES)

        def simulated(aggregate: s.Aggregate, seeds: int) -> float:
            return s.coverage(
                aggregate, games=games, seeds=seeds, trials=_TRIALS, resamples=_RESAMPLES
            )

        return {
            seeds: {"mean": simulated(s.mean, seeds), "IQM": simulated(s.iqm, seeds)}
            for seeds in (3, 5, 10)
        }


def _mean_of(scores: np.ndarray) -> Interval | None:
    known = scores[np.isfinite(scores)].tolist()
    if not known:
        return None
    mean, margin = mean_and_margin(known)
    if len(known) < _ENOUGH:
        margin = 0.0
    return Interval(mean, mean - margin, mean + margin)


def _told(interval: Interval) -> str:
    if interval.low == interval.high:
        return f"{interval.value:.3f}"
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
