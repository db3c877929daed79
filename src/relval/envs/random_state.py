"""The state of NumPy's random generators, as JSON holds it."""

from typing import Any

import numpy as np


def capture(random: np.random.Generator | np.random.RandomState) -> dict[str, Any]:
    """The state of a generator."""
    if isinstance(random, np.random.RandomState):
        state = random.get_state(legacy=False)
        assert isinstance(state, dict)
        inner = state["state"]
        return {**state, "state": {"key": inner["key"].tolist(), "pos": inner["pos"]}}
    return dict(random.bit_generator.state)


def restore(random: np.random.Generator | np.random.RandomState, state: dict[str, Any]) -> None:
    """Puts a generator into a captured state."""
    if isinstance(random, np.random.RandomState):
        inner = state["state"]
        key = np.array(inner["key"], dtype=np.uint32)
        random.set_state({**state, "state": {"key": key, "pos": inner["pos"]}})
    else:
        random.bit_generator.state = state
