import pytest
import torch

from relval.experiments.bench import mathematics, training


def test_the_closed_form_and_the_plain_form_are_the_same_work() -> None:
    torch.testing.assert_close(mathematics.closed_form(500)(), mathematics.plain_form(500)())


def test_the_benchmark_prints_a_row_for_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mathematics, "_SIZES", (125, 1_250))
    monkeypatch.setattr(mathematics, "_fits", lambda size: size < 1_000)
    mathematics.run()
    printed = capsys.readouterr().out
    assert "125 " in printed
    assert "1,250" in printed
    assert "does not fit" in printed
    assert "all_pairs_loss           B^" in printed


def test_training_is_measured_beside_its_peer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "_UPDATES", {"CartPole-v1": 1, "MinAtar/Breakout": 1})
    monkeypatch.setattr(training, "_REPEATS", {"CartPole-v1": 1, "MinAtar/Breakout": 1})
    monkeypatch.setattr(training, "_STEPS", 32)
    training.run()
    printed = capsys.readouterr().out
    assert printed.count("Stable-Baselines3 PPO") == 2
    assert printed.count("slower than the absolute one") == 2
