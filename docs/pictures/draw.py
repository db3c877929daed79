"""Draws the pictures of the documentation: `python docs/pictures/draw.py`."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from relval.experiments.figures import COLOURS, figure, styles, to_svg_file
from relval.experiments.report import Study, learning_curves
from relval.experiments.results import printed_scores, read
from relval.experiments.suites import suite
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
    """Every stored run on Pong that tells which reading of the paper learns, and how `relval` does.

    A line for each run; dotted is the mean that the paper prints.
    """
    with figure(7.2, 3.0) as fig:
        readings, whole, fresh = fig.subplots(1, 3, sharey=True)
        draw_runs(readings, "readings", read(RESULTS / "readings").variants)
        readings.set_title("readings of the paper")
        draw_runs(whole, "atari", ("paper", "weight-0.3", "absolute", "relval"))
        printed, _ = printed_scores(suite("atari"))["Pong", "paper"]
        whole.axhline(printed, color=COLOURS[styles(SHOWN)["paper"].colour], linestyle=":")
        whole.set_title("at full length")
        draw_runs(fresh, "pong", ("absolute", "relval"))
        fresh.set_title("fresh seeds")
        readings.set_ylabel("score")
        entries = {
            name: line
            for axes in (readings, whole, fresh)
            for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        names = [*SHOWN, "others"]
        fig.legend(
            [entries[name] for name in names],
            names,
            loc="outside upper center",
            ncols=len(names),
            columnspacing=1.2,
            handlelength=1.2,
        )
    return to_svg_file(fig, "Learning curves on Pong, of the readings, at full length, fresh seeds")


def draw_runs(axes: Axes, sweep: str, variants: Iterable[str]) -> None:
    """The learning curves of a sweep's runs on Pong; grey, and below, if they are not `SHOWN`."""
    found, looks = read(RESULTS / sweep), styles(SHOWN)
    for name in variants:
        points = [p for p in found.curves if (p.env, p.variant) == ("Pong", name)]
        if name in SHOWN:
            label, colour, above = name, COLOURS[looks[name].colour], 2.0
        else:
            label, colour, above = "others", "#aaaaaa", 1.5
        for _, run in groupby(points, key=lambda point: point.seed):
            steps, scores = zip(*((point.step / 1e6, point.score) for point in run), strict=True)
            axes.plot(steps, scores, color=colour, label=label, linewidth=1.2, zorder=above)
    axes.set_xlabel("million steps")


PICTURES = {
    f"{draw.__name__.replace('_', '-')}.svg": draw
    for draw in (relative_values, gauge, minatar, pong)
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
