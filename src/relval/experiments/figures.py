"""One look for all pictures: vector graphics that follow the page's colours, light or dark."""

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

COLOURS = (
    *("#0f7fc0", "#e0702a", "#1fa37a", "#c05f9f", "#c99a1e"),
    *("#8464d8", "#d8365a", "#17b0c4", "#858f99", "#7fa81c"),
)
"""Legible on white and on near-black; colour-blind eyes tell the first five apart. Pages have the
same ones, `--c0` and so on, lighter or darker."""
_DASHES = ((), (6, 3), (2, 2), (8, 2, 2, 2))
_OWN = ("absolute", "relative")
"""Variants that have the first colours to themselves, in all pictures."""

_INK = "#010203"  # Stands for the text colour of the page.

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": _INK,
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "grid.alpha": 0.15,
    "grid.color": _INK,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "relval",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


@dataclass(frozen=True)
class Style:
    """How a variant's line looks."""

    colour: int
    """Its place in `COLOURS`."""
    dashes: tuple[int, ...]
    """Lengths of strokes and gaps; none where the line is whole."""


def styles(variants: Iterable[str]) -> dict[str, Style]:
    """How each variant's line looks, with dashes where colours repeat."""
    found = {name: Style(place, _DASHES[0]) for place, name in enumerate(_OWN)}
    free = len(COLOURS) - len(_OWN)
    for place, name in enumerate(name for name in variants if name not in _OWN):
        dashes = _DASHES[place // free % len(_DASHES)]
        found[name] = Style(len(_OWN) + place % free, dashes)
    return found


@contextmanager
def figure(width: float = 7.2, height: float = 3.0) -> Iterator[Figure]:
    """A new figure; what is drawn inside the `with` block has the common look."""
    with mpl.rc_context(_STYLE):
        yield Figure(figsize=(width, height))


def to_svg(fig: Figure, description: str) -> str:
    """The figure as an SVG element to be set into a page, described for who cannot see it."""
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1)


def to_svg_file(fig: Figure, description: str) -> str:
    """The same as a file of its own, which no page lends a colour: in a grey that suits any."""
    return to_svg(fig, description).replace("currentColor", "#777777")
