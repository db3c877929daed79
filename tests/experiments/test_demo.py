import sys
from pathlib import Path

import pytest

from relval.experiments.demo import demo
from relval.experiments.report import study


def test_the_demonstration_ends_with_a_report_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "_TRIALS", 20)
    monkeypatch.setattr(sys, "argv", ["somewhere/relval", "demo"])
    page = demo(tmp_path, total_steps=3_000)
    told = capsys.readouterr().out
    assert str(page) in told
    assert (tmp_path / "runs/MinAtar-Breakout/relative/1/summary.json").exists()
    assert "somewhere/relval video " + str(tmp_path / "runs/MinAtar-Breakout/relative/1") in told
    assert "curve MinAtar-Breakout" in page.read_text(encoding="utf-8")
    assert demo(tmp_path, total_steps=3_000) == page
    assert "2 runs, 0 of them to do" in capsys.readouterr().out
