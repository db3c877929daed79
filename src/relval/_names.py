"""Names that users type, and packages that they lack."""

import difflib
from collections.abc import Iterable


def check_name(what: str, name: str, known: Iterable[str]) -> None:
    """Refuses a name that is not known, with the nearest that is."""
    known = list(known)
    if name not in known:
        raise unknown(what, name, known, otherwise=f"choose from {', '.join(known)}")


def unknown(what: str, name: str, known: Iterable[str], *, otherwise: str) -> ValueError:
    """The error for a name that is not known, with the nearest that is, in whatever case.

    Args:
      what: A name's kind.
      name: What was typed.
      known: The names that there are.
      otherwise: What to say if none of them is near.
    """
    in_lower_case = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), in_lower_case, n=1)
    hint = f"did you mean {in_lower_case[near[0]]}?" if near else otherwise
    return ValueError(f"there is no {what} {name!r}; {hint}")


def not_installed(what: str, extra: str) -> str:
    """That a package is missing, and what to do."""
    return f"{what} is not installed: run {installing(extra)}"


def installing(extra: str) -> str:
    """The command that installs relval with an extra, and so what that needs."""
    return f'`pip install "relval[{extra}]"`'
