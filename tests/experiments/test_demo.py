import sys
from pathlib import Path

import pytest

from relval import cli
from relval.experiments.demo import demo
from relval.experiments.report import study


def test_the_demonstration_ends_with_a_report_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "_TRIALS", 20)
    monkeypatch.setattr(sys, "argv", ["somewhere/relval", "demo"])
    page = tmp_path / "report.html"
    assert demo(tmp_path, total_steps=3_000)
    told = capsys.readouterr().out
    assert str(page) in told
    assert (tmp_path / "runs/MinAtar-Breakout/relative/1/summary.json").exists()
    assert "somewhere/relval video " + str(tmp_path / "runs/MinAtar-Breakout/relative/1") in told
    assert "curve MinAtar-Breakout" in page.read_text(encoding="utf-8")
    assert demo(tmp_path, total_steps=3_000)
    assert "2 runs, 0 of them to do" in capsys.readouterr().out


def test_a_demonstration_that_fails_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relval.experiments.demo.sweep", lambda suite, out: False)
    monkeypatch.setattr(sys, "argv", ["relval", "demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "Watch the agent" not in capsys.readouterr().out
