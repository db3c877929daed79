"""Scores game by game and variant by variant, for reading: Markdown, LaTeX, CSV."""

import csv
import io
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relval._statistics import mean_and_margin
from relval.experiments.results import DIAGNOSTICS, Diagnosis, Results, printed_scores

_COLUMNS = 6
"""Variants that fit side by side."""


@dataclass(frozen=True)
class Cell:
    """What a variant reached on a game."""

    scores: tuple[float, ...]
    """Of finished runs in which an episode ended, seed by seed."""
    runs: int
    """How many have finished."""
    expected: int
    """How many there should be."""
    printed: tuple[float, float] | None = None
    """The paper's mean and standard deviation."""

    @property
    def mean(self) -> float:
        """The mean score; NaN without a run."""
        return self.mean_and_margin[0]

    @property
    def mean_and_margin(self) -> tuple[float, float]:
        """The mean, and half its 95% interval."""
        return mean_and_margin(self.scores) if self.scores else (math.nan, math.nan)


@dataclass(frozen=True)
class Comparison:
    """A table: a row for each game, a cell for each variant that has a run."""

    variants: tuple[str, ...]
    games: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    """By game and variant."""
    note: str
    """What the numbers are."""

    def best(self, game: str) -> set[str]:
        """The variants with the highest mean score on a game; none where there is one only."""
        means = {name: self.cells[game, name].mean for name in self.variants}
        known = {name: mean for name, mean in means.items() if not math.isnan(mean)}
        if len(known) < 2:
            return set()
        return {name for name, mean in known.items() if mean == max(known.values())}

    @property
    def wins(self) -> dict[str, int]:
        """On how many games each variant is the best."""
        return {name: sum(name in self.best(game) for game in self.games) for name in self.variants}


def compare(results: Results) -> Comparison:
    """The results as a table."""
    printed = printed_scores(results.suite)
    variants = results.variants
    return Comparison(
        variants,
        results.games,
        {
            (game, name): Cell(
                tuple(s for s in results.of(game, name) if not math.isnan(s)),
                len(results.of(game, name)),
                len(results.suite.seeds),
                printed.get((game, name)),
            )
            for game in results.games
            for name in variants
        },
        _note(results),
    )


def _note(results: Results) -> str:
    """What the numbers are."""
    if results.only_printed:
        return "Mean scores as the paper prints them."
    counts = Counter((score.env, score.variant) for score in results.scores)
    fewest, most = min(counts.values(), default=0), max(counts.values(), default=0)
    seeds = f"{most} seed{'s' * (most != 1)}" if fewest == most else f"{fewest} to {most} seeds"
    interval = ", ± half a 95% interval (Student's t)" if most > 1 else ""
    steps = f"{results.suite.total_steps:,}"
    return f"Mean score of the last 100 episodes after {steps} steps, {seeds}{interval}."


def markdown(table: Comparison) -> str:
    """The table in Markdown: means with margins, the single seeds in brackets, the best in bold.

    Many variants have a row each, in place of a column.
    """
    games, variants = table.games, table.variants
    if len(variants) > _COLUMNS:
        header = ["", *games]
        rows = [[name, *(_entry(table, game, name) for game in games)] for name in variants]
    else:
        header = ["", *variants]
        rows = [[game, *(_entry(table, game, name) for name in variants)] for game in games]
    bold = " The highest mean is bold." if any(table.wins.values()) else ""
    return _markdown(header, rows) + f"\n{table.note}{bold}\n"


def _entry(table: Comparison, game: str, variant: str) -> str:
    cell = table.cells[game, variant]
    text = shown(cell)
    if variant in table.best(game):
        text = f"**{text}**"
    if len(cell.scores) > 1:
        text += f" ({', '.join(map(number, cell.scores))})"
    return text


