"""Scores of many runs: normalised, put together over games, with intervals.

The scores of a method are an array `[G, K]`: a row for each game, an entry for each seed, NaN where
a run is missing. Aggregates and intervals are those of Agarwal et al. (2021), "Deep Reinforcement
Learning at the Edge of the Statistical Precipice": resamples draw seeds anew within each game.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources

import numpy as np

RESAMPLES = 50_000
_AT_ONCE = 4_000_000
"""Scores that are resampled at a time, which bounds memory."""
_TAIL = 0.025
"""Probability beyond each end of an interval."""

Aggregate = Callable[[np.ndarray], np.ndarray]
"""From scores `[..., G, K]` to one number for each `[...]`."""


@dataclass(frozen=True)
class Interval:
    """An estimate, and the 95% interval around it."""

    value: float
    low: float
    high: float


# Normalised scores


def human_normalised(game: str, scores: np.ndarray) -> np.ndarray:
    """Raw scores of an Atari game, on a scale where random play has 0 and a human has 1."""
    references = _references()
    if game not in references:
        raise ValueError(f"no human score is known for {game!r}")
    random, human = references[game]
    return (np.asarray(scores, float) - random) / (human - random)


def knows_human(game: str) -> bool:
    """Whether a game has a human score."""
    return game in _references()


@cache
def _references() -> dict[str, tuple[float, float]]:
    return {
        row["game"]: (float(row["random"]), float(row["human"]))
        for row in read_table("atari_human_random.csv")
    }


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a table that comes with the package; `data/SOURCES.md` says where it is from."""
    path = resources.files("relval.experiments") / "data" / name
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


# Aggregates


def mean(scores: np.ndarray) -> np.ndarray:
    """The mean over games of their mean scores."""
    return np.asarray(_of_games(scores).mean(-1))


def median(scores: np.ndarray) -> np.ndarray:
    """The median over games of their mean scores."""
    return np.asarray(np.median(_of_games(scores), -1))


