"""Errors that say what was wrong, what was expected and what to do."""

from typing import Any

from torch import Tensor


def check_unit_interval(name: str, value: float) -> None:
    """Refuses a discount, trace decay or probability outside [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")


def check_steps(name: str, value: int) -> None:
    """Refuses a number of steps that is not a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_tensor(name: str, given: Any) -> None:
    """Refuses what is no tensor."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(given).__name__}; use torch.as_tensor")


def check_floating(name: str, tensor: Tensor) -> None:
    """Refuses a tensor of another kind than floating point."""
    check_tensor(name, tensor)
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {tensor.dtype}")


def check_integer(name: str, tensor: Tensor) -> None:
    """Refuses a tensor of numbers that cannot be used to index."""
    check_tensor(name, tensor)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype.itemsize < 4:
        raise TypeError(f"{name} must be an int64 or int32 tensor of numbers, got {tensor.dtype}")


def check_same_shape(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Refuses two tensors whose shapes differ, since broadcasting them would hide a mistake."""
    if tensor.shape != other.shape:
        raise ValueError(
            f"{name} and {other_name} must have the same shape, "
            f"got {list(tensor.shape)} and {list(other.shape)}"
        )


def check_one_per_state(name: str, tensor: Tensor, num_states: int) -> None:
    """Refuses anything but one floating-point number for each of the states."""
    check_floating(name, tensor)
    if tensor.ndim != 1 or len(tensor) < num_states:
        raise ValueError(
            f"{name} must hold one number for each of the {num_states} states, "
            f"shape [{num_states}], got shape {list(tensor.shape)}"
        )
