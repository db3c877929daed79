import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from relval._statistics import mean_and_margin
from relval.experiments.report import report
from relval.experiments.suites import ABSOLUTE, RELATIVE, SUITES, Suite, Variant, suite
from relval.experiments.sweep import sweep
from relval.runs import configure, load
from relval.runs.config import to_yaml

TINY = Suite(
    summary="a test",
    envs=("CartPole-v1",),
    variants=(ABSOLUTE, RELATIVE),
    seeds=(1, 2),
    total_steps=1_500,
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_runs_what_is_missing_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(TINY, tmp_path, only=TINY.narrowed(seeds=[1]))
    assert {row["seed"] for row in rows(tmp_path / "scores.csv")} == {"1"}
    first = tmp_path / "runs/CartPole-v1/absolute/1/summary.json"
    written = first.stat().st_mtime_ns
    capsys.readouterr()

    assert sweep(TINY, tmp_path)
    assert "4 runs, 2 of them to do" in capsys.readouterr().out
    assert first.stat().st_mtime_ns == written
    scores = rows(tmp_path / "scores.csv")
    assert len(scores) == 4
    for row in scores:
        run = load(tmp_path / "runs" / row["env"] / row["variant"] / row["seed"])
        assert float(row["score"]) == pytest.approx(run.summary["score"], abs=1e-3)
    assert {row["step"] for row in rows(tmp_path / "curves.csv")} == {"1024", "2048"}
    diagnoses = [row for row in rows(tmp_path / "diagnostics.csv") if row["seed"] == "1"]
    logged = rows(tmp_path / "runs/CartPole-v1/absolute/1/metrics.csv")
    for diagnosis, row in zip(diagnoses, logged, strict=False):
        assert diagnosis["until"] == row["step"]
        spread = float(diagnosis["advantage_spread"])
        assert spread == pytest.approx(float(row["advantage_spread"]), rel=1e-3)
        assert diagnosis["critic_share"] == "nan"  # nothing is shared
    assert "relative" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_a_run_that_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "runs/CartPole-v1/absolute/1"
    blocked.mkdir(parents=True)
    (blocked / "notes.txt").write_text("not a run", encoding="utf-8")
    assert not sweep(TINY, tmp_path, only=TINY.narrowed(seeds=[1]))
    printed = capsys.readouterr()
    assert "failed: CartPole-v1/absolute/1" in printed.err
    assert "holds something already" in printed.err
    assert [row["variant"] for row in rows(tmp_path / "scores.csv")] == ["relative"]


def test_a_missing_package_is_told_once_before_any_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "minatar.environments.breakout", None)
    with pytest.raises(ModuleNotFoundError, match=r'run `pip install "relval\[minatar\]"`$'):
        sweep(suite("smoke"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_runs_in_which_no_episode_ends_are_told_of_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variant = Variant("absolute", "absolute", ppo={"steps": 128})  # of 200 in an episode
    short = Suite("a test", ("Pendulum-v1",), (variant,), seeds=(1,), total_steps=1_024)
    assert sweep(short, tmp_path)
    assert "Pendulum-v1/absolute/1: no episode ended" in capsys.readouterr().out
    assert "| Pendulum-v1 | no episode ended |" in (tmp_path / "table.md").read_text("utf-8")
    report(tmp_path, tmp_path / "report.html")
    assert "no episode ended" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_with_other_settings_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runs/CartPole-v1/absolute/1"
    folder.mkdir(parents=True)
    other = configure("CartPole-v1", "absolute", seed=1, total_steps=7)
    (folder / "config.yaml").write_text(to_yaml(other), encoding="utf-8")
    with pytest.raises(ValueError, match="other settings than the suite"):
        sweep(TINY, tmp_path)


def test_what_is_missing_may_be_computed_in_another_precision(tmp_path: Path) -> None:
    reduced = TINY.narrowed(precision="bf16")
    assert sweep(TINY, tmp_path, only=TINY.narrowed(seeds=[1], critics=["absolute"]))
    assert sweep(reduced, tmp_path, only=reduced.narrowed(seeds=[2], critics=["absolute"]))
    stored = json.loads((tmp_path / "settings.json").read_text(encoding="utf-8"))
    assert {run: answer["precision"] for answer in stored for run in answer["runs"]} == {
        "CartPole-v1/absolute/1": "tf32",
        "CartPole-v1/absolute/2": "bf16",
    }
    (tmp_path / "runs/CartPole-v1/absolute/1/summary.json").unlink()  # as if it were half done
    with pytest.raises(ValueError, match="other settings than the suite"):
        sweep(reduced, tmp_path)


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_names_each_run_once(name: str) -> None:
    chosen = suite(name)
    runs = chosen.runs()
    assert len(runs) == len(chosen.envs) * len(chosen.variants) * len(chosen.seeds)
    assert {config.env for config in runs.values()} == set(chosen.envs)


def test_a_suite_is_narrowed_by_names() -> None:
    minatar = suite("minatar")
    part = minatar.narrowed(
        games=["Breakout", "MinAtar/Asterix"], critics=["dae"], seeds=[2, 3], total_steps=5
    )
    assert list(part.runs()) == [
        f"MinAtar-{game}/dae/{seed}" for seed in (2, 3) for game in ("Asterix", "Breakout")
    ]
    assert {config.total_steps for config in part.runs().values()} == {5}
    assert minatar.narrowed() == minatar


def test_where_and_how_a_suite_is_computed_can_be_chosen() -> None:
    chosen = suite("smoke").narrowed(device="cuda", precision="bf16")
    assert {(run.device, run.precision) for run in chosen.runs().values()} == {("cuda", "bf16")}
    assert chosen.narrowed(seeds=[1]).precision == "bf16"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"games": ["Breakuot"]}, "no game in this suite 'Breakuot'; did you mean Breakout"),
        ({"critics": ["da"]}, "no critic in this suite 'da'; did you mean dae"),
        ({"seeds": [11]}, "no seed in this suite '11'"),
    ],
)
def test_a_suite_has_no_more_than_it_has(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        suite("minatar").narrowed(**names)


def test_runs_of_no_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="total_steps must be at least 1, got 0"):
        suite("smoke").narrowed(total_steps=0).runs()


def test_an_unknown_suite_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean cartpole"):
        suite("cartpol")


def test_an_interval_by_students_t() -> None:
    mean, margin = mean_and_margin([1.0, 2.0, 3.0])
    assert mean == 2
    assert margin == pytest.approx(4.303 / 3**0.5)
    assert mean_and_margin([5.0]) == (5.0, float("inf"))
    for count, quantile in ((14, 2.1604), (30, 2.0452), (100, 1.9842)):
        values = [0.0, 1.0] * (count // 2)
        expected = quantile * statistics.stdev(values) / count**0.5
        assert mean_and_margin(values)[1] == pytest.approx(expected, rel=1e-3)