def iqm(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of all runs; a quarter, rounded down, is left out at each end."""
    ordered = np.sort(scores.reshape(*scores.shape[:-2], -1), -1)  # NaN comes last
    count = int((~np.isnan(scores)).sum((-2, -1)).flat[0])
    cut = count // 4
    middle: np.ndarray = ordered[..., cut : count - cut].mean(-1)
    return middle


def optimality_gap(scores: np.ndarray) -> np.ndarray:
    """By how much all runs miss a score of 1, on average; more than 1 counts as 1."""
    return 1 - np.asarray(np.nanmean(np.minimum(scores, 1), axis=(-2, -1)))


AGGREGATES: dict[str, Aggregate] = {
    "median": median,
    "IQM": iqm,
    "mean": mean,
    "optimality gap": optimality_gap,
}
"""In the order of the paper's figure; of the last one less is better."""


def _of_games(scores: np.ndarray) -> np.ndarray:
    counts = (~np.isnan(scores)).sum(-1)
    return np.asarray(np.nansum(scores, -1) / counts)


# Intervals


def interval(
    scores: np.ndarray, aggregate: Aggregate, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """An aggregate with its stratified bootstrap interval, by percentiles.

    Args:
      scores: `[G, K]`; games without any run are left out.
      aggregate: One of `AGGREGATES`, or another function like them.
      resamples: How often seeds are drawn anew.
      seed: Of the drawing.
    """
    return intervals(scores, {"": aggregate}, resamples=resamples, seed=seed)[""]


def intervals(
    scores: np.ndarray,
    aggregates: Mapping[str, Aggregate] = AGGREGATES,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Several aggregates, all from the same resamples."""
    scores = present(scores)
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in aggregates}
    random = np.random.default_rng(seed)
    for part in _parts(resamples, scores.size):
        sample = _resample(scores, part, random)
        for name, aggregate in aggregates.items():
            drawn[name].append(aggregate(sample))
    return {
        name: _percentiles(float(aggregate(scores)), np.concatenate(drawn[name]))
        for name, aggregate in aggregates.items()
    }


def present(scores: np.ndarray) -> np.ndarray:
    """The games that have a run, their runs first; the columns that no game needs are dropped."""
    scores = np.asarray(scores, float)
    if scores.ndim != 2:
        raise ValueError(f"scores must have the shape [games, seeds], got {list(scores.shape)}")
    if np.isinf(scores).any():
        raise ValueError("scores must be finite; a missing run is NaN")
    missing = np.isnan(scores)
    scores = np.take_along_axis(scores, np.argsort(missing, 1, kind="stable"), 1)
    scores = scores[~missing.all(1)]
    if not len(scores):
        raise ValueError("no game has a run")
    return scores[:, : (~np.isnan(scores)).sum(1).max()]


def _parts(resamples: int, size: int) -> Iterator[int]:
    """Numbers of resamples that sum up to all, each small enough for `size` scores to be in it."""
    most = max(1, _AT_ONCE // size)
    for begin in range(0, resamples, most):
        yield min(most, resamples - begin)


def _resample(scores: np.ndarray, resamples: int, random: np.random.Generator) -> np.ndarray:
    """Draws seeds anew within each game, as many as it has: `[resamples, G, K]`."""
    counts = (~np.isnan(scores)).sum(1)[:, None]
    uniform = random.random((resamples, *scores.shape), np.float32)
    chosen = np.minimum((uniform * counts).astype(np.intp), counts - 1)
    sample: np.ndarray = scores[np.arange(len(scores))[:, None], chosen]
    sample[:, np.arange(scores.shape[1]) >= counts] = np.nan
    return sample


def _percentiles(value: float, drawn: np.ndarray) -> Interval:
    low, high = np.quantile(drawn, [_TAIL, 1 - _TAIL])
    return Interval(value, float(low), float(high))


# Comparisons


def probability_of_improvement(
    scores: np.ndarray, others: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """How likely a run is better than another method's on the same game, a tie counting half.

    Args:
      scores: Of one method, `[G, K]`.
      others: Of another one, on the same games, `[G, L]`; the numbers of seeds may differ.
      resamples: How often seeds are drawn anew, in both.
      seed: Of the drawing.
    """
    if len(scores) != len(others):
        raise ValueError(f"both methods need the same games, got {len(scores)} and {len(others)}")
    both = ~np.isnan(scores).all(1) & ~np.isnan(others).all(1)
    scores, others = present(scores[both]), present(others[both])
    random = np.random.default_rng(seed)
    drawn = [
        _improvement(_resample(scores, part, random), _resample(others, part, random))
        for part in _parts(resamples, scores.size * others.shape[1])
    ]
    return _percentiles(float(_improvement(scores, others)), np.concatenate(drawn))


def _improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    one, other = scores[..., :, None], others[..., None, :]
    better = (one > other) + 0.5 * (one == other)
    valid = ~np.isnan(one) & ~np.isnan(other)
    return np.asarray((better.sum((-2, -1)) / valid.sum((-2, -1))).mean(-1))


def performance_profile(
    scores: np.ndarray, thresholds: Sequence[float], *, resamples: int = 2_000, seed: int = 0
) -> list[Interval]:
    """The share of runs with more than each threshold, each game counting the same."""
    return list(
        intervals(
            scores,
            {str(k): partial(_share_above, threshold=t) for k, t in enumerate(thresholds)},
            resamples=resamples,
            seed=seed,
        ).values()
    )


def _share_above(scores: np.ndarray, threshold: float) -> np.ndarray:
    return mean(np.where(np.isnan(scores), np.nan, scores > threshold))


def sample_efficiency(
    curves: np.ndarray, aggregate: Aggregate = iqm, *, resamples: int = 2_000, seed: int = 0
) -> list[Interval | None]:
    """An aggregate at each point of learning curves `[points, G, K]`, once all games have begun."""
    begun = np.isfinite(curves).any(2).all(1)
    return [
        interval(scores, aggregate, resamples=resamples, seed=seed) if known else None
        for scores, known in zip(curves, begun.tolist(), strict=True)
    ]


# Are the intervals what they say?


def coverage(
    aggregate: Aggregate,
    *,
    games: int,
    seeds: int,
    trials: int = 1_000,
    resamples: int = 1_000,
    seed: int = 0,
) -> float:
    """How often a 95% interval covers the truth, in simulated studies.

    Games differ in level and spread; the truth is the aggregate of very many seeds. With few seeds
    a percentile bootstrap falls short of 95%: the spread of k draws is too small by (k - 1) / k.
    """
    random = np.random.default_rng(seed)
    level, spread = random.uniform(0, 2, (games, 1)), random.uniform(0.1, 0.6, (games, 1))
    truth = float(aggregate(level + spread * random.standard_normal((games, 20_000))))
    covered = 0
    for trial in range(trials):
        scores = level + spread * random.standard_normal((games, seeds))
        found = interval(scores, aggregate, resamples=resamples, seed=trial)
        covered += found.low <= truth <= found.high
    return covered / trials
