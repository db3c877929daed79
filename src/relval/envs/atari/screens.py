"""From the two last screens of a step to the frame that the agent sees."""

import math
from functools import cache

import numpy as np

try:
    from relval.envs.atari import _frames as _frames
except ImportError:  # it was not built: there was no compiler
    _frames = None  # type: ignore[assignment]

WIDTH = 160
"""Of every screen; the height depends on the game."""
SIZE = 84
"""Height and width of a frame."""

# The luminance of the console's 128 colours (NTSC), which fill the even places of a screen's
# alphabet; as `ALEInterface.getScreenGrayscale` gives them.
_LUMINANCE = (
    *(0, 74, 111, 142, 170, 192, 214, 236, 64, 95, 122, 148, 172, 193, 214, 233),
    *(63, 87, 110, 131, 150, 167, 184, 199, 59, 85, 107, 129, 148, 167, 183, 199),
    *(44, 68, 90, 110, 128, 146, 161, 176, 51, 74, 95, 115, 132, 149, 164, 178),
    *(39, 63, 85, 107, 125, 143, 159, 174, 22, 49, 73, 96, 116, 136, 153, 169),
    *(17, 41, 64, 85, 104, 121, 137, 153, 32, 60, 85, 109, 130, 150, 168, 186),
    *(40, 69, 95, 120, 141, 162, 182, 200, 43, 74, 101, 127, 151, 173, 193, 212),
    *(40, 71, 98, 124, 147, 169, 189, 207, 41, 74, 104, 132, 157, 181, 203, 223),
    *(47, 79, 107, 133, 157, 179, 200, 220, 47, 79, 107, 133, 157, 179, 200, 220),
)
NTSC = np.repeat(np.array(_LUMINANCE, dtype=np.uint8), 2)
"""The grey of each colour of an NTSC game, `[256]`."""
IDENTITY = np.arange(256, dtype=np.uint8)
"""The grey of each colour where screens are grey already, `[256]`."""


def area_weights(size: int) -> tuple[np.ndarray, int]:
    """How much of each of `size` pixels goes into each of the 84.

    Returns:
      Whole numbers `[84, size]`, and the denominator that makes averages of them.
    """
    common = math.gcd(size, SIZE)
    span, grain = size // common, SIZE // common  # of a pixel of the frame, and of the screen
    begins, ends = np.arange(SIZE)[:, None] * span, np.arange(1, SIZE + 1)[:, None] * span
    pixels = np.arange(size)
    overlap = np.minimum(ends, (pixels + 1) * grain) - np.maximum(begins, pixels * grain)
    return overlap.clip(min=0), span


