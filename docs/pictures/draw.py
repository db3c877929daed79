"""Draws the pictures of the documentation: `python docs/pictures/draw.py`."""

from pathlib import Path

import numpy as np

from relval.experiments.figures import figure, to_svg


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
    return to_svg(fig, "Three curves of values, and one matrix of differences")


if __name__ == "__main__":
    folder = Path(__file__).parent
    svg = relative_values().replace("currentColor", "#777777")
    (folder / "relative-values.svg").write_text(svg, encoding="utf-8")
