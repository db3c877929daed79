"""What the documents say is true."""

import re
from pathlib import Path

import pytest

from relval.experiments import results, tables

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in blocks(path, "python"):
        exec(block, scope)


def test_the_readme_has_exactly_two_commands() -> None:
    (shell,) = blocks(ROOT / "README.md", "sh")
    commands = [line.split("#")[0].strip() for line in shell.splitlines()]
    assert commands == ["make demo", "make test"]


def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"


@pytest.mark.parametrize("table", sorted((ROOT / "results").glob("*/table.md")), ids=str)
def test_tables_are_those_of_the_stored_results(table: Path) -> None:
    text = table.read_text(encoding="utf-8")
    assert any(text in document.read_text(encoding="utf-8") for document in DOCUMENTS)


def test_diagnostics_are_those_of_the_stored_results() -> None:
    stored = results.read(ROOT / "results/readings")
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    for game in {row.env for row in stored.diagnoses}:
        assert tables.diagnosed_markdown(stored, game) in text
