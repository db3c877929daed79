"""What the documents say is true."""

import csv
import importlib.util
import math
import re
import runpy
import shlex
import subprocess
import sys
import types
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import relval
from relval import cli, relative, runs
from relval.critics import CRITICS
from relval.experiments import results, sweep, tables
from relval.experiments.suites import Suite
from relval.runs import Config

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": path.stem}
    monkeypatch.setitem(sys.modules, path.stem, types.ModuleType(path.stem))
    known = dict(CRITICS)
    try:
        for block in blocks(path, "python"):
            exec(block, scope)
    finally:
        CRITICS.clear()  # an example registers one
        CRITICS.update(known)


def test_every_example_trains_into_a_folder_of_its_own() -> None:
    """So that all can be followed one after another, and none is refused."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    folders = re.findall(r'relval train .*--out (\S+)|relval\.train\(config, "(\S+?)"', text)
    named = [command or python for command, python in folders]
    assert len(named) > 4
    assert len(set(named)) == len(named)


def commands(path: Path) -> list[str]:
    lines = "".join(blocks(path, "sh")).splitlines()
    return [line for line in lines if line.startswith("relval ")]


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every run that a command starts be over after a small update, and a sweep after one."""
    train_as_told, sweep_as_told = runs.train_together, sweep.sweep

    def train(configs: list[Config], *args: Any, **options: Any) -> Any:
        short = [
            replace(
                config,
                total_steps=1,
                device="cpu",
                ppo=replace(config.ppo, steps=16, minibatch=32, epochs=1),
            )
            for config in configs
        ]
        return train_as_told(short, *args, **{**options, "quiet": True})

    def one_run(suite: Suite, out: Path, *, only: Suite, launcher: Any) -> bool:
        first = [only.variants[0].name]
        short = only.narrowed(
            total_steps=1, games=only.envs[:1], critics=first, seeds=only.seeds[:1]
        )
        return sweep_as_told(short, out, launcher=launcher)

    monkeypatch.setattr(runs, "train_together", train)
    monkeypatch.setattr(sweep, "sweep", one_run)


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("path", [p for p in DOCUMENTS if commands(p)], ids=lambda path: path.name)
def test_commands_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in commands(path):
        command, _, comment = line.partition("#")
        if "mujoco" in comment and importlib.util.find_spec("mujoco") is None:
            continue
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0, f"{line}: {capsys.readouterr().err}"


def test_what_the_reference_says_of_relval_can_be_had_from_it() -> None:
    text = (ROOT / "docs/api/relval.md").read_text(encoding="utf-8")
    listed = re.findall(r"auto\w+:: (\w+)$", text, re.MULTILINE)
    assert {*listed, "relative"} == set(relval.__all__)
    for name in listed:
        assert getattr(relval, name) is getattr(runs, name)


def test_the_readme_has_exactly_two_commands() -> None:
    (shell,) = blocks(ROOT / "README.md", "sh")
    commands = [line.split("#")[0].strip() for line in shell.splitlines()]
    assert commands == ["make demo", "make test"]


with_results = pytest.mark.skipif(
    not (ROOT / "results").exists(), reason="a source distribution brings no results"
)


@with_results
def test_links_lead_somewhere() -> None:
    for path in DOCUMENTS:
        links = re.findall(r"\]\(([^)#:]+)(?:#([^)]+))?\)", path.read_text(encoding="utf-8"))
        for link, place in links:
            assert (path.parent / link).exists(), f"{path.name} links to {link}"
            if place and link.endswith(".html"):
                page = (path.parent / link).read_text(encoding="utf-8")
                assert f'id="{place}"' in page, f"{path.name} links to {link}#{place}"


@pytest.mark.parametrize("table", sorted((ROOT / "results").glob("*/table.md")), ids=str)
def test_tables_are_those_of_the_stored_results(table: Path) -> None:
    text = table.read_text(encoding="utf-8")
    assert any(text in document.read_text(encoding="utf-8") for document in DOCUMENTS)


