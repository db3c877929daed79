"""From screens to frames and stacks, on tensors of any device."""

import torch
from torch import Tensor

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
