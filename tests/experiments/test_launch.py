"""Sweeps that are killed, stopped, and run beside each other."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from relval import cli
from relval.experiments.launchers import Job, Local
from relval.experiments.launchers.jobs import attempt
from relval.experiments.overview import last_logged
from relval.experiments.suites import ABSOLUTE, RELATIVE, Suite
from relval.experiments.sweep import sweep
from relval.runs import Config
from tests.runs.helpers import assert_same_run, available

ROOT = Path(__file__).parents[2]


class Checkpointed(Suite):
    """Short runs that save themselves after every update."""

    def runs(self) -> dict[str, Config]:
        return {
            name: replace(config, checkpoint_every=1) for name, config in super().runs().items()
        }


EIGHT = Checkpointed(
    summary="a test",
    envs=("CartPole-v1",),
    variants=(ABSOLUTE, RELATIVE),
    seeds=(1, 2, 3, 4),
    total_steps=30_000,
)
FOUR = replace(EIGHT, seeds=(1, 2))
TWO = replace(FOUR, variants=(ABSOLUTE,))


_started: "list[subprocess.Popen[str]]" = []


@pytest.fixture(autouse=True)
def end_what_was_started() -> Iterator[None]:
    yield
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def start(suite: str, out: Path) -> "subprocess.Popen[str]":
    """A sweep in a process of its own."""
    code = (
        "from pathlib import Path; from tests.experiments import test_launch as t\n"
        f"if __name__ == '__main__': t.sweep({suite}, Path({str(out)!r}), launcher=t.Local(2))"
    )
    script = out.with_suffix(".py")
    script.write_text(code, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    _started.append(process)
    return process


def journal(out: Path) -> list[tuple[str, str, str]]:
    """Process, run and event, line by line."""
    with (out / "journal.csv").open(encoding="utf-8", newline="") as file:
        return [(pid, name, event) for _, pid, name, event in csv.reader(file)]


def events(out: Path, event: str) -> list[str]:
    return [name for _, name, happened in journal(out) if happened == event]


def wait_for_work(suite: Suite, out: Path, *, seconds: float = 60) -> None:
    """Waits until a run that is being made has saved itself."""
    jobs = [Job(name, config, out) for name, config in suite.runs().items()]
    latest = time.monotonic() + seconds
    while not any(available(job.folder) and not job.finished and job.busy for job in jobs):
        assert time.monotonic() < latest, "nothing happens"
        time.sleep(0.02)


def assert_same_results(out: Path, expected: Path, suite: Suite) -> None:
    for name in suite.runs():
        assert_same_run(out / "runs" / name, expected / "runs" / name)
    for table in ("curves.csv", "table.md"):
        assert (out / table).read_text() == (expected / table).read_text()


def test_a_sweep_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert sweep(EIGHT, undisturbed)
    random = np.random.default_rng(0)
    for _ in range(3):
        process = start("t.EIGHT", killed)
        wait_for_work(EIGHT, killed)
        time.sleep(random.uniform(0, 1.5))
        process.kill()
        process.communicate(timeout=60)
    last = start("t.EIGHT", killed)
    told, _ = last.communicate(timeout=300)
    assert last.returncode == 0, told
    assert_same_results(killed, undisturbed, EIGHT)
    assert events(undisturbed, "resumed") == []
    assert events(killed, "resumed") != []
    assert sorted(events(killed, "finished")) == sorted(EIGHT.runs())


def test_two_sweeps_at_once_share_the_work(tmp_path: Path) -> None:
    out = tmp_path / "shared"
    sweeps = [start("t.FOUR", out) for _ in range(2)]
    for process in sweeps:
        told, _ = process.communicate(timeout=180)
        assert process.returncode == 0, told
    assert sorted(events(out, "started")) == sorted(FOUR.runs())
    assert sorted(events(out, "finished")) == sorted(FOUR.runs())
    assert events(out, "resumed") == []


def test_a_run_whose_process_dies_is_tried_again_from_its_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Deadly(Local):
        victim: str | None = None

        @property
        def running(self) -> list[Job]:
            for worker in self._workers.values():
                if self.victim is None and (worker.jobs[0].folder / "checkpoints").exists():
                    self.victim = worker.jobs[0].name
                    assert worker.process.pid is not None
                    os.kill(worker.process.pid, signal.SIGKILL)
            return list(super().running)

    launcher = Deadly(1)
    assert sweep(TWO, tmp_path / "killed", launcher=launcher)
    assert launcher.victim is not None
    assert "its process died: killed by SIGKILL" in capsys.readouterr().out
    assert events(tmp_path / "killed", "resumed") == [launcher.victim]
    assert sweep(TWO, tmp_path / "undisturbed")
    assert_same_results(tmp_path / "killed", tmp_path / "undisturbed", TWO)


def test_runs_that_share_a_process_are_what_they_are_alone(tmp_path: Path) -> None:
    """As on two GPUs: two processes with two runs each."""
    assert sweep(FOUR, tmp_path / "shared", launcher=Local(4, gpus=2))
    assert sweep(FOUR, tmp_path / "alone")
    assert_same_results(tmp_path / "shared", tmp_path / "alone", FOUR)
    processes = Counter(pid for pid, _, event in journal(tmp_path / "shared") if event == "started")
    assert sorted(processes.values()) == [2, 2]


def test_no_runs_at_a_time_are_refused() -> None:
    with pytest.raises(ValueError, match="--jobs must be at least 1, got 0"):
        Local(0)


def test_gpus_are_counted_when_there_is_a_run_to_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def count() -> int:
        counted.append("once")
        return 0

    monkeypatch.setattr(torch.cuda, "device_count", count)
    launcher = Local(gpus=None)
    assert list(launcher.run([])) == []
    assert counted == []
    jobs = [Job(name, config, tmp_path) for name, config in TWO.runs().items()]
    with pytest.raises(RuntimeError, match="no GPU here: use --device cpu"):
        next(launcher.run(jobs))
    assert counted == ["once"]


def test_a_sweep_on_gpus_with_nothing_to_do_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(Job, "finished", True)
    words = ["relval", "sweep", "smoke", "--device", "cuda", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr()
    assert ended.value.code == 0, told.err
    assert "0 of them to do" in told.out


def test_gpus_share_what_is_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs at most, on the second and fourth GPU of the machine."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    names = list(FOUR.runs())
    launcher = Local(3, gpus=2)
    running = launcher.run([Job(name, config, tmp_path) for name, config in FOUR.runs().items()])
    next(running)
    shares = [[job.name for job in worker.jobs] for worker in launcher._workers.values()]
    assert shares == [names[:2], names[2:3]]
    places = [worker.place for worker in launcher._workers.values()]
    gpus = [launcher._surroundings(place)["CUDA_VISIBLE_DEVICES"] for place in places]
    assert gpus == ["1", "3"]
    running.close()


def test_a_run_that_cannot_begin_does_not_stop_those_that_share_its_process(
    tmp_path: Path,
) -> None:
    blocked, free, claimed = (Job(n, c, tmp_path) for n, c in list(EIGHT.runs().items())[:3])
    blocked.folder.mkdir(parents=True)
    (blocked.folder / "notes.txt").write_text("not a run", encoding="utf-8")
    with claimed._claimed():
        answers = attempt([blocked, free, claimed])
    assert [kind for kind, _ in answers] == ["failed", "done", "elsewhere"]
    assert "holds something already" in answers[0][1]


def test_a_run_that_fails_does_not_stop_those_that_share_its_process(tmp_path: Path) -> None:
    jobs = [Job(name, config, tmp_path) for name, config in TWO.runs().items()]
    bad = replace(jobs[0].config, ppo=replace(jobs[0].config.ppo, learning_rate=1e30))
    jobs[0] = replace(jobs[0], config=bad)
    outcomes = {o.job.name: o for o in Local(2, gpus=1).run(jobs) if o is not None}
    assert outcomes[jobs[1].name].kind == "done"
    assert outcomes[jobs[0].name].kind == "failed"
    assert "learning stops" in outcomes[jobs[0].name].reason
    assert events(tmp_path, "finished") == [jobs[1].name]


def test_an_interrupt_saves_the_runs_and_ends_the_sweep(tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    long = replace(TWO, total_steps=10**7)
    jobs = [Job(name, config, out) for name, config in long.runs().items()]
    process = start("t.replace(t.TWO, total_steps=10**7)", out)
    latest = time.monotonic() + 60
    while not all((job.folder / "checkpoints").exists() for job in jobs):
        assert time.monotonic() < latest, "nothing happens"
        time.sleep(0.05)
    assert all(job.busy for job in jobs)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "the same command goes on" in told
    for job in jobs:
        assert not job.busy
        assert not job.finished


def test_what_a_false_start_left_is_cleared(tmp_path: Path) -> None:
    job = Job("CartPole-v1/absolute/1", next(iter(TWO.runs().values())), tmp_path)
    job.folder.mkdir(parents=True)
    for name in ("provenance.json", "config.123.tmp"):
        (job.folder / name).write_text("{}", encoding="utf-8")
    assert attempt([job]) == [("done", "")]
    assert job.finished


def test_a_run_that_another_process_is_at_is_left_alone(tmp_path: Path) -> None:
    job = Job("CartPole-v1/absolute/1", next(iter(TWO.runs().values())), tmp_path)
    with job._claimed() as mine:
        assert mine
        assert job.busy
        assert attempt([job]) == [("elsewhere", "")]
    assert not job.busy
    assert not job.folder.exists()


def test_progress_is_the_last_whole_row(tmp_path: Path) -> None:
    job = Job("CartPole-v1/absolute/1", next(iter(TWO.runs().values())), tmp_path)
    assert last_logged(job) is None
    job.folder.mkdir(parents=True)
    log = job.folder / "metrics.csv"
    log.write_text("step,score,episodes,steps_per_second\n", encoding="utf-8")
    assert last_logged(job) is None
    with log.open("a", encoding="utf-8") as file:
        file.writelines(f"{step},1.5,3,{2 * step}\n" for step in range(1000))
        file.write("1000,2.")
    seen = last_logged(job)
    assert seen is not None
    assert (seen.step, seen.score, seen.steps_per_second) == (999, 1.5, 1998)
