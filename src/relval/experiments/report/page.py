"""The page itself: HTML that needs nothing beside it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from html import escape
from typing import Any
from urllib.parse import quote

from relval._page import facts, page, short
from relval.experiments.figures import styles
from relval.experiments.report.study import Curves, Study
from relval.experiments.results import Results, Score, Tree
from relval.experiments.scores import Interval
from relval.experiments.tables import Cell, Comparison, diagnosed, number, shown
from relval.runs.display import duration

_LEGEND = '<nav class="legend" aria-label="variants"></nav>'
_SHORT = 12
"""Letters of a name that leave room for intervals in a small picture."""

Charts = dict[str, dict[str, Any]]
"""What the page's script draws, by the name that a figure asks for it with."""


@dataclass(frozen=True)
class _Section:
    """A part of a page, whose pictures show the same variants."""

    anchor: str
    """Where links lead to it."""
    told: Sequence[str]
    """HTML; what is empty is left out."""
    variants: Sequence[str]
    charts: Charts

    @property
    def html(self) -> str:
        """All of it."""
        told = "\n".join(part for part in self.told if part)
        return f'<section class="study" id="{self.anchor}">\n{told}\n</section>'

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        looks = styles(self.variants)
        drawn = [
            {
                "name": name,
                "colour": looks[name].colour,
                "dashes": " ".join(map(str, looks[name].dashes)),
            }
            for name in self.variants
        ]
        return {"variants": drawn, "charts": self.charts}


@dataclass(frozen=True)
class Part:
    """What a page tells about one study."""

    title: str
    study: Study
    table: Comparison


def render(parts: Sequence[Part]) -> str:
    """The page about finished runs, of one study or of several, one after the other."""
    title = f"{', '.join(part.title for part in parts)}: relative values"
    anchors = _anchors([part.title for part in parts])
    contents = [_contents(parts, anchors)] if len(parts) > 1 else []
    sections = [_section(part, anchor) for part, anchor in zip(parts, anchors, strict=True)]
    return _page(title, contents, sections)


def _anchors(titles: Sequence[str]) -> list[str]:
    """Titles as links name them, numbered where two are alike."""
    names = [re.sub(r"[^\w-]+", "-", title) for title in titles]
    return [
        name if names.count(name) == 1 else f"{name}-{place}"
        for place, name in enumerate(names, start=1)
    ]


def _contents(parts: Sequence[Part], anchors: Sequence[str]) -> str:
    """What there is on a page about several studies."""
    entries = (
        f'<li><a href="#{anchor}">{escape(part.title)}</a>: '
        f"{escape(part.study.results.suite.summary)} "
        f"({_runs_in_words(part.study.results.scores)})</li>"
        for part, anchor in zip(parts, anchors, strict=True)
    )
    runs = sum(len(part.study.results.scores) for part in parts)
    return f"<h1>{runs:,} runs in {len(parts)} studies</h1><ul>{''.join(entries)}</ul>"


def _section(part: Part, anchor: str) -> _Section:
    study, table = part.study, part.table
    suite, charts = study.results.suite, Charts()
    cites = f" In the paper: {escape(suite.cites)}." if suite.cites else ""
    told = [
        f"<h1>{escape(part.title)}</h1>",
        f"<p>{escape(_sentence(suite.summary))}{cites}</p>",
        _facts(study),
        _findings(study, table),
        _LEGEND,
        _aggregates(study, charts),
        _profiles(study, charts),
        _games(study.results, table),
        _learning_curves(study, charts),
        _diagnostics(study.results),
        _cost(study),
        _settings(study.results.settings),
        _origins(study.results.provenance),
        _runs(study.results.scores),
        _about_intervals(study),
    ]
    return _Section(anchor, told, study.variants, charts)


def render_printed(study: Study, table: Comparison) -> str:
    """The page about the numbers that the paper prints."""
    charts = Charts()
    games = len(table.games)
    wins = (
        "relative has a higher mean than absolute on "
        f"{_above(table, 'relative', 'absolute', table.games)} of {games} games (the paper's text "
        f"says 30), and than dae on {_above(table, 'relative', 'dae', table.games)} (37)"
    )
    told = [
        "<h1>The paper's own numbers</h1>",
        "<p>The aggregate figure of Relative Value Learning (Höftmann, Robine and Harmeling, ICLR "
        "2026), from the means that its Table 1 prints: 49 games, 40M frames. <strong>Only mean "
        "scores are printed, not single runs: there are no intervals here, and IQM and optimality "
        "gap are over the means of games.</strong></p>",
        f"<p>{escape(wins)}.</p>",
        _LEGEND,
        _aggregates(study, charts),
        _games(study.results, table),
    ]
    section = _Section("paper", told, study.variants, charts)
    return _page("Relative Value Learning: the paper's numbers", [], [section])


