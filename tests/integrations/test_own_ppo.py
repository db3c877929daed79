"""The relative critic in a PPO of one's own: `docs/your-own-ppo.md` and its scripts."""

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = ("ppo.py", "relative_ppo.py")


def returns(script: str, steps: int) -> list[float]:
    """What a script prints of its progress."""
    command = [sys.executable, str(DOCS / "examples" / script), "--total-steps", str(steps)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(number) for number in re.findall(r"mean of the last 100 returns (.*)", printed)]


def test_the_page_shows_what_changed_and_that_is_a_dozen_lines() -> None:
    before, after = ((DOCS / "examples" / name).read_text("utf-8") for name in SCRIPTS)
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), *SCRIPTS, n=1
    )
    diff = "".join(lines)
    assert f"```diff\n{diff}```" in (DOCS / "your-own-ppo.md").read_text("utf-8")
    assert len(re.findall(r"^\+(?!\+\+)", diff, re.MULTILINE)) <= 12


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_run(script: str) -> None:
    (score,) = returns(script, 2048)
    assert 9 <= score <= 500


def test_the_script_with_the_relative_critic_learns() -> None:
    assert returns("relative_ppo.py", 30_000)[-1] > 100
