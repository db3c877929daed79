import subprocess
import sys
from pathlib import Path

import pytest

import relval
from relval import cli
from relval.experiments import theory


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "relval", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_theory_writes_its_page_and_succeeds(tmp_path: Path) -> None:
    result = run("theory", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "numbers agree with the theory" in result.stdout
    assert (tmp_path / "index.html").exists()


def test_theory_fails_when_a_number_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theory, "show", lambda out: False)
    monkeypatch.setattr(sys, "argv", ["relval", "theory"])
    with pytest.raises(SystemExit) as exit_status:
        cli.main()
    assert exit_status.value.code == 1


def test_help_lists_the_commands() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "theory" in result.stdout
    assert "bench" in result.stdout
    assert "--version" in result.stdout


def test_version_is_printed() -> None:
    assert run("--version").stdout == f"relval {relval.__version__}\n"


def test_an_unknown_command_is_refused_with_the_known_ones() -> None:
    result = run("thery")
    assert result.returncode == 2
    assert "theory" in result.stderr
