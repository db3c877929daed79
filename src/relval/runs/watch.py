"""Warns when a run shows what, on Atari, kept policies from learning."""

import warnings
from collections import deque

_UPDATES = 200
"""A warning is about the mean of so many: all runs begin with a strong critic."""
_TROUBLES = {
    "critic_share": (
        0.92,
        "the critic drowns the policy: {mean:.0%} of the gradient at the features that they share "
        "is its own; make critic.coefficient smaller",
    ),
    "dead_features": (
        0.95,
        "{mean:.0%} of the features are dead, zero in all states; make critic.coefficient or the "
        "learning rate smaller",
    ),
}
"""By metric: how much is too much, and what to say. Measured on Pong: docs/reproduction.md."""


class Watch:
    """Looks at each update of a run, and warns once about each trouble."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen = {metric: deque[float](maxlen=_UPDATES) for metric in _TROUBLES}

    def look(self, step: int, metrics: dict[str, float]) -> None:
        """Takes in what an update has logged."""
        for metric, seen in list(self._seen.items()):
            if metric in metrics:
                seen.append(metrics[metric])
            limit, message = _TROUBLES[metric]
            if len(seen) == _UPDATES and (mean := sum(seen) / _UPDATES) > limit:
                del self._seen[metric]
                said = message.format(mean=mean)
                warnings.warn(f"{self._name}, step {step:,}: {said}", RuntimeWarning, stacklevel=2)
