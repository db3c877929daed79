"""A sweep's results as one page that opens from disk: pictures, tables, settings, origins."""

from pathlib import Path

from relval._page import write
from relval.experiments import results, tables
from relval.experiments.report.page import render, render_printed
from relval.experiments.report.picture import draw as draw
from relval.experiments.report.picture import learning_curves as learning_curves
from relval.experiments.report.study import Study as Study
from relval.experiments.suites import SUITES


def report(folder: Path, out: Path) -> Study:
    """Writes the page about the results in a folder, and returns its numbers."""
    found = results.read(folder)
    if not found.scores:
        raise ValueError(f"no run under {folder} has finished yet; `relval sweep` goes on with it")
    study = Study(found)
    write(out, render(study, tables.compare(found), title=folder.resolve().name))
    return study


def report_paper(out: Path) -> Study:
    """Writes the page about the paper's printed means, without any run, and returns its numbers."""
    printed = results.printed(SUITES["atari49"])
    study = Study(printed)
    write(out, render_printed(study, tables.compare(printed)))
    return study
