import numpy as np

def update_frames(
    one: np.ndarray, other: np.ndarray, grey: np.ndarray, seen: np.ndarray, frames: np.ndarray
) -> None: ...
