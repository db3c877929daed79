"""What settings may be, as types."""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class _Bound:
    words: str
    holds: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _are_widths(value: Any) -> bool:
    if not isinstance(value, tuple | list) or not value:
        return False
    return all(_is_whole(width) and width >= 1 for width in value)


Count = Annotated[int, _Bound("be at least 1", lambda x: x >= 1)]
Natural = Annotated[int, _Bound("be at least 0", lambda x: x >= 0)]
Weight = Annotated[float, _Bound("be at least 0", lambda x: x >= 0)]
Positive = Annotated[float, _Bound("be above 0", lambda x: x > 0)]
Share = Annotated[float, _Bound("lie in [0, 1]", lambda x: 0 <= x <= 1)]
Widths = Annotated[tuple[int, ...], _Bound("be one or more whole numbers from 1 on", _are_widths)]

_PLAIN = {
    bool: [_Bound("be True or False", lambda x: isinstance(x, bool))],
    float: [_Bound("be a number", _is_number), _Bound("be finite", math.isfinite)],
    int: [_Bound("be a whole number", _is_whole)],
    str: [_Bound("be text", lambda x: isinstance(x, str))],
}


def check_fields(section: Any, prefix: str = "") -> None:
    """Refuses a section of settings, a dataclass, if the type of one of its fields forbids a value.

    Args:
      section: The settings, which may be sections themselves.
      prefix: What the names of its fields begin with in errors, such as `critic.`.
    """
    hints = typing.get_type_hints(type(section), include_extras=True)
    for item in dataclasses.fields(section):
        value = getattr(section, item.name)
        if dataclasses.is_dataclass(value):
            check_fields(value, f"{prefix}{item.name}.")
        else:
            check_value(prefix + item.name, hints[item.name], value)


def check_value(name: str, kind: Any, value: Any) -> None:
    """Refuses a value that its type forbids; types that are not known here forbid nothing."""
    for bound in _bounds(kind, value):
        if not bound.holds(value):
            raise ValueError(f"{name} must {bound.words}, got {value!r}")


def _bounds(kind: Any, value: Any) -> Iterator[_Bound]:
    """What a type demands of a value, what is most general first."""
    args = typing.get_args(kind)
    if len(args) == 2 and NoneType in args:
        if value is not None:
            yield from _bounds(args[args[0] is NoneType], value)
    elif typing.get_origin(kind) is Annotated:
        yield from _bounds(args[0], value)
        yield from (each for each in args[1:] if isinstance(each, _Bound))
    elif typing.get_origin(kind) is Literal:
        yield _Bound(f"be one of {', '.join(map(str, args))}", lambda x: x in args)
    else:
        yield from _PLAIN.get(kind, ())
