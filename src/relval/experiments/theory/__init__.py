"""The paper's theory at work on small finite decision processes.

Predictions come from closed forms. Beside them stands what `relval.relative` computes on processes
small enough to enumerate: nothing is sampled, so both must agree to rounding.
"""

from collections.abc import Iterator
from pathlib import Path

from relval._page import write
from relval.experiments.theory import estimates, operators, page, targets
from relval.experiments.theory.exhibit import Exhibit


def exhibits() -> Iterator[Exhibit]:
    """The exhibits in the paper's order, each computed when asked for."""
    yield operators.contraction()
    yield operators.gauge()
    yield estimates.trajectory_constants()
    yield estimates.appendix_table()
    yield estimates.unbiased_without_termination()
    yield estimates.biased_with_termination()
    yield estimates.anchors_of_random_ends()
    yield estimates.variance_inflation()
    yield targets.mixed_terminal_cases()


def show(out: Path) -> bool:
    """Prints every exhibit, writes them as a page to `out/index.html`; true if all agree."""
    shown = []
    for exhibit in exhibits():
        shown.append(exhibit)
        print(f"\n{exhibit.title}  ({exhibit.source})")
        for check in exhibit.checks:
            mark = "ok" if check.holds else "OFF"
            comparison = f"{check.measured:12.6g}  {check.relation} {check.predicted:<12.6g}"
            print(f"  {check.label:<52} {comparison} {mark}")
    path = out / "index.html"
    write(path, page.render(shown))
    checks = [check for exhibit in shown for check in exhibit.checks]
    held = sum(check.holds for check in checks)
    print(f"\n{held} of {len(checks)} numbers agree with the theory. Pictures: {path}")
    return held == len(checks)
