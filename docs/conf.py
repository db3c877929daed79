"""Settings of Sphinx, which makes the site: `make docs`."""

import re
import shutil
from pathlib import Path
from typing import Any

import relval

project = "relval"
author = "The relval authors"
copyright = "the relval authors"
release = relval.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["examples"]
html_theme = "furo"
html_title = "relval"
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"show-inheritance": True}

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


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _link_to_files)
    app.connect("build-finished", _copy_files)
