"""The demonstration: PPO with its own critic and with the relative one, side by side."""

from pathlib import Path

from relval.experiments.report import report
from relval.experiments.suites import suite
from relval.experiments.sweep import sweep


def demo(out: Path, total_steps: int) -> Path:
    """Trains both for a short while, as far as that has not been done, and writes a report."""
    both = suite("demo").narrowed(total_steps=total_steps)
    sweep(both, out)
    page = out / "report.html"
    report(out, page)
    *_, relative = both.runs()
    print(f"Learning curves and all else, to be opened in a browser: {page}")
    print(f"Watch the agent: relval video {out / 'runs' / relative}")
    return page
