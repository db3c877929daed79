import math
import multiprocessing
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relval.experiments import results, tables
from relval.experiments.report.study import Study
from relval.experiments.scores import read_table
from relval.experiments.suites import SUITES, suite
from tests.experiments.studies import GAMES, SUITE, made_up, store


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = made_up(without=("Pong/dae/2",))
    assert results.read(store(found, tmp_path)) == found


def test_stored_results_of_runs_whose_folders_are_elsewhere_are_kept(tmp_path: Path) -> None:
    found = made_up()
    store(found, tmp_path)
    begun = tmp_path / "runs/Pong/relative/2"
    begun.mkdir(parents=True)
    left = results.read(tmp_path)
    assert left == made_up(without=("Pong/relative/2",))


@contextmanager
def full_disk() -> Iterator[None]:
    """Files can have a hundred bytes, and no more."""
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_results_that_cannot_be_written_leave_those_from_before(tmp_path: Path) -> None:
    found = made_up()
    store(found, tmp_path)
    with full_disk():
        with pytest.raises(OSError, match="too large"):
            results.write(made_up(without=("Pong",)), tmp_path)
        with pytest.raises(OSError, match="too large"):
            results.write_suite(suite("minatar"), tmp_path)
    assert results.read(tmp_path) == found


def write_often(out: Path) -> None:
    for _ in range(200):
        results.write_suite(SUITE, out)