def _page(title: str, contents: Iterable[str], sections: Sequence[_Section]) -> str:
    data = [section.data for section in sections]
    told = [*contents, *(section.html for section in sections)]
    return page(title, told, data, package=__package__)


# The top


def _facts(study: Study) -> str:
    results = study.results
    suite = results.suite
    done, wanted = len(results.scores), len(suite.envs) * len(suite.variants) * len(suite.seeds)
    envs = len({score.env for score in results.scores})
    seeds = len({score.seed for score in results.scores})
    return facts(
        {
            "runs finished": f"{done} of {wanted}" if done < wanted else f"{done}",
            "environment" if envs == 1 else "environments": f"{envs}",
            "seed" if seeds == 1 else "seeds": f"{seeds}",
            "steps a run": f"{suite.total_steps:,}",
        }
    )


def _findings(study: Study, table: Comparison) -> str:
    """What the numbers say, in sentences."""
    said = []
    if study.improvements and not study.enough_seeds:
        others = ", ".join(f"<strong>{escape(name)}</strong>" for name in study.improvements)
        said.append(f"So few runs do not tell {others} from {escape(study.baseline)} yet.")
    for name, chance in study.improvements.items() if study.enough_seeds else ():
        above = _above(table, name, study.baseline, study.shared)
        if chance.low > 0.5:
            verdict = f"better than {study.baseline}"
        elif chance.high < 0.5:
            verdict = f"worse than {study.baseline}"
        else:
            verdict = f"not to be told from {study.baseline}"
        said.append(
            f"<strong>{escape(name)}</strong> is {escape(verdict)}: a run of it beats one of "
            f"{escape(study.baseline)} on the same game with probability {chance.value:.2f} (95%: "
            f"{chance.low:.2f} to {chance.high:.2f}), and its mean is the higher one on {above} of "
            f"{len(study.shared)} games."
        )
    missing = [v.name for v in study.results.suite.variants if v.name not in study.variants]
    if missing:
        said.append(f"No run has finished yet of: {escape(', '.join(missing))}.")
    return f"<ul>{''.join(f'<li>{sentence}</li>' for sentence in said)}</ul>" if said else ""


def _above(table: Comparison, name: str, other: str, games: Iterable[str]) -> int:
    """On how many games one variant's mean is above another's."""
    return sum(table.cells[game, name].mean > table.cells[game, other].mean for game in games)


# Pictures


def _aggregates(study: Study, charts: Charts) -> str:
    if len(study.results.games) == 1:
        return ""
    if not study.aggregates:
        return (
            "<h2>All games together</h2><p>Not two games have a run of every variant yet, so there "
            "is nothing to put together.</p>"
        )
    figures = []
    for aggregate, rows in study.aggregates.items():
        is_gap = aggregate == "optimality gap"
        direction = "less is better" if is_gap else "more is better"
        triples = {name: _triple(row) for name, row in rows.items()}
        figures.append(
            _figure(
                charts,
                f"aggregate {aggregate}",
                f"{aggregate}, {direction}",
                {"rows": triples, "mark": None, "axis": "gap" if is_gap else "score"},
                kind="intervals",
            )
        )
    if study.improvements:
        chances = {name: _triple(chance) for name, chance in study.improvements.items()}
        figures.append(
            _figure(
                charts,
                "improvement",
                f"Probability to beat {study.baseline}",
                {"rows": chances, "mark": 0.5, "axis": "chance"},
                kind="intervals",
            )
        )
    scale = (
        "Scores are human-normalised: 0 is random play, 1 a human."
        if study.results.by_humans
        else "On each game 0 is the worst of these runs and 1 the best."
    )
    bars = "" if study.results.only_printed else " Bars are 95% intervals."
    games = len(study.shared)
    over = "1 game" if games == 1 else f"{games} games"
    left_out = len(study.results.games) - games
    lack, are = ("lacks", "is") if left_out == 1 else ("lack", "are")
    but = f" ({left_out} {lack} a run of some variant, and {are} left out)" if left_out else ""
    size = " small" if max(map(len, study.variants)) <= _SHORT else ""
    return (
        f'<h2>All games together</h2><p class="quiet">Over {over}{but}. {scale}{bars}</p>'
        f'<div class="pictures{size}">{"".join(figures)}</div>'
    )


def _profiles(study: Study, charts: Charts) -> str:
    figures = []
    if study.profiles is not None:
        chart = _lines(study.profiles, "normalised score")
        figures.append(_figure(charts, "profile", "Share of runs above a score", chart))
    if study.efficiency is not None:
        chart = _lines(study.efficiency, "steps")
        figures.append(_figure(charts, "efficiency", "IQM while learning", chart))
    if not figures:
        return ""
    return f'<div class="pictures wide">{"".join(figures)}</div>'


