"""Numbers that settings may be, as types."""

import typing
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class _Bound:
    words: str
    holds: Callable[[Any], bool]
    whole: bool = False

    def check(self, name: str, value: Any) -> None:
        """Refuses what is no number, or out of bounds."""
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(f"{name} must be {kind}, got {value!r}")
        if not self.holds(value):
            raise ValueError(f"{name} must {self.words}, got {value}")


Count = Annotated[int, _Bound("be at least 1", lambda x: x >= 1, whole=True)]
Natural = Annotated[int, _Bound("be at least 0", lambda x: x >= 0, whole=True)]
Weight = Annotated[float, _Bound("be at least 0", lambda x: x >= 0)]
Positive = Annotated[float, _Bound("be above 0", lambda x: x > 0)]
Share = Annotated[float, _Bound("lie in [0, 1]", lambda x: 0 <= x <= 1)]


def check_value(name: str, kind: Any, value: Any) -> None:
    """Refuses a value that its type, one of the above, a choice of words or a bool, forbids."""
    if kind is bool and not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    if typing.get_origin(kind) is Literal and value not in typing.get_args(kind):
        choices = ", ".join(typing.get_args(kind))
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")
    if value is None:
        return
    for possible in (kind, *typing.get_args(kind)):  # it may be one of the above, or None
        for bound in getattr(possible, "__metadata__", ()):
            if isinstance(bound, _Bound):
                bound.check(name, value)
