"""Small runs, and what it means for two of them to be the same."""

import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)
from torch import Tensor

from relval.runs import Config, InterruptedRunError, configure, train
from relval.runs import checkpoint as checkpoints
from relval.runs.trainer import Trainer

UPDATE = 64
"""Steps in one update of a small run."""


def small(env: str, critic: str = "relative", *, updates: int = 16, **others: Any) -> Config:
    """A run of a few updates that are over quickly."""
    options: dict[str, Any] = {
        "total_steps": updates * UPDATE,
        "checkpoint_every": 4 * UPDATE,
        **others,
        "ppo": {"steps": 16, "minibatch": 32, "epochs": 1, **others.get("ppo", {})},
        "envs": {"num_envs": 4, **others.get("envs", {})},
    }
    return configure(env, critic, **options)


def train_until(
    monkeypatch: pytest.MonkeyPatch, config: Config, folder: Path, *, update: int
) -> None:
    """Trains in this process until Ctrl-C is pressed in the middle of an update."""
    iterating = Trainer.iterating

    def interrupted(trainer: Trainer) -> Any:
        if trainer.step == (update - 1) * UPDATE:
            signal.raise_signal(signal.SIGINT)
        return iterating(trainer)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "iterating", interrupted)
        with pytest.raises(InterruptedRunError):
            train(config, folder, quiet=True)


def available(folder: Path) -> list[Path]:
    return checkpoints.available(folder / "checkpoints")


def weights(folder: Path) -> dict[str, Tensor]:
    """The parameters of the newest checkpoint."""
    tensors = checkpoints.load(available(folder)[-1]).tensors
    return {name: value for name, value in tensors.items() if name.startswith("agent.")}


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def untimed(folder: Path) -> pd.DataFrame:
    """The curves, without the columns that depend on the machine's speed."""
    curves = pd.read_csv(folder / "metrics.csv")
    timing = [name for name in curves if name.startswith(("seconds_", "steps_per_second"))]
    return curves.drop(columns=timing)


def assert_same_run(one: Path, other: Path) -> None:
    assert available(one)[-1].name == available(other)[-1].name
    assert same_weights(one, other)
    assert (one / "episodes.csv").read_bytes() == (other / "episodes.csv").read_bytes()
    pd.testing.assert_frame_equal(untimed(one), untimed(other), check_exact=True)


def tensorboard(folder: Path, name: str) -> list[tuple[int, float]]:
    """A curve as TensorBoard shows it: steps and values."""
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def contents(folder: Path) -> dict[str, bytes]:
    """All files under a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
