from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from relval.relative import Trajectories
from tests.relative import reference
from tests.relative.strategies import trajectories


def grid(value: float | bool, steps: int = 3, envs: int = 2) -> torch.Tensor:
    return torch.full((steps, envs), value)


@given(trajectories())
def test_every_valid_transition_knows_its_place_in_its_segment(traj: Trajectories) -> None:
    remaining = torch.zeros(traj.steps * traj.envs, dtype=torch.long)
    elapsed = torch.zeros_like(remaining)
    for segment in reference.segments(traj):
        for place, i in enumerate(segment):
            elapsed[i] = place
            remaining[i] = len(segment) - place
    assert torch.equal(traj.remaining, remaining)
    valid = traj.transitions
    assert torch.equal(traj.elapsed[valid], elapsed[valid])


def test_states_are_those_of_the_grid_and_those_appended() -> None:
    assert Trajectories(grid(0.0), grid(False)).num_states == 8
    truncated = grid(False)
    truncated[1, 0] = True
    successor = torch.arange(2, 8).view(3, 2)
    successor[1, 0] = 8
    traj = Trajectories(grid(0.0), grid(False), truncated, successor)
    assert traj.num_states == 9
    assert "states=9" in repr(traj)


def test_next_row_follows_by_default() -> None:
    traj = Trajectories(grid(0.0), grid(False))
    assert traj.successor.tolist() == [[2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rewards": torch.zeros(3)}, ValueError, r"rewards must have shape \[T, N\]"),
        ({"rewards": torch.zeros(0, 2)}, ValueError, "T, N >= 1"),
        ({"rewards": grid(1)}, TypeError, "rewards must be a floating-point tensor"),
        ({"terminated": grid(0.0)}, TypeError, "terminated must be a bool tensor"),
        ({"terminated": grid(False, 2)}, ValueError, "terminated must have the shape of rewards"),
        ({"truncated": grid(0)}, TypeError, "truncated must be a bool tensor"),
        ({"truncated": grid(False, 3, 1)}, ValueError, "truncated must have the shape"),
        ({"truncated": grid(True)}, ValueError, "truncated transition needs its true successor"),
        ({"valid": grid(1.0)}, TypeError, "valid must be a bool tensor"),
        ({"valid": grid(True, 4)}, ValueError, "valid must have the shape"),
        ({"last_valid": grid(True)}, ValueError, r"last_valid must have shape \[2\]"),
        ({"last_valid": torch.ones(2)}, TypeError, "last_valid must be a bool tensor"),
        ({"successor": grid(1.0)}, TypeError, "successor must be an int64 or int32 tensor"),
        ({"successor": grid(True)}, TypeError, "successor must be an int64 or int32 tensor"),
        ({"successor": grid(1, 2)}, ValueError, "successor must have the shape"),
        ({"rewards": np.zeros((3, 2))}, TypeError, "rewards must be a tensor, got ndarray"),
        ({"terminated": [[False]]}, TypeError, "terminated must be a tensor, got list"),
        ({"num_states": 1}, ValueError, "num_states must be at least 8"),
        ({"successor": grid(-1)}, ValueError, "successor must hold state numbers from 0 on"),
        (
            {"terminated": grid(True), "truncated": grid(True), "successor": grid(1)},
            ValueError,
            "both terminated and truncated",
        ),
    ],
)
def test_bad_input_is_refused_with_a_reason(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments: dict[str, Any] = {"rewards": grid(0.0), "terminated": grid(False)} | changes
    with pytest.raises(error, match=message):
        Trajectories(**arguments)
