"""The exhibits as one self-contained page."""

import re
from html import escape

from relval.experiments.theory.exhibit import Check, Exhibit, Table

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #667; --paper: #fff; --line: #d8dce2;
  --good: #157f4c; --bad: #c62828; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e6ea; --quiet: #9aa4b0; --paper: #14171b;
  --line: #333a43; --good: #4cc38a; --bad: #ff7b72; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 50rem; padding: 2rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.6 system-ui, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 3.5rem 0 0; }
.source { color: var(--quiet); font-size: .9rem; margin: .1rem 0 .8rem; }
.verdict, .good { color: var(--good); } .bad { color: var(--bad); }
svg { display: block; width: 100%; height: auto; margin: 1rem 0; }
sub, sup { line-height: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums;
  width: 100%; margin: 1rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
th { color: var(--quiet); font-weight: 500; }
"""


def render(exhibits: list[Exhibit], version: str) -> str:
    """The page, in HTML."""
    checks = [check for exhibit in exhibits for check in exhibit.checks]
    held = sum(check.holds for check in checks)
    verdict = "verdict" if held == len(checks) else "bad"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Relative values: the theory at work</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Relative values: the theory at work</h1>
<p>What the paper predicts about value differences, beside what <code>relval</code>
{escape(version)} computes on decision processes small enough to enumerate: nothing here is sampled
or fitted, and both numbers must agree to rounding.</p>
<p class="{verdict}"><strong>{held} of {len(checks)} numbers agree with the theory.</strong></p>
{"".join(map(_section, exhibits))}
</body>
</html>
"""


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
    """Text with `x_t`, `x_{a<b}`, `x^n` and `x^(a−b)` set as indices and exponents."""
    text = re.sub(r"_(\w)|_\{(.*?)\}", lambda m: f"<sub>{m[1] or m[2]}</sub>", escape(text))
    return re.sub(r"\^(\w)|\^\((.*?)\)", lambda m: f"<sup>{m[1] or m[2]}</sup>", text)
