"""Where errors come from."""

import traceback


def raised_in(error: Exception) -> str:
    """The package whose code raised an error, `relval` or another."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return str(innermost.f_globals.get("__name__")).partition(".")[0]
