"""Sweeps on a Ray cluster whose nodes and processes die."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import ray

from relval.experiments.launchers import Job, Ray
from relval.experiments.launchers.ray import _slots
from relval.experiments.overview import last_logged
from relval.experiments.sweep import sweep
from tests.experiments.test_launch import FOUR, ROOT, TWO, assert_same_results, events, journal
from tests.runs.helpers import available

PAIR = replace(FOUR, seeds=(1,))
ONE = replace(TWO, seeds=(1,))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


def end_session(leader: int) -> None:
    """Kills all processes of a session at once, as if their machine had lost power."""
    for name in os.listdir("/proc"):
        with suppress(ValueError, ProcessLookupError):
            if os.getsid(int(name)) == leader:
                os.kill(int(name), signal.SIGKILL)


@contextmanager
def node(*options: str, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A node with one core, in a session of its own."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
    # Whatever is set for other clusters on this machine; and not behind all else that it does.
    settings = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
    with (folder / "nodes.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(*command, "--node-ip-address=127.0.0.1", "--num-cpus=1"),
                *(f"--object-store-memory={10**8}", "--block"),
            ],
            cwd=folder,
            env={**os.environ, **settings, "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_session(process.pid)
        process.wait()


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    latest = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < latest, "nothing happens"
        time.sleep(0.1)


@dataclass
class Cluster:
    address: str
    folder: Path

    @contextmanager
    def connected(self) -> Iterator[None]:
        ray.init(self.address, log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node to which others can be added."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, unused = (each.getsockname()[1] for each in (one, other))
    folder = Path(tempfile.mkdtemp(prefix="relval-", dir="/tmp"))
    options = [f"--port={port}", f"--temp-dir={folder}", f"--ray-client-server-port={unused}"]
    try:
        with node("--head", *options, "--include-dashboard=false", folder=folder):

            def listening() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            wait_until(listening)
            yield Cluster(f"127.0.0.1:{port}", folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def second(cluster: Cluster) -> "Iterator[subprocess.Popen[bytes]]":
    """Another node of the cluster, a process whose session holds all others of the node."""
    with node(f"--address={cluster.address}", folder=cluster.folder) as process:
        with cluster.connected():
            wait_until(lambda: ray.cluster_resources().get("CPU") == 2)
        yield process


class Deadly(Ray):
    """Does harm as soon as a run on which it can be done has a checkpoint."""

    victim: str | None = None

    def __init__(self, address: str, harm: Callable[[int], bool]) -> None:
        super().__init__(address)
        self.harm = harm

    @property
    def running(self) -> list[Job]:
        now = list(super().running)
        for job in now:
            pids = [int(pid) for pid, name, _ in _journal(job.out) if name == job.name]
            if self.victim is None and pids and available(job.folder):
                with suppress(ProcessLookupError):  # it has just ended
                    self.victim = job.name if self.harm(pids[-1]) else None
        return now


def _journal(out: Path) -> list[tuple[str, str, str]]:
    return journal(out) if (out / "journal.csv").exists() else []


def test_the_runs_of_a_node_that_dies_go_on_elsewhere(
    cluster: Cluster,
    second: "subprocess.Popen[bytes]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def kill_node(pid: int) -> bool:
        if os.getsid(pid) != second.pid:
            return False
        end_session(second.pid)
        return True

    monkeypatch.chdir(tmp_path)
    launcher = Deadly(cluster.address, kill_node)
    assert sweep(PAIR, Path("killed"), launcher=launcher)
    assert launcher.victim is not None
    assert sorted(events(tmp_path / "killed", "started")) == sorted(PAIR.runs())
    assert events(tmp_path / "killed", "resumed") == [launcher.victim]
    assert sorted(events(tmp_path / "killed", "finished")) == sorted(PAIR.runs())
    assert "failed" not in capsys.readouterr().out
    assert sweep(PAIR, tmp_path / "local")
    assert_same_results(tmp_path / "killed", tmp_path / "local", PAIR)


def test_a_run_whose_process_dies_counts_as_failed_and_is_tried_again(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill_process(pid: int) -> bool:
        os.kill(pid, signal.SIGKILL)
        return True

    launcher = Deadly(cluster.address, kill_process)
    assert sweep(ONE, tmp_path, launcher=launcher)
    (name,) = ONE.runs()
    assert launcher.victim == name
    told = capsys.readouterr().out
    assert f"{name}: failed (1), to be tried again: Ray reports: The worker died" in told
    assert [event for _, _, event in journal(tmp_path)] == ["started", "resumed", "finished"]


def test_a_run_that_fails_is_reported_and_the_others_go_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    blocked, free = (Job(name, config, tmp_path) for name, config in PAIR.runs().items())
    blocked.folder.mkdir(parents=True)
    (blocked.folder / "notes.txt").write_text("not a run", encoding="utf-8")
    outcomes = Ray(cluster.address).run([blocked, free])
    failed, done = (outcome for outcome in outcomes if outcome is not None)
    assert (failed.job, failed.kind) == (blocked, "failed")
    assert "holds something already" in failed.reason
    assert (done.job, done.kind) == (free, "done")
    assert free.finished


def test_a_run_that_another_process_is_at_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    ((name, config),) = ONE.runs().items()
    job = Job(name, config, tmp_path)
    with job._claimed() as mine:
        assert mine
        outcomes = [each for each in Ray(cluster.address).run([job]) if each is not None]
    assert [outcome.kind for outcome in outcomes] == ["elsewhere"]
    assert not job.folder.exists()


def endless(out: Path) -> list[Job]:
    """Runs that save nothing of their own accord."""
    runs = replace(TWO, total_steps=10**9).runs()
    return [
        Job(name, replace(config, checkpoint_every=10**9), out) for name, config in runs.items()
    ]


def test_whoever_stops_waiting_stops_the_runs_which_save_themselves(
    cluster: Cluster, tmp_path: Path
) -> None:
    begun, queued = endless(tmp_path)
    launcher = Ray(cluster.address)
    outcomes = launcher.run([begun, queued])
    latest = time.monotonic() + 60
    while last_logged(begun) is None:
        assert next(outcomes) is None
        assert time.monotonic() < latest, "nothing happens"
    assert launcher.running == [begun]
    assert begun.busy
    outcomes.close()
    assert launcher.running == []
    assert not begun.busy
    assert available(begun.folder)
    assert not begun.finished
    assert not queued.folder.exists()


def test_ctrl_c_saves_the_runs_and_ends_a_cluster_of_ones_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path; from tests.experiments import test_ray as t\n"
        f"for each in t.Ray().run(t.endless(Path({str(tmp_path)!r}))): pass\n",
        encoding="utf-8",
    )
    job, *_ = endless(tmp_path)
    # At home Ray would leave a key, which the next cluster that is started there would ask for.
    settings = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "RAY_worker_niceness": "0"}
    process = subprocess.Popen(
        [sys.executable, script],
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: last_logged(job) is not None or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)
        told, _ = process.communicate(timeout=60)
    finally:
        end_session(process.pid)
        process.communicate()
    assert told.strip().endswith("KeyboardInterrupt")
    assert not job.busy
    assert available(job.folder)


def test_no_cluster_is_needed_for_nothing() -> None:
    assert list(Ray("nowhere:1").run([])) == []


def test_a_run_that_no_node_can_hold_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no node of the Ray cluster has the 2 cores and 0 GPUs"):
        list(Ray(cluster.address, cpus=2).run(endless(tmp_path)))


def test_nodes_hold_as_many_runs_as_their_scarcest_resource_allows() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 3.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    assert _slots(nodes, cpus=2, gpus=0) == 4 + 1
    assert _slots(nodes, cpus=0.1, gpus=0) == 80 + 30
    assert _slots(nodes, cpus=1, gpus=1 / 3) == 3
    assert _slots(nodes, cpus=4, gpus=0.25) == 2


def test_without_ray_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"Ray is not installed.*pip install \"relval\[ray\]"):
        Ray()


def test_a_run_needs_some_of_a_core() -> None:
    with pytest.raises(ValueError, match="needs some of a core"):
        Ray(cpus=0)
