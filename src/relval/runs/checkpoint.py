"""Checkpoints: a folder with tensors and JSON, complete or not there at all."""

import hashlib
import json
import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_KEEP = 2
_TENSORS, _STATE = "tensors.safetensors", "state.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a run needs to go on: tensors, and the rest as JSON holds it."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


class DamagedCheckpointError(ValueError):
    """A checkpoint whose files are not what was written."""


def save(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Writes a checkpoint so that a crash leaves the old ones or the new one, and keeps two.

    Everything is written to a temporary folder and reaches the disk before a rename makes it the
    newest checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step_{step:012d}"
    temporary = folder / f".{final.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    tensors = {name: tensor.contiguous().cpu() for name, tensor in checkpoint.tensors.items()}
    save_file(tensors, temporary / _TENSORS)
    state = {**checkpoint.state, "sha256": _digest(temporary / _TENSORS)}
    (temporary / _STATE).write_text(json.dumps(state), encoding="utf-8")
    for path in (temporary / _TENSORS, temporary / _STATE, temporary):
        _sync(path)
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    _sync(folder)
    for old in available(folder)[:-_KEEP]:
        shutil.rmtree(old)
    return final


def available(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step_*") if path.is_dir())


def load(path: Path) -> Checkpoint:
    """Reads one checkpoint, and refuses it if it is damaged."""
    try:
        state = json.loads((path / _STATE).read_text(encoding="utf-8"))
        digest = state.pop("sha256")
        if _digest(path / _TENSORS) != digest:
            raise DamagedCheckpointError(f"{path / _TENSORS} is not what was written")
        return Checkpoint(load_file(path / _TENSORS), state)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DamagedCheckpointError(f"checkpoint {path} cannot be read: {error}") from error


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole, with a warning for each that is not."""
    for path in reversed(available(folder)):
        try:
            return load(path)
        except DamagedCheckpointError as error:
            warnings.warn(f"{error}; using the one before it", RuntimeWarning, stacklevel=2)
    return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
