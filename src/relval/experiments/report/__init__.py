"""Results of sweeps as one page that opens from disk: pictures, tables, settings, origins."""

from collections.abc import Sequence
from pathlib import Path

from relval._page import write
from relval.experiments import results, tables
from relval.experiments.report.page import Part, render, render_printed
from relval.experiments.report.picture import draw as draw
from relval.experiments.report.picture import learning_curves as learning_curves
from relval.experiments.report.study import Study as Study
from relval.experiments.suites import SUITES


def report(folder: Path, out: Path) -> Study:
    """Writes the page about the results in a folder, and returns its numbers."""
    (study,) = report_together([folder], out)
    return study


def report_together(folders: Sequence[Path], out: Path) -> list[Study]:
    """Writes one page about the results in several folders, and returns the numbers of each."""
    parts = [_part(folder) for folder in folders]
    write(out, render(parts))
    return [part.study for part in parts]


def _part(folder: Path) -> Part:
    found = results.read(folder)
    if not found.scores:
        raise ValueError(f"no run under {folder} has finished yet; `relval sweep` goes on with it")
    return Part(folder.resolve().name, Study(found), tables.compare(found))


def report_paper(out: Path) -> Study:
    """Writes the page about the paper's printed means, without any run, and returns its numbers."""
    printed = results.printed(SUITES["atari49"])
    study = Study(printed)
    write(out, render_printed(study, tables.compare(printed)))
    return study
