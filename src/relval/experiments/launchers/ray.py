"""Runs on the nodes of a Ray cluster, a task each."""

import importlib.util
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from relval._machine import cores
from relval._names import not_installed
from relval.experiments.launchers.jobs import Job, Outcome, Outcomes, attempt

_GLANCE = 0.5
"""Seconds after which whoever waits for outcomes is told that there is none yet."""
_NODES = 5
"""Nodes that may die while they are at a run, before the run is held to be the reason."""
_OBJECT_STORE = 100 * 2**20
"""Bytes of shared memory for a cluster of one's own: tasks hand over a few words."""


class Ray:
    """Nodes of a Ray cluster.

    All nodes need the same installation of relval, and see the sweep's folder under the same path,
    on storage whose locks (`flock`) hold between nodes. When a node dies, its runs go on from their
    checkpoints on others, and that does not count as a failure of theirs.

    Args:
      address: The cluster, as `host:port`, or `auto` for the one that this machine belongs to. By
        default a cluster is started of this machine alone, for as long as there are jobs.
      cpus: Cores for each run, which may be a part of one.
      gpus: GPUs for each run, which may be a part of one; without, a run does not see any.
    """

    def __init__(self, address: str | None = None, *, cpus: float = 1, gpus: float = 0) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ModuleNotFoundError(not_installed("Ray", "ray"))
        if cpus <= 0 or gpus < 0:
            raise ValueError(f"a run needs some of a core, and has {cpus} cores and {gpus} GPUs")
        self.address = address
        self.cpus = cpus
        self.gpus = gpus
        self._tasks: dict[Any, Job] = {}
        self._slots = 0

    @property
    def running(self) -> Sequence[Job]:
        """Those that are being done: the oldest, as many as the nodes can hold."""
        return list(self._tasks.values())[: self._slots]

    def run(self, jobs: Sequence[Job]) -> Outcomes:
        """Does all jobs; an outcome for each, as it comes, and None now and then meanwhile."""
        if not jobs:
            return
        import ray

        # Ray would try a run that has too little memory for ever, so it tries nothing again. A
        # process is for one run, and all that it holds goes with it.
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0, max_calls=1)(_work)

        def submit(job: Job) -> None:
            shipped = replace(job, out=job.out.resolve())  # nodes work in other folders
            self._tasks[task.remote(shipped, self.cpus, self.gpus)] = job

        with _cluster(self.address):
            self._slots = _slots(ray.nodes(), self.cpus, self.gpus)
            if not self._slots:
                raise ValueError(
                    f"no node of the Ray cluster has the {self.cpus} cores and {self.gpus} GPUs "
                    "that each run is to have: ask for less, or add such a node"
                )
            nodes_lost: Counter[str] = Counter()
            try:
                for job in jobs:
                    submit(job)
                while self._tasks:
                    ended, _ = ray.wait(list(self._tasks), timeout=_GLANCE)
                    for reference in ended:
                        job = self._tasks.pop(reference)
                        try:
                            outcome = Outcome(job, *ray.get(reference))
                        except ray.exceptions.NodeDiedError as error:
                            nodes_lost[job.name] += 1
                            if nodes_lost[job.name] < _NODES:
                                submit(job)
                                continue
                            outcome = Outcome(job, "failed", f"{_NODES} nodes died: {error}")
                        except ray.exceptions.RayError as error:
                            outcome = Outcome(job, "failed", f"Ray reports: {error}")
                        yield outcome
                    if not ended:
                        self._slots = _slots(ray.nodes(), self.cpus, self.gpus)
                        yield None
            finally:
                tasks, self._tasks = list(self._tasks), {}
                for reference in tasks:
                    ray.cancel(reference)  # an interrupt: the run saves itself, and ends
                if tasks:
                    ray.wait(tasks, num_returns=len(tasks))


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Connects to a cluster, or starts one of this machine, for the time being."""
    import ray

    settings: dict[str, Any] = {"address": address}
    with ExitStack() as stack:
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            settings = {
                "address": "local",
                "num_cpus": cores(),
                "object_store_memory": _OBJECT_STORE,
                "include_dashboard": False,
                "_temp_dir": stack.enter_context(_short_folder()),
            }
        ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
        stack.callback(ray.shutdown)
        yield


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the time being in which the paths of sockets are not too long."""
    parent = "/tmp" if os.path.isdir("/tmp") else None
    return tempfile.TemporaryDirectory(prefix="relval-", dir=parent, ignore_cleanup_errors=True)


def _slots(nodes: Sequence[dict[str, Any]], cpus: float, gpus: float) -> int:
    """How many runs the nodes that are alive can hold."""
    slots = 0
    for node in nodes:
        has = node["Resources"] if node["Alive"] else {}
        room = has.get("CPU", 0) / cpus
        if gpus:
            room = min(room, has.get("GPU", 0) / gpus)
        slots += int(room + 1e-6)  # whatever the rounding, a third goes thrice into one
    return slots


def _work(job: Job, cpus: float, gpus: float) -> tuple[str, str]:
    """A task: one job, in a process of its own."""
    os.environ["OMP_NUM_THREADS"] = str(max(1, int(cpus)))
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # not all versions of Ray hide them
    (answer,) = attempt([job])
    return answer
