"""Pages that open from disk and need nothing beside them."""

import json
import re
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from relval import __version__


def page(title: str, sections: Iterable[str], data: Any = None, *, package: str) -> str:
    """The whole HTML, with style, script and numbers in it.

    Args:
      title: Of the window.
      sections: HTML; empty ones are left out.
      data: What the script finds as `data`; without any there is no script.
      package: Where `page.css` and `page.js` lie that follow those of all pages.
    """
    body = "\n".join(section for section in sections if section)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{_assets("page.css", package)}</style>
</head>
<body>
<main>
{body}
</main>
<footer>Made by relval {escape(__version__)}.</footer>
{"" if data is None else _script(data, package)}</body>
</html>
"""


def _script(data: Any, package: str) -> str:
    numbers = json.dumps(data, allow_nan=False, separators=(",", ":"))
    numbers = numbers.replace("<", "\\u003c")  # nothing in it may end the script
    return f"""<noscript>The pictures need JavaScript.</noscript>
<script type="application/json" id="data">{numbers}</script>
<script>
{_assets("page.js", package)}</script>
"""


def _assets(name: str, package: str) -> str:
    """The file of all pages and that of one kind."""
    return "".join(
        (resources.files(place) / name).read_text(encoding="utf-8") for place in (__name__, package)
    )


def facts(facts: dict[str, str]) -> str:
    """Numbers at the top of a page, by what they are."""
    shown = "".join(
        f"<li><strong>{escape(what)}</strong> {escape(label)}</li>" for label, what in facts.items()
    )
    return f'<ul class="facts">{shown}</ul>'


def prose(text: str) -> str:
    """Text as HTML, with what stands in backticks as code."""
    return re.sub(r"`(.*?)`", r"<code>\1</code>", escape(text))


def short(x: float) -> float:
    """Five digits are enough for a picture."""
    return float(f"{x:.5g}")


def write(path: Path, text: str) -> None:
    """Writes a page, and the folder that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
