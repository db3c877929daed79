"""The page about a sweep's results, read in a real browser."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from relval import cli
from relval.experiments.figures import styles
from relval.experiments.report import draw, report, report_paper, report_together, study
from relval.experiments.suites import ABSOLUTE, RELATIVE, Variant
from tests.browser import Page, browser
from tests.experiments.studies import GAMES, SUITE, made_up, store


@pytest.fixture(autouse=True)
def simulate_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_TRIALS", 20)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started.page()


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A report with runs missing."""
    found = made_up(without=("Pong/dae", "Breakout/relative/3"))
    path = tmp_path / "report.html"
    report(store(found, tmp_path / "a-study"), path)
    return path


def test_a_run_that_went_on_elsewhere_names_both_machines(tmp_path: Path) -> None:
    found = made_up()
    (origin,) = found.provenance
    hardware = {**origin["hardware"], "gpu": "a GPU", "cores": 16}
    moved = {**origin, "continued": [{**origin, "from_step": 9_000_000, "hardware": hardware}]}
    report(store(replace(found, provenance=(moved,)), tmp_path / "a-study"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "a processor, 2 cores; from step 9,000,000 on a GPU, 16 cores" in page


def test_groups_of_settings_have_names_of_their_own(tmp_path: Path) -> None:
    groups = {
        "relative": ["Pong/relative/1"],
        "absolute, Breakout": ["Breakout/absolute/1", "Breakout/absolute/2"],
        "absolute, Pong, seeds 1, 2": ["Pong/absolute/1", "Pong/absolute/2"],
        "absolute, Pong, seed 3": ["Pong/absolute/3"],
    }
    settings = tuple({"runs": runs, "precision": name} for name, runs in groups.items())
    found = replace(made_up(), settings=settings)
    report(store(found, tmp_path / "a-study"), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"<summary>(.*?): every setting</summary>", page) == list(groups)


def curves_of(page: Page, chart: str) -> list[str]:
    """The variants that a picture shows."""
    shown: list[str] = page.run(
        f"[...document.querySelectorAll('figure[data-chart=\"{chart}\"] g[data-variant]')]"
        ".map(g => g.dataset.variant)"
    )
    return shown


def table_of(page: Page) -> list[list[str]]:
    rows: list[list[str]] = page.run(
        "[...document.querySelectorAll('.games tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return rows


def test_a_report_can_be_read_and_worked_with(half: Path, page: Page) -> None:
    page.show(1280, 900)
    page.open(half)
    assert page.run("document.querySelector('h1').innerText") == "a-study"
    facts = page.run("[...document.querySelectorAll('.facts li')].map(fact => fact.innerText)")
    assert [fact.split("\n") for fact in facts] == [
        ["23 of 27", "runs finished"],
        ["3", "environments"],
        ["3", "seeds"],
        ["1,000", "steps a run"],
    ]
    assert "do not tell relative, dae from absolute" in page.run("document.body.innerText")
    assert "Inside the critics" in page.run("document.body.innerText")

    head, *rows, wins = table_of(page)
    assert head == ["", "absolute", "relative", "dae"]
    assert [row[0] for row in rows] == list(GAMES)
    assert rows[0][3].startswith("-")
    assert "2 of 3 runs" in rows[1][2]
    assert wins == ["best on", "0", "1", "2"]
    bold = "[...document.querySelectorAll('.games td.best')].map(cell => cell.cellIndex)"
    assert page.run(bold) == [2, 3, 3]

    everywhere = ["absolute", "relative", "dae"]
    assert curves_of(page, "curve Boxing") == everywhere
    assert curves_of(page, "curve Pong") == ["absolute", "relative"]
    assert curves_of(page, "aggregate IQM") == everywhere
    page.run("[...document.querySelectorAll('.legend button')][1].click()")
    for chart in ("curve Boxing", "aggregate IQM", "profile", "efficiency"):
        assert curves_of(page, chart) == ["absolute", "dae"]
    page.run("[...document.querySelectorAll('.legend button')][1].click()")
    assert curves_of(page, "curve Boxing") == everywhere

    raw = unquote(page.run("document.querySelector('a[download]').href").partition(",")[2])
    assert len(raw.splitlines()) == 1 + 23
    assert page.complaints == []
    assert page.requests == []


def test_several_studies_are_read_one_after_the_other(page: Page, tmp_path: Path) -> None:
    """Each has its own variants, and a legend that hides them in its own pictures."""
    other = made_up(replace(SUITE, variants=(ABSOLUTE, RELATIVE), summary="another study"))
    folders = [store(made_up(), tmp_path / "one"), store(other, tmp_path / "two")]
    told = report_together(folders, tmp_path / "p.html")
    assert [len(each.results.scores) for each in told] == [27, 18]
    page.show(1280, 900)
    page.open(tmp_path / "p.html")
    heads = page.run("[...document.querySelectorAll('h1')].map(head => head.innerText)")
    assert heads == ["45 runs in 2 studies", "one", "two"]
    links = page.run(
        "[...document.querySelectorAll('main > ul a')]"
        ".map(a => [a.innerText, document.querySelector(a.hash + ' > h1').innerText])"
    )
    assert links == [["one", "one"], ["two", "two"]]
    assert "another study (18 runs)" in page.run("document.body.innerText")

    def shown() -> list[int]:
        """Lines in each study's picture of Pong."""
        lines: list[int] = page.run(
            "[...document.querySelectorAll('figure[data-chart=\"curve Pong\"]')]"
            ".map(figure => figure.querySelectorAll('g[data-variant]').length)"
        )
        return lines

    assert shown() == [3, 2]
    page.run("document.querySelector('#two .legend button').click()")
    assert shown() == [3, 1]
    page.run("document.querySelector('#one .legend button').click()")
    assert shown() == [2, 1]
    identifiers = page.run("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(set(identifiers)) == len(identifiers)
    assert page.complaints == []


def test_variants_keep_their_order_whatever_they_are_called(page: Page, tmp_path: Path) -> None:
    """A script's objects put keys first that look like numbers."""
    numbered = replace(SUITE, variants=(ABSOLUTE, Variant("5", "relative"), Variant("1", "dae")))
    report(store(made_up(numbered), tmp_path / "a-study"), tmp_path / "page.html")
    page.open(tmp_path / "page.html")
    buttons = "[...document.querySelectorAll('.legend button')].map(button => button.innerText)"
    assert page.run(buttons) == ["absolute", "5", "1"]
    assert curves_of(page, "curve Pong") == ["absolute", "5", "1"]


def test_studies_of_one_name_have_links_of_their_own(tmp_path: Path) -> None:
    folders = [store(made_up(), tmp_path / name) for name in ("a/my study", "b/my study", "other")]
    report_together(folders, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    names = ["my-study-1", "my-study-2", "other"]
    assert re.findall(r'<section class="study" id="(.*?)">', page) == names
    assert re.findall(r'href="#(.*?)"', page) == names


def test_a_curve_is_read_by_pointing_and_zoomed_by_dragging(half: Path, page: Page) -> None:
    page.show(1280, 900)
    page.open(half)
    figure = "document.querySelector('figure[data-chart=\"curve Boxing\"]')"
    page.run(f"{figure}.scrollIntoView({{block: 'center'}})")
    box = page.run(f"(b => [b.left, b.top, b.width, b.height])({figure}.getBoundingClientRect())")
    left, top, width, height = box
    page.mouse("mouseMoved", left + 0.6 * width, top + 0.5 * height)
    tip = page.run(f"{figure}.querySelector('.tip').innerText")
    assert "steps:" in tip
    assert "relative" in tip

    ticks = f"[...{figure}.querySelectorAll('text')].map(t => t.textContent).join()"
    whole = page.run(ticks)
    page.mouse("mousePressed", left + 0.5 * width, top + 0.5 * height, pressed=True)
    page.mouse("mouseMoved", left + 0.8 * width, top + 0.5 * height, pressed=True)
    page.mouse("mouseReleased", left + 0.8 * width, top + 0.5 * height, pressed=True)
    assert page.run(ticks) != whole
    page.run(f"{figure}.querySelector('.reset').click()")
    assert page.run(ticks) == whole
    assert page.complaints == []


def boxes_of(page: Page, selector: str) -> list[dict[str, float]]:
    boxes: list[dict[str, float]] = page.run(
        f"[...document.querySelectorAll('{selector}')].map(e => e.getBoundingClientRect().toJSON())"
    )
    return boxes


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A report about twelve variants, with two runs of each on a game."""
    others = [Variant(f"a-variant-{letter}", "relative") for letter in "abcdefghij"]
    suite = replace(SUITE, variants=(ABSOLUTE, *others, RELATIVE), seeds=(1, 2))
    path = tmp_path / "many.html"
    report(store(made_up(replace(suite, cites="Table 1")), tmp_path / "many"), path)
    return path


def test_variants_are_told_apart_and_two_of_them_look_the_same_everywhere() -> None:
    names = [f"variant {place}" for place in range(20)]
    looks = styles(["absolute", *names, "relative"])
    assert len(set(looks.values())) == 22
    for name in ("absolute", "relative"):
        assert looks[name] == styles([name])[name]
        assert all(looks[name].colour != looks[other].colour for other in names)


@pytest.mark.parametrize("width", [1280, 390])
def test_many_variants_can_be_read(width: int, many: Path, page: Page) -> None:
    page.show(width, 900, phone=width < 400)
    page.open(many)
    told = page.run("[...document.querySelectorAll('.study > ul li')].map(li => li.innerText)")
    (sentence,) = [each for each in told if "tell" in each]
    assert sentence.endswith("a-variant-j, relative from absolute yet.")
    assert "In the paper: Table 1." in page.run("document.body.innerText")

    lines = page.run(
        "[...document.querySelectorAll('.legend .sample line')]"
        ".map(line => line.getAttribute('stroke') + line.getAttribute('stroke-dasharray'))"
    )
    assert len(set(lines)) == 12
    assert (lines[0], lines[-1]) == ("var(--c0)", "var(--c1)")
    hollow = page.run(
        "[...document.querySelectorAll('figure[data-chart=\"aggregate IQM\"] circle')]"
        ".filter(dot => dot.getAttribute('stroke-dasharray')).length"
    )
    assert hollow == 2

    marks = {
        aggregate: page.run(
            f'[...document.querySelectorAll(\'figure[data-chart="aggregate {aggregate}"] '
            "svg > text')].map(text => text.textContent)"
        )
        for aggregate in ("median", "IQM", "mean", "optimality gap")
    }
    assert marks["median"] == marks["IQM"] == marks["mean"]
    assert all(len(labels) >= 3 for labels in marks.values())

    figure = "document.querySelector('figure[data-chart=\"curve Boxing\"]')"
    page.run(f"{figure}.scrollIntoView({{block: 'center'}})")
    (box,) = boxes_of(page, 'figure[data-chart="curve Boxing"]')
    page.mouse("mouseMoved", box["left"] + 0.6 * box["width"], box["top"] + 0.5 * box["height"])
    (tip,) = boxes_of(page, 'figure[data-chart="curve Boxing"] .tip')
    beside = tip["left"] >= box["right"] or tip["right"] <= box["left"]
    assert beside or tip["top"] >= box["bottom"]
    assert 0 <= tip["left"] < tip["right"] <= width
    assert page.run(f"{figure}.querySelectorAll('.tip .sample').length") == 12
    ends = page.run(f"[...{figure}.querySelectorAll('svg > text')].map(t => t.textContent)")
    assert "1000" in ends

    assert page.run(
        "(t => t.scrollWidth <= t.parentElement.clientWidth)(document.querySelector('.origins'))"
    )
    assert page.complaints == []


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ("none", "Over 3 games."),
        ("Pong/dae", "Over 2 games (1 lacks a run of some variant, and is left out)."),
    ],
)
def test_games_are_counted(without: str, words: str, tmp_path: Path) -> None:
    report(store(made_up(without=(without,)), tmp_path / "a-study"), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert words in text
    games = words.split()[1]
    assert f"its mean is the higher one on {games} of {games} games" in text


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
def test_a_report_fits_the_screen_and_the_light(
    width: int, phone: bool, dark: bool, half: Path, page: Page, tmp_path: Path
) -> None:
    page.show(width, 844, dark=dark, phone=phone)
    page.open(half)
    assert page.run("document.documentElement.scrollWidth") <= width
    colours = "(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))"
    light = ["rgb(255, 255, 255)", "rgb(27, 31, 36)"]
    assert page.run(colours) == (["rgb(20, 23, 27)", "rgb(230, 233, 237)"] if dark else light)
    sizes = "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)"
    assert all(200 < size < width for size in page.run(sizes))
    page.picture(tmp_path / "screen.png")
    assert (tmp_path / "screen.png").stat().st_size > 20_000


def test_the_papers_own_page(page: Page, tmp_path: Path) -> None:
    report_paper(tmp_path / "paper.html")
    page.show(1280, 900)
    page.open(tmp_path / "paper.html")
    assert len(table_of(page)) == 1 + 49 + 1
    assert "Only mean scores are printed" in page.run("document.body.innerText")
    assert curves_of(page, "aggregate median") == ["absolute", "dae", "relative"]
    assert page.run("document.querySelectorAll('figure line[stroke-linecap]').length") == 0
    assert page.complaints == []


def test_names_from_outside_are_only_text(tmp_path: Path) -> None:
    found = made_up(replace(SUITE, summary="</p><script>alert(1)</script>"))
    report(store(found, tmp_path / "a-study"), tmp_path / "report.html")
    assert "<script>alert" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_command_writes_the_page_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store(made_up(), tmp_path / "a-study")
    out = tmp_path / "deep" / "page.html"
    words = ["relval", "report", str(tmp_path / "a-study"), "--out", str(out)]
    picture = out.with_suffix(".svg")
    wanted = ["--csv", "--markdown", "--latex", "--picture", str(picture), "--reach", "9"]
    monkeypatch.setattr(sys, "argv", [*words, *wanted])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert {path.name for path in out.parent.iterdir()} == {
        "page.html",
        "page.csv",
        "page.md",
        "page.svg",
        "page.tex",
    }
    printed = capsys.readouterr().out
    assert "IQM: absolute" in printed
    assert "95% intervals of 10 seeds cover the truth" in printed
    assert "Steps until a score of 9: the mean, ± half a 95% interval" in printed


def test_a_picture_has_every_game_that_was_played_and_every_variant(tmp_path: Path) -> None:
    found = study.Study(made_up(without=("Pong", "Boxing/dae")))
    draw(found, tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    texts = set(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    assert {"Breakout", "Boxing", "absolute", "relative", "dae"} <= texts
    assert "Pong" not in texts
    assert "#777777" in drawn
    assert "#ffffff" not in drawn
    draw(found, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == drawn
    with pytest.raises(ValueError, match=r"a picture is one of \.png, \.svg, \.pdf, got 'x\.gif'"):
        draw(found, Path("x.gif"))
    with pytest.raises(ValueError, match="no curves to draw"):
        draw(study.Study(made_up(without=GAMES)), tmp_path / "none.svg")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "which results?"),
        (["somewhere", "--paper"], "which results?"),
        (["here", "there", "--csv"], "name one folder"),
        (["here", "there", "--reach", "9"], "name one folder"),
    ],
)
def test_a_report_about_nothing_or_two_things_is_refused(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["relval", "report", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_the_command_writes_a_page_about_several_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(store(made_up(), tmp_path / name)) for name in ("one", "two")]
    monkeypatch.setattr(sys, "argv", ["relval", "report", *folders, "--out", f"{tmp_path}/p.html"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"written: {tmp_path}/p.html\n"
    assert "54 runs in 2 studies" in (tmp_path / "p.html").read_text(encoding="utf-8")


def test_a_sweep_without_a_finished_run_is_said_to_be_so(tmp_path: Path) -> None:
    store(made_up(without=GAMES), tmp_path)
    with pytest.raises(ValueError, match=r"no run under .* has finished yet"):
        report(tmp_path, tmp_path / "report.html")
