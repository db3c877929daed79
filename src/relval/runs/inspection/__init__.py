"""What a trained critic sees: a game that its agent plays, as one page that opens from disk."""

from pathlib import Path

from relval._page import write
from relval.runs.inspection.page import render
from relval.runs.inspection.recording import Recording as Recording
from relval.runs.inspection.recording import play as play
from relval.runs.run import Run, opened


def inspect(
    run: Run | str | Path, out: str | Path, *, steps: int = 500, seed: int = 0
) -> Recording:
    """Plays with a run's newest checkpoint, and writes the page about it.

    Args:
      run: The run or its folder.
      out: The page.
      steps: How many steps to play, through as many episodes as they take.
      seed: Of the environments, and of the actions that are drawn.
    """
    run = opened(run)
    recording = play(run, steps=steps, seed=seed)
    write(Path(out), render(run, recording))
    return recording