class FrameMaker:
    """Grey, brightest of two, area-interpolated to 84 x 84: bit for bit OpenCV's `INTER_AREA`.

    Averages are computed in whole numbers, where every sum is exact, so order and hardware do not
    matter. OpenCV computes in single precision, and so differs where the exact average lies half
    way between two grey levels: there, and only there, its arithmetic is repeated.

    Compiled code does this where it could be built, and remembers what it has seen, since from one
    step to the next most of a screen stays; NumPy gives the same numbers, later.

    Args:
      height: Of the screens.
      grey: The grey of each of their values, `[256]`.
      count: The games whose frames are made together.
    """

    def __init__(self, height: int, grey: np.ndarray, count: int = 1) -> None:
        self.grey = grey
        # Frames of black screens, to begin with.
        self._seen = np.zeros((2, count, height, WIDTH), np.uint8)
        self._frames = np.full((count, SIZE, SIZE), grey[0], np.uint8)
        self._translation = grey.tobytes()
        rows, down = area_weights(height)
        columns, across = area_weights(WIDTH)
        self._denominator = np.float32(down * across)
        self._rows, weights = _sparse(rows)
        self._row_weights = weights.astype(np.uint16)[..., None]
        # The pattern of columns repeats, so that one small matrix does for all.
        self._period = WIDTH // math.gcd(WIDTH, SIZE)
        block = columns[: SIZE * self._period // WIDTH, : self._period]
        self._column_weights = np.ascontiguousarray(block.T, dtype=np.float32)

    def __call__(self, screens: np.ndarray) -> np.ndarray:
        """The frames `[n, 84, 84]` of pairs of screens `[2, n, H, 160]`, until the next call."""
        if _frames is None:
            return self.shrink(self.brightest(screens))
        _frames.update_frames(screens[0], screens[1], self.grey, self._seen, self._frames)
        return self._frames

    def brightest(self, screens: np.ndarray) -> np.ndarray:
        """The greater grey of two screens each, `[n, H, 160]`; they mostly agree."""
        one, other = screens.reshape(2, -1)
        grey = np.frombuffer(bytearray(other).translate(self._translation), np.uint8)
        apart = np.flatnonzero(one != other)
        grey[apart] = np.maximum(grey[apart], self.grey[one[apart]])
        brightest: np.ndarray = grey.reshape(screens.shape[1:])
        return brightest

    def shrink(self, screens: np.ndarray) -> np.ndarray:
        """Area interpolation of grey screens, `[n, 84, 84]`."""
        # Products small enough that BLAS will not start threads for them.
        blocks = self._down(screens).astype(np.float32).reshape(2 * len(screens), -1, self._period)
        average = (blocks @ self._column_weights).reshape(-1, SIZE, SIZE)
        average /= self._denominator
        rounded = np.rint(average)
        frames: np.ndarray = rounded.astype(np.uint8)
        average -= rounded
        halves = np.flatnonzero(np.abs(average, out=average) == 0.5)
        if len(halves):
            frames.reshape(-1)[halves] = self._like_opencv(screens, halves)
        return frames

    def _down(self, screens: np.ndarray) -> np.ndarray:
        """Weighted sums of rows, `[n, 84, 160]`."""
        if screens.shape[1] == 210:  # five rows make two, with weights 2 2 1 and 1 2 2
            fives = screens.reshape(-1, 5, WIDTH)
            down: np.ndarray = np.add(fives[:, 0::3], fives[:, 1::3], dtype=np.uint16)
            down <<= 1
            down += fives[:, 2:3]
            return down
        down = screens.take(self._rows[0], 1) * self._row_weights[0]
        for row, weight in zip(self._rows[1:], self._row_weights[1:], strict=True):
            down += screens.take(row, 1) * weight
        return down

    def _like_opencv(self, screens: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Single pixels of frames, in OpenCV's precision and order: along rows, then down."""
        screen, place = np.divmod(places, SIZE * SIZE)
        pixels, along, down = (table.take(place, 0) for table in _neighbours(screens.shape[1]))
        pixels += (screen * screens[0].size)[:, None, None]
        sums = _in_order(screens.reshape(-1).take(pixels) * along) * down
        rounded: np.ndarray = np.rint(_in_order(sums))
        return rounded


def _sparse(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pixels with weight, `[K, 84]`, and their weights; padded with weight 0."""
    most = int((weights > 0).sum(1).max())
    first = (weights > 0).argmax(1)
    pixels = np.minimum(first + np.arange(most)[:, None], weights.shape[1] - 1)
    chosen = np.take_along_axis(weights, pixels.T, 1).T
    chosen[first + np.arange(most)[:, None] >= weights.shape[1]] = 0
    return pixels, chosen


@cache
def _neighbours(height: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What OpenCV sums up for each pixel of a frame.

    Returns:
      The pixels of the screen `[84 * 84, rows, columns]`, as places in its memory, the weights
      along a row in the same shape, and the weights of the rows, `[84 * 84, rows]`.
    """
    (rows, down), (columns, along) = _single_precision(height), _single_precision(WIDTH)
    shape = (SIZE, SIZE, len(rows), len(columns))
    pixels = rows.T[:, None, :, None] * WIDTH + columns.T[None, :, None, :]
    return (
        pixels.reshape(SIZE * SIZE, *shape[2:]),
        np.broadcast_to(along.T[None, :, None, :], shape).reshape(SIZE * SIZE, *shape[2:]),
        np.broadcast_to(down.T[:, None, :], shape[:3]).reshape(SIZE * SIZE, -1),
    )


def _single_precision(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixels and weights of `_sparse`, the weights rounded as OpenCV rounds them."""
    exact, _ = area_weights(size)
    pixels, chosen = _sparse(exact)
    scale = size / SIZE
    begins = np.arange(SIZE) * scale
    ends = begins + scale
    covered = np.minimum(ends, pixels + 1.0) - np.maximum(begins, pixels)
    weights = covered / np.minimum(scale, size - begins)
    return pixels, np.where(chosen > 0, weights, 0.0).astype(np.float32)


def _in_order(terms: np.ndarray) -> np.ndarray:
    """The sum over the last axis, one term after the other, rounded each time."""
    total: np.ndarray = terms[..., 0]
    for k in range(1, terms.shape[-1]):
        total = total + terms[..., k]
    return total
