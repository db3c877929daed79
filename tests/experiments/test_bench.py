import pytest
import torch

from relval.experiments import bench


def test_the_closed_form_and_the_plain_form_are_the_same_work() -> None:
    torch.testing.assert_close(bench.closed_form(500)(), bench.plain_form(500)())


def test_the_benchmark_prints_a_row_for_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "_SIZES", (125, 1_250))
    monkeypatch.setattr(bench, "_fits", lambda size: size < 1_000)
    bench.math()
    printed = capsys.readouterr().out
    assert "125 " in printed
    assert "1,250" in printed
    assert "does not fit" in printed
    assert "all_pairs_loss           B^" in printed
