"""From screens to frames and stacks, on tensors of any device.

A rollout stores each frame once: `stack_rows` says which four make a stack.
"""

import torch
from torch import Tensor

from relval.envs.atari.player import STACK
from relval.envs.atari.screens import WIDTH, area_weights


class FrameMaker:
    """Grey, brightest of two, area-interpolated to 84 x 84.

    Agrees with `relval.envs.atari.screens.FrameMaker` except where an average lies half way between
    two grey levels: there the two may take different ones.

    Args:
      height: Of screens.
      grey: The grey of each value of a screen, `[256]`; see `AtariPool.grey`.
      device: Where screens will be.
    """

    def __init__(self, height: int, grey: Tensor, device: torch.device | str) -> None:
        rows, down = area_weights(height)
        columns, across = area_weights(WIDTH)
        self.grey = grey.to(device, torch.float32)
        # Whole numbers: sums are exact in float32, and for a height of 210 in TF32 as well.
        self.down = torch.from_numpy(rows).to(device, torch.float32)
        self.across = torch.from_numpy(columns).to(device, torch.float32).T.contiguous()
        self.denominator = float(down * across)

    def __call__(self, screens: Tensor) -> Tensor:
        """Frames `[N, 84, 84]` of pairs of screens `[N, 2, H, 160]`, all uint8."""
        brightest = self.grey[screens.int()].amax(1)
        sums = self.down @ brightest @ self.across
        return (sums / self.denominator).round().to(torch.uint8)


def push(stacks: Tensor, frames: Tensor, first: Tensor) -> Tensor:
    """Stacks with a frame more.

    Args:
      stacks: Of the states before, `[N, 4, 84, 84]`.
      frames: Of the states now, `[N, 84, 84]`.
      first: Where an episode begins, `[N]`: there the frame fills the stack.
    """
    moved = torch.cat([stacks[:, 1:], frames[:, None]], 1)
    return torch.where(first[:, None, None, None], frames[:, None], moved)


def stack_rows(first: Tensor) -> Tensor:
    """Which frames make the stacks of a rollout.

    Frames are stored as `[3 + T, N, 84, 84]`: the three before the rollout, as they stand in the
    first state's stack, then one for each state. The stack of state t of environment n is
    `frames[stack_rows(first)[t, n], n]`.

    Args:
      first: Which states begin an episode, `[T, N]`; for the first one it makes no difference.

    Returns:
      Rows of the memory of frames, `[T, N, 4]`, int64.
    """
    history = STACK - 1
    rows = torch.arange(history, history + len(first), device=first.device)[:, None]
    begins = torch.where(first, rows, 0).cummax(0).values
    past = torch.arange(-history, 1, device=first.device)
    return torch.maximum(rows[..., None] + past, begins[..., None])


def stacks(frames: Tensor, rows: Tensor) -> Tensor:
    """Stacks `[T, N, 4, 84, 84]` from single frames `[3 + T, N, 84, 84]` and their rows."""
    envs = torch.arange(frames.shape[1], device=frames.device)[:, None]
    return frames[rows, envs]
