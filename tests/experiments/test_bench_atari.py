import re
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from relval.experiments.bench import atari
from relval.experiments.bench.atari import CONTENDERS, ENVPOOL, RAW, SCREENS, STACKS, Bar


@pytest.fixture
def without_envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)


@pytest.mark.usefixtures("without_envpool")
def test_the_benchmark_prints_speeds_and_does_without_a_peer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(atari, "ALL_CORES", replace(atari.ALL_CORES, num_envs=2))
    atari.run(("pong",), seconds=0.02, repeats=2)
    printed = capsys.readouterr().out
    assert printed.count("\nPong\n") == 3
    for name in set(CONTENDERS) - {ENVPOOL}:
        rows = re.findall(rf"  {re.escape(name)} +([\d,]+) +- +(\d+\.\d\d)x\n", printed)
        assert len(rows) == 2
        for speed, of_raw in rows:
            assert int(speed.replace(",", "")) > 0
            assert float(of_raw) > 0 if name != RAW else of_raw == "1.00"
    assert len(re.findall(rf"  {ENVPOOL} is not installed: run .*relval\[bench\]", printed)) == 3
    assert printed.count("at least 1.35x EnvPool: not known") == 2
    assert re.search(rf"at least 0.9x {RAW}: (holds|DOES NOT HOLD) \(Pong", printed)
    assert re.search(rf"  {STACKS} +[\d,]+ +[\d,]+ +\d+%\n", printed)
    assert re.search(r"a second after the last step: \d.*% of a core\n", printed)


def test_ratios_are_taken_within_repeats() -> None:
    slow_then_fast = {ENVPOOL: [100.0, 200.0, 300.0], STACKS: [150.0, 300.0, 450.0]}
    even = atari._verdict(Bar(STACKS, ENVPOOL, 1.5), {"Pong": slow_then_fast})
    assert even == "AtariPool, stacks, at least 1.5x EnvPool: holds (Pong 1.50x)"


def test_a_bar_must_hold_in_every_game() -> None:
    speeds = {"Pong": {SCREENS: [9.0], RAW: [10.0]}, "Alien": {SCREENS: [8.0], RAW: [10.0]}}
    verdict = atari._verdict(Bar(SCREENS, RAW, 0.9), speeds)
    assert verdict.endswith("DOES NOT HOLD (Pong 0.90x, Alien 0.80x)")


def test_all_play_the_same_actions_each_first_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, np.ndarray]] = []

    class Recorder:
        def __init__(self, name: str, game: str, num_envs: int) -> None:
            self.name = name

        def play(self, actions: np.ndarray) -> None:
            played.append((self.name, actions))

        def close(self) -> None:
            played.append((self.name, np.empty(0)))

    for name in (STACKS, RAW):
        monkeypatch.setitem(CONTENDERS, name, partial(Recorder, name))
    speeds: atari.Speeds = {}
    with atari.Race((STACKS, RAW), "Pong", 2, seconds=1e-9) as race:
        race._steps = {STACKS: 3, RAW: 5}
        played.clear()
        for number in range(2):
            race.round("", number, speeds)
    assert [name for name, _ in played] == [STACKS, RAW, RAW, STACKS, STACKS, RAW]
    for fewer, more in ((0, 1), (3, 2)):
        assert played[fewer][1].shape == (3, 2)
        np.testing.assert_array_equal(played[fewer][1], played[more][1][:3])
    assert {name: len(of) for name, of in speeds.items()} == {STACKS: 2, RAW: 2}
