import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from relval.runs import checkpoint
from relval.runs.checkpoint import Checkpoint, DamagedCheckpointError, available

STATE = {"step": 123, "score": 0.1 + 0.2, "none": None, "list": [1, 2.5, "π"]}
TENSORS = {
    "float": torch.tensor([[0.1, float("nan")], [float("inf"), -0.0]]),
    "transposed": torch.arange(6, dtype=torch.int64).reshape(2, 3).T,
    "bytes": torch.tensor([0, 255], dtype=torch.uint8),
    "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(1.0, dtype=torch.float64),
}


def numbered(step: int) -> Checkpoint:
    return Checkpoint({"a": torch.full((64,), float(step))}, {"step": step})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints of steps 10 and 20."""
    for step in (10, 20):
        checkpoint.save(tmp_path, step, numbered(step))
    return tmp_path


def steps(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("step_")) for path in available(folder)]


def newest(folder: Path) -> int | None:
    """The step of the newest whole checkpoint, whose two files must be of one save."""
    loaded = checkpoint.load_newest(folder)
    if loaded is None:
        return None
    step: int = loaded.state["step"]
    assert torch.equal(loaded.tensors["a"], numbered(step).tensors["a"])
    return step


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    loaded = checkpoint.load(checkpoint.save(tmp_path, 5, Checkpoint(TENSORS, STATE)))
    assert loaded.state == STATE
    assert loaded.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        torch.testing.assert_close(loaded.tensors[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_the_newest_two_are_kept(folder: Path) -> None:
    assert steps(folder) == [10, 20]
    checkpoint.save(folder, 30, numbered(30))
    assert steps(folder) == [20, 30]
    assert newest(folder) == 30


def test_a_step_saved_again_is_the_newest(folder: Path) -> None:
    checkpoint.save(folder, 20, Checkpoint(numbered(20).tensors, {"step": 20, "again": True}))
    assert len(available(folder)) == 2
    assert checkpoint.load(available(folder)[-1]).state["again"]


@pytest.mark.parametrize("step", [5, 15, 20])
def test_what_was_just_saved_is_the_newest_though_later_steps_are_there(
    folder: Path, step: int
) -> None:
    """As when those were damaged, and a run begins anew."""
    saved = checkpoint.save(folder, step, numbered(step))
    assert available(folder)[-1] == saved
    assert newest(folder) == step


def test_a_step_can_be_saved_any_number_of_times(folder: Path) -> None:
    for _ in range(4):
        saved = checkpoint.save(folder, 20, numbered(20))
        assert available(folder)[-1] == saved


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_a_digit(path: Path) -> None:
    """Turns step 20 into step 30, or spoils a tensor."""
    content = path.read_bytes()
    at = content.rindex(b"20") if b"20" in content else len(content) - 1
    path.write_bytes(content[:at] + b"3" + content[at + 1 :])


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def put_null(path: Path) -> None:
    path.write_bytes(b"null")


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize(
    "damage", [truncate, change_a_digit, fill_with_zeros, put_null, Path.unlink]
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(available(folder)[-1] / name)
    with pytest.warns(RuntimeWarning, match="step_000000000020.*it is passed over"):
        assert newest(folder) == 10
    with pytest.raises(DamagedCheckpointError, match="step_000000000020 cannot be read"):
        checkpoint.load(available(folder)[-1])


def test_without_a_whole_checkpoint_there_is_none(tmp_path: Path, folder: Path) -> None:
    assert checkpoint.load_newest(tmp_path / "nowhere") is None
    for path in available(folder):
        truncate(path / "state.json")
    with pytest.warns(RuntimeWarning):
        assert checkpoint.load_newest(folder) is None


@pytest.mark.parametrize("next_step", [30, 40])
def test_what_a_crash_in_a_save_leaves_is_ignored_and_cleaned_by_the_next(
    folder: Path, next_step: int
) -> None:
    leftover = folder / ".step_000000000030.tmp"
    leftover.mkdir()
    (leftover / "tensors.safetensors").write_bytes(b"half")
    assert newest(folder) == 20
    checkpoint.save(folder, next_step, numbered(next_step))
    assert newest(folder) == next_step
    assert {path.name for path in folder.iterdir()} == {path.name for path in available(folder)}


class CrashError(Exception):
    """The end of a process, as its parent sees it."""


@pytest.mark.parametrize("step", [10, 20])
def test_a_crash_anywhere_in_a_save_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whether the save is of a new step, or of one that was saved before."""
    places: list[tuple[Any, str]] = [
        (checkpoint, "save_file"),
        (Path, "write_text"),
        (os, "fsync"),
        (Path, "rename"),
        (shutil, "rmtree"),
    ]

    def crash_at(patched: pytest.MonkeyPatch, moment: int) -> Callable[[], int]:
        calls = 0

        def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == moment:
                    raise CrashError
                return original(*arguments, **options)

            return call

        for owner, name in places:
            patched.setattr(owner, name, wrapped(getattr(owner, name)))
        return lambda: calls

    moment = 0
    while True:
        moment += 1
        folder = tmp_path / str(moment)
        checkpoint.save(folder, 10, numbered(10))
        with monkeypatch.context() as patched:
            count = crash_at(patched, moment)
            try:
                checkpoint.save(folder, step, numbered(step))
            except CrashError:
                pass
            else:
                assert count() < moment
                break
        assert newest(folder) in {10, step}, f"crashed at call {moment}"
    assert moment > len(places)
