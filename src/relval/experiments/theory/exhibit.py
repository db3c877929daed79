"""What an exhibit is: a statement, the numbers for and against it, and a picture."""

from dataclasses import dataclass
from typing import Literal

ROUNDING = 1e-9
"""How far two numbers may be apart that are equal but for float64 rounding."""


@dataclass(frozen=True)
class Check:
    """A computed number beside the one that the theory predicts."""

    label: str
    measured: float
    predicted: float
    relation: Literal["=", "≤"] = "="
    tolerance: float = ROUNDING

    @property
    def holds(self) -> bool:
        """Whether the two agree; a NaN agrees with nothing."""
        excess = self.measured - self.predicted
        distance = abs(excess) if self.relation == "=" else excess
        return distance <= self.tolerance


@dataclass(frozen=True)
class Table:
    """Rows of numbers under a header, each with a name."""

    header: list[str]
    rows: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Exhibit:
    """A statement of the theory, shown."""

    title: str
    source: str
    """Where the paper states it."""
    story: str
    checks: list[Check]
    picture: str | None = None
    """An SVG element."""
    table: Table | None = None

    @property
    def holds(self) -> bool:
        """Whether every number agrees with its prediction."""
        return all(check.holds for check in self.checks)
