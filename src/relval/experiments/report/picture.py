"""Learning curves as one picture, for a paper or a README."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from relval.experiments.figures import COLOURS, figure
from relval.experiments.report.study import Study

_COLUMNS = 5
_WIDTH, _HEIGHT = 2.6, 2.2
"""Of one game's curves, in inches."""
_SUFFIXES = (".png", ".svg", ".pdf")


def draw(study: Study, path: Path) -> None:
    """Draws the mean score of each variant with its 95% interval, game by game.

    Args:
      study: The numbers.
      path: Where to, a .png, .svg or .pdf.
    """
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"a picture is one of {', '.join(_SUFFIXES)}, got {str(path)!r}")
    games = list(dict.fromkeys(point.env for point in study.results.curves))
    if not games:
        raise ValueError("there are no curves to draw: no run has finished an episode")
    columns = min(_COLUMNS, len(games))
    rows = math.ceil(len(games) / columns)
    width = max(2, columns) * _WIDTH
    across = max(1, int(width / (0.6 + 0.08 * max(map(len, study.variants)))))
    legend = 0.25 * math.ceil(len(study.variants) / across)
    with figure(width, rows * _HEIGHT + legend) as fig:
        grid = np.ravel(fig.subplots(rows, columns, squeeze=False))
        for axes, game in zip(grid, games, strict=False):
            _draw_game(axes, study, game)
        for axes in grid[len(games) :]:
            axes.set_axis_off()
        entries = grid[0].get_legend_handles_labels()
        fig.legend(*entries, loc="outside upper center", ncols=across)
        path.parent.mkdir(parents=True, exist_ok=True)
        fig.savefig(path, dpi=160, transparent=False, metadata=_undated(path))


def _draw_game(axes: Axes, study: Study, game: str) -> None:
    curves = study.curves(game)
    millions = curves.x / 1e6
    means = {}
    for place, (name, line) in enumerate(curves.lines.items()):
        mean, low, high = (
            np.array([math.nan if point is None else getattr(point, field) for point in line])
            for field in ("value", "low", "high")
        )
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(millions, mean, color=colour, label=name)
        axes.fill_between(millions, low, high, color=colour, alpha=0.15, linewidth=0)
        means[name] = mean
    known = np.concatenate(list(means.values()))
    low, high = np.nanmin(known), np.nanmax(known)
    space = 0.2 * (high - low or 1.0)
    axes.set_ylim(low - space, high + space)  # Bands of few seeds would dwarf the curves.
    axes.set_title(game)
    axes.set_xlabel("million steps")


def _undated(path: Path) -> dict[str, None] | None:
    """What keeps a picture the same from one time to the next, where its format dates it."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
