"""The demonstration: PPO with its own critic and with the relative one, side by side."""

import csv
from pathlib import Path

from relval.experiments.figures import figure, save_png
from relval.runs import Run, configure, resume, train

_ENV = "MinAtar/Breakout"
_CRITICS = {"absolute": "PPO", "relative": "PPO + relative values"}


def demo(out: Path, total_steps: int) -> Path:
    """Trains both for a short while, draws their learning curves, and says where they are."""
    runs = {label: _run(out / critic, critic, total_steps) for critic, label in _CRITICS.items()}
    picture = out / "curves.png"
    _draw(runs, picture)
    for label, run in runs.items():
        print(f"{label}: score {run.summary['score']:.2f} after {run.summary['steps']:,} steps")
    print(f"Learning curves: {picture}")
    print(f"Watch the agent: relval video {out / 'relative'}")
    return picture


def _run(folder: Path, critic: str, total_steps: int) -> Run:
    """A new run, or the one that an earlier demonstration left."""
    if (folder / "config.yaml").exists():
        return resume(folder)
    return train(configure(_ENV, critic, total_steps=total_steps), folder)


def _draw(runs: dict[str, Run], path: Path) -> None:
    with figure(height=3.6) as fig:
        panel = fig.subplots()
        for label, run in runs.items():
            with run.metrics.open(encoding="utf-8", newline="") as file:
                rows = [(int(row["step"]), float(row["score"])) for row in csv.DictReader(file)]
            panel.plot(*zip(*rows, strict=True), label=label)
        panel.set_title(f"{_ENV}, one seed each")
        panel.set_xlabel("environment steps")
        panel.set_ylabel("score, mean of the last 100 episodes")
        panel.legend()
    save_png(fig, path)
