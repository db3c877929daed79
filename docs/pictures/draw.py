"""Draws the pictures of the documentation: `python docs/pictures/draw.py`."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from relval.experiments.figures import COLOURS, figure, styles, to_svg_file
from relval.experiments.report import Study, learning_curves
from relval.experiments.results import Results, printed_scores, read
from relval.experiments.tables import compare

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parents[1] / "results"
SHOWN = ("absolute", "relval", "weight-0.3", "half", "half-random", "paper")
"""Of the variants on Pong, those that have a colour: all that learn within a million steps, and the
paper's."""
ENDLESS = ("Pendulum-v1", "HalfCheetah-v5")
"""Tasks that never terminate, to which a constant added to all values makes no difference."""


def relative_values() -> str:
    """Three value functions that differ by a constant, and the differences that they share."""
    steps = np.arange(60)
    values = 3 * np.sin(steps / 9) + 2 * np.exp(-(((steps - 42) / 6) ** 2))
    with figure(7.2, 3.0) as fig:
        curves, matrix = fig.subplots(1, 2, width_ratios=(1.25, 1))
        for name, constant in {"V + 6": 6, "V": 0, "V − 6": -6}.items():
            curves.plot(steps, values + constant, label=name)
        curves.set_xlabel("state")
        curves.set_title("values that differ by a constant")
        curves.legend(loc="lower left", ncols=3)
        curves.set_ylim(-16, 12)
        difference = values[:, None] - values[None, :]
        limit = np.abs(difference).max()
        picture = matrix.imshow(difference, cmap="RdBu_r", vmin=-limit, vmax=limit)
        matrix.grid(False)
        matrix.set_title("Δ(i, j) = V(i) − V(j), the same for all")
        matrix.set_xlabel("state j")
        matrix.set_ylabel("state i")
        fig.colorbar(picture, ax=matrix, shrink=0.8)
    return to_svg_file(fig, "Three curves of values, and one matrix of differences")


def gauge() -> str:
    """Scores of the suite `gauge` by the constant that was added to all values, seed by seed."""
    table = compare(read(RESULTS / "gauge"))
    names = list(dict.fromkeys(variant.partition("+")[0] for variant in table.variants))
    constants = list(dict.fromkeys(variant.partition("+")[2] for variant in table.variants))
    with figure(7.2, 3.2) as fig:
        panels = fig.subplots(1, len(ENDLESS))
        for axes, game in zip(panels, ENDLESS, strict=True):
            for name, style in styles(names).items():
                cells = [table.cells[game, f"{name}+{constant}"] for constant in constants]
                colour = COLOURS[style.colour]
                axes.plot([cell.mean for cell in cells], color=colour, label=name)
                for x, cell in enumerate(cells):
                    axes.plot([x] * cell.runs, cell.scores, ".", color=colour, markersize=4)
            axes.set_xticks(range(len(constants)), constants)
            axes.set_title(game)
            axes.set_xlabel("constant added to all values")
        panels[0].set_ylabel("score")
        entries = panels[0].get_legend_handles_labels()
        fig.legend(*entries, loc="outside upper center", ncols=len(names))
    return to_svg_file(fig, "Scores of six critics by the constant that was added to all values")


def minatar() -> str:
    """Learning curves of the suite `minatar`."""
    fig = learning_curves(Study(read(RESULTS / "minatar")))
    return to_svg_file(fig, "Learning curves of four critics on five MinAtar games")


def pong() -> str:
    """Runs on Pong that tell which reading of the paper learns, and how `relval` does.

    A line for each run; dotted is the mean that the paper prints.
    """
    colours = {name: COLOURS[style.colour] for name, style in styles(SHOWN).items()}

    def draw_runs(axes: Axes, found: Results, variants: Iterable[str]) -> None:
        """Their learning curves; grey, and below the others, if they are not `SHOWN`."""
        for name in variants:
            shown = name in SHOWN
            points = [p for p in found.curves if (p.env, p.variant) == ("Pong", name)]
            for _, run in groupby(points, key=lambda point: point.seed):
                curve = np.array([(point.step / 1e6, point.score) for point in run])
                axes.plot(
                    *curve.T,
                    color=colours[name] if shown else "#aaaaaa",
                    label=name if shown else "others",
                    linewidth=1.2,
                    zorder=2.0 if shown else 1.5,
                )
        axes.set_xlabel("million steps")

    with figure(7.2, 3.0) as fig:
        panels = fig.subplots(1, 3, sharey=True)
        readings, whole, fresh = (read(RESULTS / name) for name in ("readings", "atari", "pong"))
        draw_runs(panels[0], readings, readings.variants)
        panels[0].set_title("readings of the paper")
        panels[0].set_ylabel("score")
        draw_runs(panels[1], whole, ("paper", "weight-0.3", "absolute", "relval"))
        printed, _ = printed_scores(whole.suite)["Pong", "paper"]
        panels[1].axhline(printed, color=colours["paper"], linestyle=":")
        panels[1].set_title("at full length")
        draw_runs(panels[2], fresh, fresh.variants)
        panels[2].set_title("fresh seeds")
        lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
        names = [*SHOWN, "others"]
        fig.legend(
            [lines[name] for name in names],
            names,
            loc="outside upper center",
            ncols=len(names),
            columnspacing=1.2,
            handlelength=1.2,
        )
    return to_svg_file(fig, "Learning curves on Pong, of the readings, at full length, fresh seeds")


PICTURES = {
    f"{draw.__name__.replace('_', '-')}.svg": draw
    for draw in (relative_values, gauge, minatar, pong)
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
