"""The files in a run's folder."""

import json
import os
from pathlib import Path
from typing import Any

CONFIG, PROVENANCE, SUMMARY = "config.yaml", "provenance.json", "summary.json"
METRICS, EPISODES = "metrics.csv", "episodes.csv"
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"


def label(env: str) -> str:
    """An environment's name, fit to be a folder's."""
    return env.replace("/", "-").replace(":", "-")


def is_begun(folder: Path) -> bool:
    """Whether there is a run in the folder."""
    return (folder / CONFIG).exists()


def is_finished(folder: Path) -> bool:
    """Whether there is one that has come to its end."""
    return (folder / SUMMARY).exists()


def clear_false_start(folder: Path) -> None:
    """Removes what a process left that was killed before it had written the configuration."""
    if not is_begun(folder):
        for path in (folder / PROVENANCE, *folder.glob("*.tmp")):
            path.unlink(missing_ok=True)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes content as JSON, as `write` does."""
    write(path, json.dumps(content, indent=2) + "\n")


def write(path: Path, text: str) -> None:
    """Writes a file that is there whole, or as it was before; others may write it meanwhile."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
