"""How a run is watched: a live table in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
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
        return duration((self.total - self.step) / max(self.steps_per_second, 1e-9))


def duration(seconds: float) -> str:
    """A time as clocks show it."""
    minutes, seconds = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Display:
    """Shows the progress of a run; this one shows nothing."""

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


class _Live(Live):
    """Renewed now and then, while it is updated.

    Rich would do that from a thread, which takes turns with those that learn: they wait for each
    other, and a run takes several times as long.
    """

    _every = 0.25

    def __init__(self, renderable: RenderableType, console: Console) -> None:
        super().__init__(renderable, console=console, auto_refresh=False)
        self._renewed = 0.0

    def show(self, renderable: RenderableType) -> None:
        """Shows something else; at the end, the last is shown in any case."""
        now = time.monotonic()
        due = now - self._renewed >= self._every
        self.update(renderable, refresh=due)
        if due:
            self._renewed = now


class _Panel(Display):
    """All about one run, in a panel that renews itself."""

    def __init__(self, title: str, live: _Live) -> None:
        self._title, self._live = title, live

    def show(self, progress: Progress) -> None:
        self._live.show(_panel(self._title, progress))


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


class _Row(Display):
    """One of several runs in a table that renews itself."""

    def __init__(self, title: str, table: "_LiveTable") -> None:
        self._title, self._table = title, table

    def show(self, progress: Progress) -> None:
        self._table.show(self._title, progress)


class _LiveTable:
    """Several runs, a row each."""

    def __init__(self, live: _Live) -> None:
        self._live = live
        self._newest: dict[str, Progress] = {}

    def show(self, title: str, progress: Progress) -> None:
        self._newest[title] = progress
        table = Table("run", "steps", "of", "score", "steps/s", "left", box=None)
        for name, seen in sorted(self._newest.items()):
            table.add_row(
                name,
                f"{seen.step:,}",
                f"{seen.total:,}",
                Text(_score(seen), "bold green"),
                f"{seen.steps_per_second:,.0f}",
                seen.eta,
            )
        self._live.show(table)


@contextmanager
def make_displays(titles: Sequence[str], *, quiet: bool = False) -> Iterator[list[Display]]:
    """A display for each run, as suits where output goes."""
    console = Console(file=sys.stdout)
    if quiet:
        yield [Display() for _ in titles]
    elif not console.is_terminal:
        yield [_Lines(title) for title in titles]
    else:
        waiting = Text(f"{', '.join(titles)}: collecting")
        with _Live(waiting, console) as live:
            live.refresh()
            table = _LiveTable(live)
            one = len(titles) == 1
            yield [_Panel(titles[0], live)] if one else [_Row(title, table) for title in titles]
