"""Aggregates and intervals against closed forms and cases computed by hand."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from relval.experiments import scores as s
from relval.experiments.scores import Interval

NAN = math.nan
TWO_GAMES = np.array([[0.0, 1.0, 2.0, 9.0], [0.2, 0.4, 0.6, 0.8]])


def test_human_and_random_play_have_one_and_nothing() -> None:
    assert_allclose(s.human_normalised("Pong", np.array([-20.7, 14.6])), [0, 1])
    assert_allclose(s.human_normalised("Boxing", np.array([0.1 + 0.5 * (12.1 - 0.1)])), [0.5])


def test_a_game_without_human_score_is_named() -> None:
    with pytest.raises(ValueError, match="no human score is known for 'Pogn'"):
        s.human_normalised("Pogn", np.zeros(3))


def test_every_game_of_the_paper_can_be_normalised() -> None:
    rows = s.read_table("paper_table1_atari.csv")
    assert len(rows) == 49
    for row in rows:
        assert np.isfinite(s.human_normalised(row["game"], np.array([float(row["rv_mean"])])))


def test_aggregates_by_hand() -> None:
    # Means of the games: 3 and 0.5. In order: 0 .2 | .4 .6 .8 1 | 2 9.
    assert_allclose(s.mean(TWO_GAMES), 1.75)
    assert_allclose(s.median(TWO_GAMES), 1.75)
    assert_allclose(s.iqm(TWO_GAMES), (0.4 + 0.6 + 0.8 + 1.0) / 4)
    assert_allclose(s.optimality_gap(TWO_GAMES), 1 - (0 + 1 + 1 + 1 + 0.2 + 0.4 + 0.6 + 0.8) / 8)


def test_the_median_is_that_of_games_and_not_of_runs() -> None:
    scores = np.array([[0.0, 0.0, 30.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    assert_allclose(s.median(scores), 2.0)


@pytest.mark.parametrize("count", range(1, 12))
def test_the_iqm_leaves_out_a_quarter_rounded_down_at_each_end(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    cut = count // 4
    kept = sorted(values)[cut : count - cut]
    assert_allclose(s.iqm(values[None]), sum(kept) / len(kept))


@pytest.mark.parametrize("aggregate", s.AGGREGATES.values(), ids=s.AGGREGATES.keys())
def test_missing_runs_are_left_out(aggregate: s.Aggregate) -> None:
    holes = np.array([[NAN, 3.0, NAN, 1.0], [NAN] * 4, [0.5, 0.25, 0.75, NAN]])
    filled = s.present(holes)
    assert filled.shape == (2, 3)
    games = [[3.0, 1.0], [0.5, 0.25, 0.75]]
    if aggregate in (s.mean, s.median):
        expected = float(aggregate(np.array([[np.mean(game)] for game in games])))
    else:
        expected = float(aggregate(np.array([list(itertools.chain(*games))])))
    found = s.interval(holes, aggregate, resamples=200)
    assert_allclose(found.value, expected)
    assert found.low <= found.value <= found.high


def test_resamples_stay_within_their_game_and_its_runs() -> None:
    scores = np.array([[1.0, 2.0, NAN], [10.0, 20.0, 30.0]])
    drawn = s._resample(scores, 3000, np.random.default_rng(0))
    assert drawn.shape == (3000, 2, 3)
    assert np.isnan(drawn[:, 0, 2]).all()
    for game, values in ((drawn[:, 0, :2], (1, 2)), (drawn[:, 1], (10, 20, 30))):
        found, counts = np.unique(game, return_counts=True)
        assert_allclose(found, values)
        expected = game.size / len(values)
        assert_allclose(counts, expected, atol=5 * math.sqrt(expected))


def test_an_interval_is_that_of_all_resamples_there_are() -> None:
    """Two games of three seeds have 27² resamples, which can be listed."""
    scores = np.array([[0.0, 1.0, 5.0], [2.0, 3.0, 3.5]])
    triples = [np.array(c) for c in itertools.product(range(3), repeat=3)]
    every = [
        float(s.mean(np.stack([scores[0, one], scores[1, other]])))
        for one in triples
        for other in triples
    ]
    found = s.interval(scores, s.mean, resamples=200_000)
    assert_allclose(found.low, np.quantile(every, 0.025), atol=0.06)
    assert_allclose(found.high, np.quantile(every, 0.975), atol=0.06)
    assert found.value == s.mean(scores)


def test_the_spread_of_resampled_means_is_known() -> None:
    """The variance of a resampled mean of k draws is their own, over k; games add up."""
    scores = np.random.default_rng(1).normal(size=(5, 8))
    drawn = s.mean(s._resample(scores, 100_000, np.random.default_rng(2)))
    variance = (scores.var(1) / 8).sum() / 5**2
    assert_allclose(drawn.var(), variance, rtol=0.02)
    assert_allclose(drawn.mean(), scores.mean(), atol=4 * math.sqrt(variance / 100_000))


def test_an_interval_depends_on_its_seed_alone_and_not_on_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = s.intervals(TWO_GAMES, resamples=1000, seed=3)
    assert s.intervals(TWO_GAMES, resamples=1000, seed=3) == whole
    assert s.intervals(TWO_GAMES, resamples=1000, seed=4) != whole
    monkeypatch.setattr(s, "_AT_ONCE", 100)
    assert s.intervals(TWO_GAMES, resamples=1000, seed=3) == whole


def test_runs_that_agree_leave_no_doubt() -> None:
    found = s.intervals(np.full((3, 4), 0.7), resamples=100)
    for name, value in {"median": 0.7, "IQM": 0.7, "mean": 0.7, "optimality gap": 0.3}.items():
        each = found[name]
        assert_allclose([each.value, each.low, each.high], value)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros(3), r"must have the shape \[games, seeds\], got \[3\]"),
        (np.full((2, 2), NAN), "no game has a run"),
        (np.array([[1.0, math.inf]]), "must be finite"),
    ],
)
def test_scores_that_make_no_sense_are_refused(scores: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        s.intervals(scores, resamples=10)


def test_the_probability_of_improvement_by_hand() -> None:
    one = np.array([[1.0, 2.0], [5.0, NAN]])
    other = np.array([[1.0, 0.0, 3.0], [5.0, 7.0, NAN]])
    # First game: 1 > 0, 1 = 1, 2 > 1, 2 > 0 of 6 pairs; second: 5 = 5 of 2.
    found = s.probability_of_improvement(one, other, resamples=500)
    assert_allclose(found.value, (3.5 / 6 + 0.5 / 2) / 2)
    assert found.low <= found.value <= found.high
    opposite = s.probability_of_improvement(other, one, resamples=500)
    assert_allclose(opposite.value, 1 - found.value)


def test_improvement_is_certain_where_all_runs_are_better() -> None:
    low, high = np.zeros((3, 4)), np.ones((3, 5))
    assert s.probability_of_improvement(high, low, resamples=50) == Interval(1, 1, 1)
    assert s.probability_of_improvement(low, high, resamples=50) == Interval(0, 0, 0)
    assert s.probability_of_improvement(low, low, resamples=50) == Interval(0.5, 0.5, 0.5)


def test_improvement_is_asked_of_games_that_both_have() -> None:
    one, other = np.array([[1.0], [NAN], [0.0]]), np.array([[0.0], [5.0], [NAN]])
    assert s.probability_of_improvement(one, other, resamples=10) == Interval(1, 1, 1)
    with pytest.raises(ValueError, match="the same games, got 3 and 2"):
        s.probability_of_improvement(one, other[:2])


def test_a_profile_counts_runs_above_and_games_equally() -> None:
    scores = np.array([[0.0, 1.0, 2.0, 3.0], [1.5, NAN, NAN, NAN]])
    found = s.performance_profile(scores, [-1, 1, 1.5, 3], resamples=100)
    assert_allclose([each.value for each in found], [1, (0.5 + 1) / 2, (0.5 + 0) / 2, 0])


def test_a_curve_has_an_interval_at_each_point() -> None:
    begun = np.array([[NAN], [1.0]]) * TWO_GAMES  # on one of both games
    curves = np.stack([begun, TWO_GAMES, 2 * TWO_GAMES])
    none, first, second = s.sample_efficiency(curves, s.mean, resamples=300)
    assert none is None
    assert first is not None
    assert second is not None
    assert_allclose(
        [second.value, second.low, second.high], 2 * np.array(list(vars(first).values()))
    )


def test_intervals_of_ten_seeds_cover_what_they_should() -> None:
    shares = {
        seeds: s.coverage(s.mean, games=5, seeds=seeds, trials=600, resamples=500)
        for seeds in (3, 10)
    }
    assert 0.91 <= shares[10] <= 0.97
    assert shares[3] < 0.91  # so few seeds promise too much
