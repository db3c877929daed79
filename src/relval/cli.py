"""The command line."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import tyro

from relval import __version__

# Commands import what they run themselves, so that `relval --help` need not wait for PyTorch.


def theory(out: Path = Path("out/theory")) -> int:
    """Show the theory at work on small decision processes, each prediction beside its number.

    Exits with 1 if a number is off.

    Args:
        out: Folder for the page with the pictures, index.html.
    """
    from relval.experiments import theory

    return 0 if theory.show(out) else 1


def bench(what: tyro.conf.Positional[Literal["math"]]) -> int:
    """Measure speed against a peer, in one run.

    Args:
        what: math: time and memory of the all-pairs loss and of n-step targets against the plain
            form over all B^2 pairs.
    """
    from relval.experiments import bench

    bench.math()
    return 0


def main() -> None:
    """Runs the command that the arguments name."""
    if sys.argv[1:] == ["--version"]:
        print(f"relval {__version__}")
        return
    commands: dict[str, Callable[..., int]] = {"theory": theory, "bench": bench}
    status = tyro.extras.subcommand_cli_from_dict(
        commands, prog="relval", description="Relative Value Learning."
    )
    sys.exit(status)
