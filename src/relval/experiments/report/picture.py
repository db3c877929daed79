"""Learning curves as one picture, for a paper or a README."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from relval.experiments.figures import COLOURS, figure, styles, to_svg_file
from relval.experiments.report.study import Study

_COLUMNS = 3
_WIDTH, _HEIGHT = 2.5, 2.1
"""Of one game's curves, in inches."""
_SUFFIXES = (".png", ".svg", ".pdf")


def draw(study: Study, path: Path) -> None:
    """Draws the learning curves into a file.

    Args:
      study: The numbers.
      path: Where to, a .png, .svg or .pdf; on an .svg any background shows through.
    """
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"a picture is one of {', '.join(_SUFFIXES)}, got {str(path)!r}")
    fig = learning_curves(study)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        path.write_text(to_svg_file(fig, "Learning curves"), encoding="utf-8")
        return
    undated = {"CreationDate": None} if path.suffix == ".pdf" else None
    fig.savefig(path, dpi=160, transparent=False, metadata=undated)


def learning_curves(study: Study) -> Figure:
    """The mean score of each variant with its 95% interval, game by game."""
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
        for axes in grid[::columns]:
            axes.set_ylabel("score")
        for axes in grid[len(games) :]:
            axes.set_axis_off()
        entries = grid[0].get_legend_handles_labels()
        fig.legend(*entries, loc="outside upper center", ncols=across)
    return fig


def _draw_game(axes: Axes, study: Study, game: str) -> None:
    curves, looks = study.curves(game), styles(study.variants)
    millions = curves.x / 1e6
    for name, line in curves.lines.items():
        mean, low, high = (
            np.array([math.nan if point is None else getattr(point, field) for point in line])
            for field in ("value", "low", "high")
        )
        colour, dashes = COLOURS[looks[name].colour], (0, looks[name].dashes)
        axes.plot(millions, mean, color=colour, linestyle=dashes, label=name)
        axes.fill_between(millions, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_title(game)
    axes.set_xlabel("million steps")