def _learning_curves(study: Study, charts: Charts) -> str:
    if not study.results.curves:
        return ""
    figures = [
        _figure(charts, f"curve {game}", game, _lines(study.curves(game), "steps"))
        for game in study.results.games
        if any(study.results.of(game, name) for name in study.variants)
    ]
    return (
        '<h2>Learning curves</h2><p class="quiet">Score, the mean of the last 100 episodes; mean '
        "over seeds, with its 95% interval as a band where there are three or more. Point to read, "
        f'drag to zoom, double-click to see all.</p><div class="pictures">{"".join(figures)}</div>'
    )


def _figure(
    charts: Charts, name: str, title: str, chart: Mapping[str, Any], kind: str = "lines"
) -> str:
    charts[name] = {"label": title, **chart}
    return f'<figure class="{kind}" data-chart="{escape(name)}"><h3>{escape(title)}</h3></figure>'


def _lines(curves: Curves, x_label: str) -> dict[str, Any]:
    return {
        "x": [short(x) for x in curves.x.tolist()],
        "x_label": x_label,
        "lines": {
            name: [point and _triple(point) for point in line]
            for name, line in curves.lines.items()
        },
    }


def _triple(interval: Interval) -> list[float]:
    return [short(x) for x in (interval.value, interval.low, interval.high)]


# Tables


def _games(results: Results, table: Comparison) -> str:
    against_paper = any(cell.printed for cell in table.cells.values())
    rows = []
    for game in table.games:
        best = table.best(game)
        cells = "".join(
            _game_cell(table.cells[game, name], name in best, only_printed=results.only_printed)
            for name in table.variants
        )
        rows.append(f'<tr><th scope="row">{escape(game)}</th>{cells}</tr>')
    wins = "".join(f"<td>{count}</td>" for count in table.wins.values())
    foot = f"<tfoot><tr><td>best on</td>{wins}</tr></tfoot>" if len(table.variants) > 1 else ""
    note = table.note
    if results.only_printed:
        note = "Means and standard deviations as printed."
    elif against_paper:
        note += " Under each the paper's mean and standard deviation."
    return (
        f'<h2>Game by game</h2><p class="quiet">{escape(note)} The best mean is in bold.</p>'
        '<div class="scroll"><table class="games">'
        f"<thead><tr>{_cells(['', *table.variants], 'th')}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody>{foot}</table></div>"
    )


def _game_cell(cell: Cell, best: bool, *, only_printed: bool) -> str:
    mark = ' class="best"' if best else ""
    printed = f"{number(cell.printed[0])} ± {number(cell.printed[1])}" if cell.printed else ""
    if only_printed:
        return f"<td{mark}>{printed}</td>"
    few = f"<small>{cell.runs} of {cell.expected} runs</small>" if cell.runs < cell.expected else ""
    paper = f"<small>paper {printed}</small>" if printed else ""
    return f"<td{mark}>{shown(cell)}{few}{paper}</td>"


def _diagnostics(results: Results) -> str:
    """What runs logged about their critics, game by game."""
    tables = {game: diagnosed(results, game) for game in results.games}
    parts = [
        f"<details><summary>{escape(game)}</summary>{_table(header, rows)}</details>"
        for game, (header, *rows) in tables.items()
        if rows
    ]
    if not parts:
        return ""
    return (
        '<h2>Inside the critics</h2><p class="quiet">Means over seeds, in the last fifth of each '
        f"run.</p>{''.join(parts)}"
    )


def _cost(study: Study) -> str:
    machines = {
        name: _machine(answer) for answer in study.results.provenance for name in answer["runs"]
    }
    groups: dict[tuple[str, str], list[Score]] = {}
    for score in study.results.scores:
        machine = machines.get(f"{score.env}/{score.variant}/{score.seed}", "not known")
        groups.setdefault((score.variant, machine), []).append(score)
    rows = []
    for (variant, machine), scores in groups.items():
        seconds = sum(score.seconds for score in scores) or 0.1  # which is how they are rounded
        speed = sum(score.steps for score in scores) / seconds
        rows.append(
            [
                variant,
                machine,
                len(scores),
                f"{speed:,.0f}",
                duration(seconds / len(scores)),
                duration(seconds),
            ]
        )
    header = ["variant", "machine", "runs", "steps/s of a run", "a run", "all runs"]
    return (
        '<h2>Throughput and cost</h2><p class="quiet">Wall-clock time; several runs may have '
        f"shared the machine.</p>{_table(header, rows)}"
    )


