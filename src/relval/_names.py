"""Names that users type."""

import difflib
from collections.abc import Iterable


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Refuses a name that is not known, with the nearest that is."""
    known = list(known)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
        raise ValueError(f"there is no {what} {name!r}; {hint}")
