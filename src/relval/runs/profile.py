"""Where a run's time went."""

import csv
from collections.abc import Mapping
from pathlib import Path

from relval.accelerated import DeviceCollector
from relval.runs.trainer import Trainer

_NAMES = {"env": "waiting for emulation", "act": "acting", "learn": "update"}


def write_profile(
    folder: Path, spent: Mapping[str, float], elapsed: float, trainer: Trainer
) -> None:
    """Writes `profile.csv` and `profile.png`: seconds and shares of each phase.

    Args:
      folder: The run's.
      spent: Seconds in each phase.
      elapsed: Seconds in all.
      trainer: Whose rollouts they were, to measure what copying screens takes of acting.
    """
    rows = {_NAMES.get(phase, phase): seconds for phase, seconds in spent.items()}
    if isinstance(trainer.collector, DeviceCollector):
        copying = trainer.collector.seconds_to_copy() * trainer.step / trainer.envs.num_envs
        rows["copying screens"] = copying
        rows["acting"] -= copying
    rows["logging and saving"] = elapsed - sum(spent.values())
    steps = trainer.step / trainer.envs.num_envs
    with (folder / "profile.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["phase", "seconds", "share", "ms_per_step"])
        for name, seconds in rows.items():
            share, each = seconds / elapsed, 1e3 * seconds / steps
            table.writerow([name, f"{seconds:.3f}", f"{share:.4f}", f"{each:.4f}"])
    _draw(folder / "profile.png", rows, elapsed, trainer.step / elapsed)


def _draw(path: Path, rows: Mapping[str, float], elapsed: float, speed: float) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.5 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    shares = [100 * seconds / elapsed for seconds in rows.values()]
    bars = axes.barh(list(rows), shares, color="#4c78a8")
    axes.bar_label(bars, [f"{share:.1f}%" for share in shares], padding=3)
    axes.invert_yaxis()
    axes.set(title=f"{speed:,.0f} steps per second", xlabel="% of the time")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.savefig(path, dpi=120)