@with_results
def test_the_relative_critics_table_is_that_of_minatar_without_seeds() -> None:
    stored = (ROOT / "results/minatar/table.md").read_text(encoding="utf-8").split("\n\n")[0]
    rows = [line.split("|")[1:5] for line in re.sub(r" \([^)]*\)", "", stored).splitlines()]
    table = "".join("|" + "|".join(row) + "|\n" for row in rows)
    assert table in (ROOT / "docs/critics/relative.md").read_text(encoding="utf-8")


def test_the_theory_prints_what_its_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["relval", "theory"])
    with pytest.raises(SystemExit):
        cli.main()
    (shown,) = blocks(ROOT / "docs/mathematics.md", "text")
    assert shown in capsys.readouterr().out


@with_results
def test_pictures_are_those_of_the_stored_results() -> None:
    folder = ROOT / "docs/pictures"
    pictures = runpy.run_path(str(folder / "draw.py"))["PICTURES"]
    assert sorted(pictures) == sorted(path.name for path in folder.glob("*.svg"))
    for name, draw in pictures.items():
        stored = (folder / name).read_text(encoding="utf-8")
        assert draw() == stored, f"{name} is not what `make docs` draws"


@with_results
def test_diagnostics_are_those_of_the_stored_results() -> None:
    stored = results.read(ROOT / "results/readings")
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    for game in {row.env for row in stored.diagnoses}:
        assert tables.diagnosed_markdown(stored, game) in text


@with_results
@pytest.mark.parametrize("name", ["candidates", "pong"])
def test_steps_until_scores_are_those_of_the_stored_results(name: str) -> None:
    stored = results.read(ROOT / "results" / name)
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    for score in (0, 18):
        _, row = tables.reached(stored, score).split("| Pong |")
        assert f"| {score} |{row.splitlines()[0]}\n" in text


@with_results
def test_gradients_are_those_of_the_stored_results() -> None:
    text = (ROOT / "docs/beyond.md").read_text(encoding="utf-8")
    cells: dict[str, list[str]] = {}
    with (ROOT / "results/gradients.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            noise, name = float(row["noise_to_signal"]), f"| `{row['setting']}`"
            shown = f"{noise:.3g}" if math.isfinite(noise) else "none seen"
            if row["gradient"] == "policy":
                mean, spread = float(row["constant_mean"]), float(row["constant_spread"])
                shown = f"{mean:.3f} ± {spread:.3f} | {shown}".replace("-0.000", "0.000")
            cells.setdefault(name, []).append(shown)
    assert len(cells) == 8
    for name, row_cells in cells.items():
        assert " | ".join([name, *row_cells]) + " |\n" in text


class Sources(HTMLParser):
    """What a page loads, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a":
            self.links.append(given.get("href") or "")
        elif tag in ("img", "link", "script"):
            self.loads.append(given.get("src") or given.get("href") or "")


def test_the_site_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = [
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--doctree-dir",
        str(tmp_path / "trees"),
    ]
    subprocess.run([sys.executable, *words, str(ROOT / "docs"), str(site)], check=True)
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(DOCUMENTS)
    for page in pages:
        found = Sources()
        found.feed(page.read_text(encoding="utf-8"))
        assert not [source for source in found.loads if "//" in source], page.name
        for link in found.links:
            target = link.partition("#")[0]
            if target and "//" not in target and not target.startswith("data:"):
                assert (page.parent / target).exists(), f"{page.name} links to {link}"
    settings = (site / "api/relval.html").read_text(encoding="utf-8")
    assert "_Bound" not in settings  # but plain types
    assert "Suppress" not in settings
    reference = (site / "api/relative.html").read_text(encoding="utf-8")
    for name, thing in vars(relative).items():
        if isinstance(thing, type | types.FunctionType):
            assert f'id="relval.relative.{name}"' in reference
