"""Draws the pictures of the documentation: `python docs/pictures/draw.py`."""

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
SHOWN = ("absolute", "cleanrl", "paper", "weight-0.3", "relval", "half", "half-random")
"""Of the variants on Atari, those that have a colour: the suite `atari`'s, in its order, so that
they look as in its report, and the others that learn Pong within a million steps."""
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


def full_length() -> str:
    """Learning curves of ten million steps; dotted are the means that the paper prints."""
    found = read(RESULTS / "atari")
    fig, printed = learning_curves(Study(found)), printed_scores(found.suite)
    for axes in fig.axes:
        if game := axes.get_title():  # the others are empty
            for name in ("absolute", "paper"):
                mean, _ = printed[game, name]
                axes.axhline(mean, color=_colour(name), linestyle=":", linewidth=1.2)
    return to_svg_file(fig, "Learning curves of 10M steps on Atari games, and the paper's means")


def pong() -> str:
    """Every run on Pong that tells which reading of the paper learns, or how `relval` does."""
    with figure(7.2, 3.0) as fig:
        readings, fresh = fig.subplots(1, 2, sharey=True)
        _draw_pong(readings, read(RESULTS / "readings"))
        readings.set_title("readings of the paper")
        readings.set_ylabel("score")
        _draw_pong(fresh, read(RESULTS / "pong"))
        fresh.set_title("fresh seeds")
        lines = {line.get_label(): line for axes in fig.axes for line in axes.get_lines()}
        names = [name for name in (*SHOWN, "others") if name in lines]
        fig.legend(
            [lines[name] for name in names],
            names,
            loc="outside upper center",
            ncols=len(names),
            columnspacing=1.2,
            handlelength=1.2,
        )
    return to_svg_file(fig, "Learning curves on Pong, of the readings, and on fresh seeds")


def _draw_pong(axes: Axes, found: Results) -> None:
    """A line for each run on Pong; grey, and below the others, if it is not `SHOWN`."""
    for name in found.variants:
        points = [point for point in found.curves if (point.env, point.variant) == ("Pong", name)]
        for _, run in groupby(points, key=lambda point: point.seed):
            curve = np.array([(point.step / 1e6, point.score) for point in run])
            axes.plot(
                *curve.T,
                color=_colour(name),
                label=name if name in SHOWN else "others",
                linewidth=1.2,
                zorder=2.0 if name in SHOWN else 1.5,
            )
    axes.set_xlabel("million steps")


def _colour(variant: str) -> str:
    """That of a variant on Atari, in all pictures; grey if it has none."""
    return COLOURS[styles(SHOWN)[variant].colour] if variant in SHOWN else "#aaaaaa"


PICTURES = {
    f"{draw.__name__.replace('_', '-')}.svg": draw
    for draw in (relative_values, gauge, minatar, full_length, pong)
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
