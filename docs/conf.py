"""Settings of Sphinx, which makes the site: `make docs`."""

import re
import shutil
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from sphinx.ext.napoleon.docstring import GoogleDocstring

import relval
from relval.critics import CRITICS
from relval.runs import Config

project = "relval"
author = "The relval authors"
copyright = "the relval authors"
release = relval.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["examples"]
smartquotes_action = "D"  # dashes alone: s' is a state, and ends no quotation
default_role = "code"  # in docstrings
html_theme = "furo"
html_title = "relval"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["relval.css"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

# A field's docstring is prose: what stands before a colon is no type.
GoogleDocstring._consume_inline_attribute = lambda self: ("", self._consume_to_end())

_ROOT = Path(__file__).parent.parent


def _link_to_files(app: Any, name: str, source: list[str]) -> None:
    """Lets links to stored results and examples lead to copies beside the pages."""
    up = "../" * name.count("/")
    source[0] = re.sub(
        r"\[([^\]]*)\]\((?:\.\./)*((?:results|examples)/[^)]*)\)",
        rf'<a href="{up}files/\2">\1</a>',
        source[0],
    )


def _copy_files(app: Any, failure: Exception | None) -> None:
    if failure is None:
        kept = shutil.ignore_patterns("runs", "locks", "journal.csv", "__pycache__")
        for folder in (_ROOT / "results", _ROOT / "docs/examples"):
            target = Path(app.outdir) / "files" / folder.name
            shutil.copytree(folder, target, ignore=kept, dirs_exist_ok=True)


def _strip_bounds() -> None:
    """Lets a setting have the type `int` where its own has the bounds that it is held to, too."""
    sections = [kind for kind in get_type_hints(Config).values() if is_dataclass(kind)]
    for kind in [Config, *sections, *(config for config, _ in CRITICS.values())]:
        for owner in (kind, kind.__init__):
            plain = get_type_hints(owner)
            owner.__annotations__ = {name: plain[name] for name in owner.__annotations__}


def setup(app: Any) -> None:
    """Called by Sphinx."""
    _strip_bounds()
    app.connect("source-read", _link_to_files)
    app.connect("build-finished", _copy_files)
