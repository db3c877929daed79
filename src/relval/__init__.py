"""Relative Value Learning: reinforcement learning with a critic of value differences.

Train with `train(configure("CartPole-v1", "relative"))`, go on with a stopped run with
`resume(folder)`, get a trained policy with `load(folder).policy`, film it with
`record(run, "video.gif")`, and see what its critic sees with `inspect(run, "page.html")`. The
mathematics is in `relval.relative`.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from relval import relative as relative
    from relval.runs import Config as Config
    from relval.runs import Film as Film
    from relval.runs import InterruptedRunError as InterruptedRunError
    from relval.runs import Policy as Policy
    from relval.runs import Run as Run
    from relval.runs import Scores as Scores
    from relval.runs import configure as configure
    from relval.runs import evaluate as evaluate
    from relval.runs import inspect as inspect
    from relval.runs import load as load
    from relval.runs import record as record
    from relval.runs import resume as resume
    from relval.runs import train as train

__all__ = [
    "Config",
    "Film",
    "InterruptedRunError",
    "Policy",
    "Run",
    "Scores",
    "configure",
    "evaluate",
    "inspect",
    "load",
    "record",
    "relative",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that `relval --help` need not wait for PyTorch."""
    if name == "relative":
        return importlib.import_module("relval.relative")
    if name in __all__:
        return getattr(importlib.import_module("relval.runs"), name)
    raise AttributeError(f"module 'relval' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