def diagnosed(results: Results, game: str) -> list[list[str]]:
    """What was logged about critics on a game, as a header and a row for each variant.

    Means over seeds, in the last fifth of each run.
    """
    last: dict[tuple[str, int], Diagnosis] = {}
    for row in results.diagnoses:
        if row.env == game:
            last[row.variant, row.seed] = row
    means = {
        variant: [statistics.fmean(getattr(row, name) for row in runs) for name in DIAGNOSTICS]
        for variant in results.variants
        if (runs := [row for (name, _), row in last.items() if name == variant])
    }
    known = [
        k for k in range(len(DIAGNOSTICS)) if not all(math.isnan(x[k]) for x in means.values())
    ]
    header = ["", *(DIAGNOSTICS[k].replace("_", " ") for k in known)]
    rows = [
        [variant, *("" if math.isnan(row[k]) else f"{row[k]:.3g}" for k in known)]
        for variant, row in means.items()
    ]
    return [header, *rows]


def diagnosed_markdown(results: Results, game: str) -> str:
    """The same in Markdown."""
    header, *rows = diagnosed(results, game)
    return _markdown(header, rows)


def reached(results: Results, score: float) -> str:
    """After how many steps runs first had a score, in Markdown, as exactly as curves are stored."""
    first: dict[tuple[str, str, int], int | None] = {}
    for point in results.curves:
        run = point.env, point.variant, point.seed
        if first.setdefault(run) is None and point.score >= score:
            first[run] = point.step
    rows = []
    for game in results.games:
        cells = [
            _first_steps([step for (*of, _), step in first.items() if of == [game, variant]])
            for variant in results.variants
        ]
        rows.append([game, *cells])
    note = (
        f"Steps until a score of {score:g}: the mean, ± half a 95% interval (Student's t), or how "
        "many runs had it, and those of each seed."
    )
    return _markdown(["", *results.variants], rows) + f"\n{note}\n"


def _first_steps(steps: Sequence[int | None]) -> str:
    """Their mean and the single ones; where one never came, how many did."""
    if not steps:
        return "-"
    known = [step for step in steps if step is not None]
    single = ", ".join("-" if step is None else f"{step:,}" for step in steps)
    if len(known) < len(steps):
        return f"{len(known)} of {len(steps)}" + (f" ({single})" if known else "")
    if len(known) == 1:
        return single
    mean, margin = mean_and_margin(known)
    return f"{mean:,.0f} ± {margin:,.0f} ({single})"


def latex(table: Comparison) -> str:
    """The table as a LaTeX `tabular`, the best in bold; it needs the package booktabs."""
    rows = [" & ".join(["", *table.variants]) + r" \\ \midrule"]
    for game in table.games:
        cells = [game]
        for name in table.variants:
            text = shown(table.cells[game, name]).replace("±", r"\pm").replace(",", "{,}")
            cells.append(rf"$\mathbf{{{text}}}$" if name in table.best(game) else f"${text}$")
        rows.append(" & ".join(cells) + r" \\")
    body = "\n".join(rows)
    columns = "l" + "r" * len(table.variants)
    return (
        f"% {table.note}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n"
    )


def comma_separated(table: Comparison) -> str:
    """The table as CSV, a row for each game and variant, beside the paper's numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["game", "variant", "mean", "margin", "runs", "paper_mean", "paper_std"])
    for (game, name), cell in table.cells.items():
        numbers = [x if math.isfinite(x) else "" for x in cell.mean_and_margin]
        writer.writerow([game, name, *numbers, cell.runs, *(cell.printed or ("", ""))])
    return text.getvalue()


def shown(cell: Cell) -> str:
    """A mean with its margin, as far as there are runs."""
    mean, margin = cell.mean_and_margin
    if math.isnan(mean):
        return "no episode ended" if cell.runs else "-"
    if math.isinf(margin):
        return number(mean)
    return f"{number(mean)} ± {number(margin)}"


def number(value: float) -> str:
    """A score with as many decimals as say something."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    lines.insert(1, "|---" * len(header) + "|")
    return "\n".join(lines) + "\n"
