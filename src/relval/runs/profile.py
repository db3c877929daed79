"""Where a run's time went."""

import csv
import time
from collections.abc import Mapping
from pathlib import Path

from relval.accelerated import DeviceCollector
from relval.runs.trainer import Trainer

_NAMES = {"env": "waiting for emulation", "act": "acting", "learn": "update"}
_FIRST = 10
"""Updates that stand apart, half of a short run's: there functions are compiled, steps recorded."""


class Profile:
    """Adds up what each phase of a run takes.

    Args:
      expected: Updates that the run will have.
    """

    def __init__(self, expected: int) -> None:
        self.first = min(_FIRST, expected // 2)
        self.updates = 0
        self.spent: dict[str, float] = {}
        self.begin = time.perf_counter()
        self.getting_ready = 0.0
        """Seconds of the first updates."""

    def add(self, seconds: Mapping[str, float]) -> None:
        """Counts an update, with the seconds of each phase."""
        self.updates += 1
        if self.updates > self.first:
            for phase, some in seconds.items():
                self.spent[phase] = self.spent.get(phase, 0.0) + some
        if self.updates == self.first:
            self.getting_ready = time.perf_counter() - self.begin

    def write(self, folder: Path, trainer: Trainer) -> None:
        """Writes `profile.csv` and `profile.png`: seconds and shares of each phase.

        Args:
          folder: The run's.
          trainer: Whose rollouts they were. On a GPU it plays on for a moment, to measure what
            copying screens takes of acting, and what emulation would take by itself.
        """
        elapsed = time.perf_counter() - self.begin - self.getting_ready
        steps = (self.updates - self.first) * trainer.config.ppo.steps
        rows = {_NAMES.get(phase, phase): seconds for phase, seconds in self.spent.items()}
        rows["logging and saving"] = elapsed - sum(self.spent.values())
        beside = {"all of it": elapsed}
        if isinstance(trainer.collector, DeviceCollector):
            rows["copying screens"] = trainer.collector.seconds_to_copy() * steps
            rows["acting"] -= rows["copying screens"]
            beside["emulation alone, the floor"] = trainer.collector.seconds_to_emulate() * steps
        speed = steps * trainer.envs.num_envs / elapsed
        with (folder / "profile.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["phase", "seconds", "share", "ms_per_step"])
            for name, seconds in (rows | beside).items():
                share, each = seconds / elapsed, 1e3 * seconds / steps
                table.writerow([name, f"{seconds:.6f}", f"{share:.4f}", f"{each:.4f}"])
            table.writerow([f"first {self.first} updates", f"{self.getting_ready:.6f}", "", ""])
        title = f"{speed:,.0f} steps per second, after the first {self.first} updates"
        _draw(folder / "profile.png", rows, elapsed, title)


def _draw(path: Path, rows: Mapping[str, float], elapsed: float, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.5 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    shares = [100 * seconds / elapsed for seconds in rows.values()]
    bars = axes.barh(list(rows), shares, color="#4c78a8")
    axes.bar_label(bars, [f"{share:.1f}%" for share in shares], padding=3)
    axes.invert_yaxis()
    axes.set(title=title, xlabel="% of the time")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.savefig(path, dpi=120)
