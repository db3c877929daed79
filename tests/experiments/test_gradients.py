import csv
import sys
from pathlib import Path

import pytest
import torch

from relval import cli
from relval.experiments.gradients import measure, noise_to_signal
from relval.runs import Run, train
from tests.runs.helpers import small


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = small("CartPole-v1", updates=8, ppo={"steps": 32})
    return train(config, tmp_path_factory.mktemp("runs") / "run", quiet=True)


def test_noise_to_signal_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.tensor([3.0, 0.0, 4.0])
    spread = torch.tensor([1.0, 2.0, 2.0])
    gradients = [mean + spread * torch.randn(3, generator=generator) for _ in range(20_000)]
    assert noise_to_signal(gradients) == pytest.approx(9 / 25, rel=0.05)
    few = [noise_to_signal(gradients[k : k + 50]) for k in range(0, 20_000, 50)]
    assert sum(few) / len(few) == pytest.approx(
        9 / 25, rel=0.05
    )  # the mean's own noise is left out
    assert noise_to_signal([mean, -mean]) == float("inf")


def test_anchors_and_pairs_are_compared(run: Run) -> None:
    rows = {(row.gradient, row.setting): row for row in measure(run, rollouts=6)}
    assert list(rows) == [
        *(("policy", anchor) for anchor in ("zero", "rank", "mean", "terminal", "minvar")),
        *(("critic", pairs) for pairs in ("random", "biased", "all")),
    ]
    assert all(row.noise_to_signal > 0 for row in rows.values())
    assert rows["policy", "minvar"].constant_mean == pytest.approx(0, abs=1e-4)
    assert abs(rows["policy", "rank"].constant_mean or 0) > 1e-2


def test_the_command_writes_a_table(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "gradients.csv"
    words = ["relval", "gradients", str(run.folder), "--rollouts", "3", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert "minvar" in capsys.readouterr().out
    with out.open(encoding="utf-8", newline="") as file:
        assert [row["setting"] for row in csv.DictReader(file)][-1] == "all"


@pytest.mark.parametrize(
    "options",
    [{"pairs": "random", "partners": "minibatch"}, {"mask_terminal": False, "anchor": "rank"}],
)
def test_all_anchors_and_pairs_are_compared_whatever_the_run_had(
    options: dict[str, object], tmp_path: Path
) -> None:
    config = small("CartPole-v1", updates=1, critic_options=options)
    assert len(measure(train(config, tmp_path / "run", quiet=True), rollouts=2)) == 8


@pytest.mark.parametrize(
    ("critic", "others", "message"),
    [
        ("absolute", {}, "not trained with the relative critic"),
        ("relative", {"critic_options": {"head": "mlp"}}, "and a linear head"),
        ("relative", {"preferences": {"comparisons": 1, "segment": 2}}, "the rewards"),
    ],
)
def test_other_runs_are_refused(
    critic: str, others: dict[str, object], message: str, tmp_path: Path
) -> None:
    config = small("CartPole-v1", critic, updates=1, **others)
    with pytest.raises(ValueError, match=message):
        measure(train(config, tmp_path / "run", quiet=True))


def test_a_single_rollout_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        measure(run, rollouts=1)