def test_two_processes_can_write_the_same_results_at_once(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_often, args=(tmp_path,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["suite.json"]


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    results.write_suite(suite(name), tmp_path)
    assert results._read_suite(tmp_path) == suite(name)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="`relval sweep` makes it"):
        results.read(tmp_path)


def test_a_missing_run_is_nan_in_the_matrix() -> None:
    matrix = made_up(without=("Breakout/dae/2", "Boxing/dae")).matrix("dae")
    missing = [[False, False, False], [False, True, False], [True, True, True]]
    assert np.isnan(matrix).tolist() == missing


def test_scores_are_normalised_by_humans_or_else_by_the_best_and_the_worst_run() -> None:
    by_humans = made_up()
    assert by_humans.by_humans
    assert by_humans.normalised("Pong", np.array([-20.7, 14.6])).tolist() == [0, 1]
    among_runs = made_up(replace(SUITE, envs=("CartPole-v1",)))
    assert not among_runs.by_humans
    scores = np.array([s.score for s in among_runs.scores])
    normalised = among_runs.normalised("CartPole-v1", scores)
    assert (normalised.min(), normalised.max()) == (0, 1)
    assert np.argsort(normalised).tolist() == np.argsort(scores).tolist()


def test_the_printed_results_are_those_of_the_paper() -> None:
    printed = results.printed(suite("atari49"))
    assert len(printed.games) == 49
    human = {row["game"]: row for row in read_table("atari_human_random.csv")}
    normalised = []
    for row in read_table("paper_table1_atari.csv"):
        low, high = (float(human[row["game"]][name]) for name in ("random", "human"))
        normalised.append((float(row["rv_mean"]) - low) / (high - low))
    found = Study(printed).aggregates
    assert found["median"]["relative"].value == pytest.approx(np.median(normalised))
    assert found["mean"]["relative"].value == pytest.approx(np.mean(normalised))
    middle = sorted(normalised)[12:-12]
    assert found["IQM"]["relative"].value == pytest.approx(np.mean(middle))
    assert found["median"]["relative"].low == found["median"]["relative"].high


def test_a_suite_that_the_paper_does_not_print_is_refused() -> None:
    with pytest.raises(ValueError, match="prints no numbers"):
        results.printed(suite("minatar"))


# Tables


def a_table(*scores: tuple[float, ...]) -> tables.Comparison:
    """One game, and a variant for each set of scores."""
    names = tuple("abc"[: len(scores)])
    cells = {("Pong", n): tables.Cell(s, len(s), 3) for n, s in zip(names, scores, strict=True)}
    return tables.Comparison(names, ("Pong",), cells, "What it is.")


def test_the_best_mean_is_marked_and_counted() -> None:
    table = a_table((1.0, 2.0, 3.0), (2.5, 2.5), ())
    assert table.best("Pong") == {"b"}
    assert table.wins == {"a": 0, "b": 1, "c": 0}
    assert a_table((1.0,), ()).best("Pong") == set()
    assert a_table((1.0,), (1.0,)).best("Pong") == {"a", "b"}


def test_diagnostics_are_means_over_seeds_at_the_end_of_runs() -> None:
    rows = [
        results.Diagnosis("Pong", "dae", seed, step, *[x] * len(results.DIAGNOSTICS))
        for seed, step, x in ((1, 500, 9.0), (1, 1_000, 1.0), (2, 500, 9.0), (2, 1_000, 2.0))
    ]
    found = replace(made_up(), diagnoses=tuple(replace(row, critic_share=math.nan) for row in rows))
    header, row = tables.diagnosed(found, "Pong")
    assert row == ["dae", *["1.5"] * (len(results.DIAGNOSTICS) - 1)]
    assert "critic share" not in header
    assert "dead features" in header
    assert len(tables.diagnosed(found, "Boxing")) == 1
    assert tables.diagnosed_markdown(found, "Pong").splitlines()[2].startswith("| dae | 1.5 |")


def test_steps_until_a_score_are_those_of_the_first_point_that_has_it() -> None:
    curves = {1: (0.0, 3.0, 1.0), 2: (-1.0, 1.0, 3.0), 3: (5.0, 5.0, 5.0)}
    points = [
        results.Point("Pong", "dae", seed, 100 * (k + 1), score)
        for seed, scores in curves.items()
        for k, score in enumerate(scores)
    ]
    found = replace(made_up(), curves=tuple(points))
    assert "| Pong | - | - | 200 ± 248 (200, 300, 100) |" in tables.reached(found, 3.0)
    assert "| Pong | - | - | 1 of 3 (-, -, 100) |" in tables.reached(found, 4.0)
    assert "| Boxing | - | - | - |" in tables.reached(found, 3.0)
    assert "| Pong | - | - | 0 of 3 |" in tables.reached(found, 6.0)
    single = replace(found, curves=tuple(points[:3]))
    assert "| Pong | - | - | 200 |" in tables.reached(single, 3.0)


def test_tables_in_markdown_latex_and_csv() -> None:
    table = a_table((1.0, 2.0, 3.0), (2_500.0,), ())
    margin = 4.303 / math.sqrt(3)
    text = tables.markdown(table)
    assert f"| Pong | 2.0 ± {margin:.1f} (1.0, 2.0, 3.0) | **2,500** | - |" in text
    assert text.endswith("\nWhat it is. The highest mean is bold.\n")
    assert rf"Pong & $2.0 \pm {margin:.1f}$ & $\mathbf{{2{{,}}500}}$ & $-$ \\" in tables.latex(
        table
    )
    rows = tables.comma_separated(table).splitlines()
    assert rows[1].startswith("Pong,a,2.0,2.48")
    assert rows[3] == "Pong,c,,,0,,"


def test_many_variants_have_a_row_each() -> None:
    names = tuple("abcdefg")
    cells = {("Pong", name): tables.Cell((float(n),), 1, 1) for n, name in enumerate(names)}
    lines = tables.markdown(tables.Comparison(names, ("Pong",), cells, "What it is.")).splitlines()
    assert lines[0] == "|  | Pong |"
    assert lines[2] == "| a | 0.0 |"
    assert lines[8] == "| g | **6.0** |"


def test_the_papers_numbers_stand_beside_ours() -> None:
    atari = suite("atari49").narrowed(seeds=[1])
    cell = tables.compare(made_up(atari)).cells["Alien", "absolute"]
    assert cell.printed == (1850.3, 376.8)
    assert "Alien,absolute,10.126,,1,1850.3,376.8" in tables.comma_separated(
        tables.compare(made_up(atari))
    )


def test_the_note_says_how_many_seeds_there_are() -> None:
    def note(*without: str) -> str:
        return tables.compare(made_up(without=without)).note

    assert note().endswith("after 1,000 steps, 3 seeds, ± half a 95% interval (Student's t).")
    assert "2 to 3 seeds" in note("Pong/dae/2")
    alone = made_up(replace(SUITE, seeds=(1,)))
    assert tables.compare(alone).note.endswith("1,000 steps, 1 seed.")
    printed = tables.compare(results.printed(suite("atari49")))
    assert printed.note == "Mean scores as the paper prints them."


# Studies


def test_games_that_lack_a_variant_are_left_out_of_aggregates() -> None:
    study = Study(made_up(without=("Pong/dae",)))
    assert study.shared == ("Breakout", "Boxing")
    assert study.normalised["absolute"].shape == (2, 3)
    assert not Study(made_up(without=("Pong/dae", "Breakout/relative", "Boxing/dae"))).aggregates


def test_a_variant_without_any_run_is_left_out() -> None:
    study = Study(made_up(without=tuple(f"{game}/dae" for game in GAMES)))
    assert study.variants == ("absolute", "relative")
    assert study.shared == GAMES


def test_what_always_wins_improves_with_certainty() -> None:
    study = Study(made_up())
    assert study.baseline == "absolute"
    assert study.improvements["dae"].value == 1
    assert study.enough_seeds
    assert not Study(made_up(without=("Pong/dae/2",))).enough_seeds


def test_curves_are_means_over_seeds_at_common_steps() -> None:
    found = made_up()
    study = Study(found)
    curves = study.curves("Pong")
    assert curves.x[-1] == 1_000
    last = curves.lines["relative"][-1]
    assert last is not None
    assert last.value == pytest.approx(np.mean(found.of("Pong", "relative")), abs=1e-3)
    assert last.low < last.value < last.high
    assert curves.lines["relative"][0] is None  # before the first episode has ended
    middle = curves.lines["relative"][len(curves.x) // 2 - 1]
    assert middle is not None
    assert middle.value == pytest.approx(last.value / 2, rel=0.02)


def test_the_curve_of_all_games_ends_at_their_aggregate() -> None:
    study = Study(made_up())
    assert study.efficiency is not None
    last = study.efficiency.lines["absolute"][-1]
    assert last is not None
    assert last.value == pytest.approx(study.aggregates["IQM"]["absolute"].value, rel=1e-3)
    assert study.efficiency.lines["absolute"][0] is None
