"""Numbers that settings may be, as types."""

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class _Bound:
    words: str
    holds: Callable[[float], bool]


Count = Annotated[int, _Bound("be at least 1", lambda x: x >= 1)]
Natural = Annotated[int, _Bound("be at least 0", lambda x: x >= 0)]
Weight = Annotated[float, _Bound("be at least 0", lambda x: x >= 0)]
Positive = Annotated[float, _Bound("be above 0", lambda x: x > 0)]
Share = Annotated[float, _Bound("lie in [0, 1]", lambda x: 0 <= x <= 1)]


def check_value(name: str, kind: Any, value: Any) -> None:
    """Refuses a value that its type, one of the above or a choice of words, does not allow."""
    if typing.get_origin(kind) is Literal and value not in typing.get_args(kind):
        choices = ", ".join(typing.get_args(kind))
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")
    if value is None:
        return
    for possible in (kind, *typing.get_args(kind)):  # it may be one of the above, or None
        for bound in getattr(possible, "__metadata__", ()):
            if isinstance(bound, _Bound) and not bound.holds(value):
                raise ValueError(f"{name} must {bound.words}, got {value}")