def _machine(answer: Tree) -> str:
    hardware = answer["hardware"]
    here = f"{hardware['gpu'] or hardware['cpu']}, {hardware['cores']} cores"
    later = (
        f"; from step {part['from_step']:,} on {_machine(part)}"
        for part in answer.get("continued", ())
    )
    return here + "".join(later)


def _settings(settings: Sequence[Tree]) -> str:
    """Which settings differ between groups of runs, and all of them."""
    if not settings:
        return ""
    flat = [dict(_flat(tree)) for tree in settings]
    names = _group_names([tree["runs"] for tree in settings])
    keys = list(dict.fromkeys(key for tree in flat for key in tree if key != "runs"))
    differing = [key for key in keys if len({str(tree.get(key, "")) for tree in flat}) > 1]
    rows = [[key, *(str(tree.get(key, "")) for tree in flat)] for key in differing]
    every = "".join(
        f"<details><summary>{escape(name)}: every setting</summary><pre>"
        + escape("\n".join(f"{key}: {tree[key]}" for key in keys if key in tree))
        + "</pre></details>"
        for name, tree in zip(names, flat, strict=True)
    )
    comparison = f"<p>Where runs differ:</p>{_table(['', *names], rows)}" if rows else ""
    return f"<h2>Settings</h2>{comparison}{every}"


def _flat(tree: Tree, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _group_names(groups: Sequence[Sequence[str]]) -> list[str]:
    """The variants of each group of runs; where others have the same, environments, then seeds."""

    def parts(which: int) -> list[str]:
        return [", ".join(dict.fromkeys(run.split("/")[which] for run in runs)) for runs in groups]

    names = parts(1)
    seeds = [f"seeds {numbers}" if "," in numbers else f"seed {numbers}" for numbers in parts(2)]
    for more in (parts(0), seeds):
        names = [
            f"{name}, {told}" if names.count(name) > 1 else name
            for name, told in zip(names, more, strict=True)
        ]
    return names


def _origins(provenance: Sequence[Tree]) -> str:
    """Versions, commits and machines."""
    if not provenance:
        return ""
    rows = []
    for answer in provenance:
        git = answer.get("git") or {}
        commit = (git.get("commit") or "not known")[:10]
        changed = " with changes" if git.get("changed") else ""
        versions = ", ".join(f"{name} {version}" for name, version in answer["versions"].items())
        rows.append([_runs_in_words(answer["runs"]), commit + changed, _machine(answer), versions])
    listed = "".join(
        f"<details><summary>Which: {_runs_in_words(answer['runs'])}</summary>"
        f"<pre>{escape(chr(10).join(answer['runs']))}</pre></details>"
        for answer in provenance
        if len(provenance) > 1
    )
    table = _table(["", "commit", "machine", "versions"], rows, name="origins")
    return f"<h2>Versions and machines</h2>{table}{listed}"


def _runs(scores: Sequence[Score]) -> str:
    header = [field.name for field in fields(Score)]
    lines = [header, *(list(map(str, astuple(score))) for score in scores)]
    raw = "\n".join(",".join(line) for line in lines) + "\n"
    return (
        "<h2>All runs</h2>"
        f'<p><a download="scores.csv" href="data:text/csv;charset=utf-8,{quote(raw)}">Download the '
        f"raw table</a> ({_runs_in_words(scores)}, CSV).</p>"
        f"<details><summary>Show it</summary>{_table(header, lines[1:])}</details>"
    )


def _about_intervals(study: Study) -> str:
    about = (
        "<h2>About the intervals</h2><p>Those of single games are Student's. Those of aggregates "
        "and of the probability to beat another are stratified bootstrap intervals by percentiles "
        "(Agarwal et al., 2021): seeds are drawn anew within each game. <strong>With few seeds "
        "they are too narrow.</strong>"
    )
    if not study.coverage:
        return f"{about}</p>"
    rows = [
        [f"{seeds} seeds", *(f"{100 * share:.0f}%" for share in shares.values()), "95%"]
        for seeds, shares in study.coverage.items()
    ]
    header = ["", *next(iter(study.coverage.values())), "promised"]
    return (
        f"{about} So often they cover the truth in simulated studies of this kind:</p>"
        f"{_table(header, rows, name='coverage')}"
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]], name: str | None = None) -> str:
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    mark = f' class="{name}"' if name else ""
    return (
        f'<div class="scroll"><table{mark}><thead><tr>{_cells(header, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(values: Iterable[Any], kind: str) -> str:
    return "".join(f"<{kind}>{escape(str(value))}</{kind}>" for value in values)


def _runs_in_words(runs: Sequence[Any]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
