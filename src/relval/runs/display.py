"""How a run is watched: a live table in a terminal, plain lines elsewhere."""

import sys
import time
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Progress:
    """What there is to see after an update."""

    step: int
    total: int
    score: float | None
    """Mean of the last 100 episodes; None before the first has ended."""
    episodes: int
    steps_per_second: float
    metrics: dict[str, float] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    """Share of time in each phase, of 1."""

    @property
    def eta(self) -> str:
        """Time left at the present speed."""
        seconds = (self.total - self.step) / max(self.steps_per_second, 1e-9)
        minutes, seconds = divmod(round(max(seconds, 0)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Display:
    """Shows progress, between `__enter__` and `__exit__`; this one shows nothing."""

    def __enter__(self) -> Self:
        """Begins."""
        return self

    def __exit__(self, *details: object) -> None:
        """Ends, and leaves the last state to be seen."""

    def show(self, progress: Progress) -> None:
        """Shows progress, if it is time to."""


class _Lines(Display):
    """A line every few seconds, and one at the end."""

    def __init__(self, title: str, every: float = 5.0) -> None:
        self._title, self._every = title, every
        self._last = time.monotonic()

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < self._every and progress.step < progress.total:
            return
        self._last = now
        phases = " ".join(f"{name} {share:.0%}" for name, share in progress.phases.items())
        losses = " ".join(
            f"{name} {progress.metrics[name]:.3g}"
            for name in ("policy_loss", "critic_loss", "entropy")
            if name in progress.metrics
        )
        print(
            f"{self._title}: step {progress.step:,} of {progress.total:,}, "
            f"score {_score(progress)} ({progress.episodes:,} episodes), "
            f"{progress.steps_per_second:,.0f} steps/s, eta {progress.eta}, {losses}, {phases}",
            flush=True,
        )


class _Live(Display):
    """A table that renews itself."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._live = Live(Text(f"{title}: collecting"), console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        self._live.update(_panel(self._title, progress))


def _panel(title: str, progress: Progress) -> Group:
    head = Text.assemble(
        (title, "bold"),
        f"  {progress.step:,} of {progress.total:,} steps",
        f"  {progress.steps_per_second:,.0f} steps/s",
        f"  {progress.eta} left",
    )
    table = Table.grid(padding=(0, 3))
    phases = "  ".join(f"{name} {share:.0%}" for name, share in progress.phases.items())
    table.add_row("score, last 100", Text(_score(progress), "bold green"), "time", phases)
    shown = [(name.replace("_", " "), f"{x:.4g}") for name, x in progress.metrics.items()]
    if len(shown) % 2:
        shown.append(("", ""))
    for left, right in zip(shown[::2], shown[1::2], strict=True):
        table.add_row(*left, *right)
    bar = Table.grid(expand=True)
    bar.add_row(ProgressBar(total=progress.total, completed=progress.step))
    return Group(head, bar, table)


def _score(progress: Progress) -> str:
    return "-" if progress.score is None else f"{progress.score:,.2f}"


def make_display(title: str, *, quiet: bool = False) -> Display:
    """The display that suits where output goes."""
    if quiet:
        return Display()
    console = Console(file=sys.stdout)
    return _Live(title, console) if console.is_terminal else _Lines(title)
