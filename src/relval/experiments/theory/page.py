"""The exhibits as one self-contained page."""

import re
from html import escape

from relval._page import page, prose
from relval.experiments.theory.exhibit import Check, Exhibit, Table


def render(exhibits: list[Exhibit]) -> str:
    """The page, in HTML."""
    checks = [check for exhibit in exhibits for check in exhibit.checks]
    held = sum(check.holds for check in checks)
    verdict = "good" if held == len(checks) else "bad"
    opening = f"""<h1>Relative values: the theory at work</h1>
<p>What the paper predicts about value differences, beside what <code>relval</code> computes on
decision processes small enough to enumerate: nothing here is sampled or fitted, and both numbers
must agree to rounding.</p>
<p class="{verdict}"><strong>{held} of {len(checks)} numbers agree with the theory.</strong></p>"""
    return page(
        "Relative values: the theory at work",
        [opening, *map(_section, exhibits)],
        package="relval.experiments.theory",
    )


def _section(exhibit: Exhibit) -> str:
    return f"""
<section>
<h2>{escape(exhibit.title)}</h2>
<p class="source">{escape(exhibit.source)}</p>
<p>{_mathematics(exhibit.story)}</p>
{exhibit.picture or ""}
{_data_table(exhibit.table) if exhibit.table else ""}
{_check_table(exhibit.checks)}
</section>
"""


def _data_table(table: Table) -> str:
    return _table(table.header, [[_mathematics(name), *numbers] for name, numbers in table.rows])


def _check_table(checks: list[Check]) -> str:
    rows = [
        [
            _mathematics(check.label),
            f"{check.measured:.6g}",
            f"{check.relation} {check.predicted:.6g}",
            '<span class="good">✓</span>' if check.holds else '<span class="bad">✗ off</span>',
        ]
        for check in checks
    ]
    return _table(["computed", "predicted", ""], rows)


def _table(header: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{cell}</th>" for cell in ["", *header])
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _mathematics(text: str) -> str:
    """Text with `x_t`, `x_{a<b}`, `x^n` and `x^(a−b)` set as indices and exponents, and names."""
    text = re.sub(r"_(\w)|_\{(.*?)\}", lambda m: f"<sub>{m[1] or m[2]}</sub>", prose(text))
    return re.sub(r"\^(\w)|\^\((.*?)\)", lambda m: f"<sup>{m[1] or m[2]}</sup>", text)
