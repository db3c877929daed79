"""Checkpoints: a folder with tensors and JSON, complete or not there at all."""

import hashlib
import json
import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_KEEP = 2
_TENSORS, _STATE, _DIGESTS = "tensors.safetensors", "state.json", "sha256.json"


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
    for leftover in folder.glob(".step_*.tmp"):
        shutil.rmtree(leftover)
    same_step = sorted(folder.glob(f"step_{step:012d}*"))
    final = folder / (f"{same_step[-1].name}_again" if same_step else f"step_{step:012d}")
    temporary = folder / f".{final.name}.tmp"
    temporary.mkdir()
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in checkpoint.tensors.items()
    }
    save_file(tensors, temporary / _TENSORS)
    _write_json(temporary / _STATE, checkpoint.state)
    _write_json(
        temporary / _DIGESTS, {name: _digest(temporary / name) for name in (_TENSORS, _STATE)}
    )
    for path in (*temporary.iterdir(), temporary):
        _sync(path)
    temporary.rename(final)
    _sync(folder)
    saved = available(folder)
    here = saved.index(final) + 1
    # Whatever seems to be newer was passed over as damaged, or the run would have gone on from it.
    for other in (*saved[here:], *saved[: max(0, here - _KEEP)]):
        shutil.rmtree(other)
    return final


def available(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step_*") if path.is_dir())


def load(path: Path) -> Checkpoint:
    """Reads one checkpoint, and refuses it if it is damaged."""
    try:
        digests = _read_json(path / _DIGESTS)
        for name in (_TENSORS, _STATE):
            if _digest(path / name) != digests[name]:
                raise DamagedCheckpointError(f"{name} is not what was written")
        return Checkpoint(load_file(path / _TENSORS), _read_json(path / _STATE))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DamagedCheckpointError(f"checkpoint {path} cannot be read: {error}") from error


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole, with a warning for each that is not."""
    for path in reversed(available(folder)):
        try:
            return load(path)
        except DamagedCheckpointError as error:
            warnings.warn(f"{error}; it is passed over", RuntimeWarning, stacklevel=2)
    return None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise DamagedCheckpointError(f"{path.name} holds no mapping")
    return content


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
