import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from relval import cli
from relval.runs import Run, train
from tests.runs.helpers import small


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def relval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """The command line, in this process."""

    def run(*arguments: object) -> Finished:
        capsys.readouterr()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["relval", *map(str, arguments)])
            with pytest.raises(SystemExit) as exit_status:
                cli.main()
        shown = capsys.readouterr()
        return Finished(int(exit_status.value.code or 0), shown.out, shown.err)

    return run


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(small("CartPole-v1"), tmp_path_factory.mktemp("cartpole"), quiet=True)


@pytest.fixture(scope="session")
def breakout(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(small("MinAtar/Breakout"), tmp_path_factory.mktemp("breakout"), quiet=True)


@pytest.fixture(scope="session")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(small("Pendulum-v1"), tmp_path_factory.mktemp("pendulum"), quiet=True)
