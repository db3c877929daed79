"""The demonstration: PPO with its own critic and with the relative one, side by side."""

import sys
from pathlib import Path

from relval.experiments.report import report
from relval.experiments.suites import suite
from relval.experiments.sweep import sweep


def demo(out: Path, total_steps: int) -> bool:
    """Trains both for a short while, as far as that has not been done, and writes a report.

    False, and no report, if a run failed.
    """
    both = suite("demo").narrowed(total_steps=total_steps)
    if not sweep(both, out):
        return False
    page = out / "report.html"
    report(out, page)
    *_, relative = both.runs()
    run = out / "runs" / relative
    started_as = Path(sys.argv[0])
    command = started_as if started_as.name == "relval" else "relval"
    print(f"Learning curves and all else, to be opened in a browser: {page}")
    print(f"Watch the agent: {command} video {run}")
    print(f"See what its critic sees: {command} inspect {run}")
    return True
