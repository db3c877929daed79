"""Which episodes ended, and with what score."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv


@dataclass(frozen=True)
class Episode:
    """A finished episode; of an Atari game, all its lives together."""

    env: int
    score: float
    length: int


def autoreset_mode(envs: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """How a vector environment begins the next episode."""
    mode = envs.metadata.get("autoreset_mode")
    if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        raise ValueError(
            f"the vector environment's metadata must name its auto-reset mode, next-step or "
            f"same-step, got {mode!r}"
        )
    return AutoresetMode(mode)


class EpisodeCounter:
    """Follows the episodes of a vector environment.

    Scores are sums of rewards, unless the environment reports whole episodes by itself, as
    `infos["episode"]`, and its metadata say so.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.next_step = autoreset_mode(envs) is AutoresetMode.NEXT_STEP
        self.reported = bool(envs.metadata.get("reports_episodes"))
        self.ignored = np.zeros(envs.num_envs, dtype=np.bool_)
        """Environments whose next action will be ignored, because they begin an episode."""
        self.scores = np.zeros(envs.num_envs)
        self.lengths = np.zeros(envs.num_envs, dtype=np.int64)

    def count(self, rewards: np.ndarray, ended: np.ndarray, infos: dict[str, Any]) -> list[Episode]:
        """Takes in a step, and returns the episodes that it finished."""
        if self.reported:
            return _reported(infos)
        self.scores += rewards
        self.lengths += ~self.ignored
        finished = [
            Episode(int(n), float(self.scores[n]), int(self.lengths[n])) for n in ended.nonzero()[0]
        ]
        self.scores[ended] = 0.0
        self.lengths[ended] = 0
        if self.next_step:
            self.ignored = ended
        return finished

    def capture(self) -> dict[str, Any]:
        """The episodes in progress, as JSON holds them."""
        return {
            "ignored": self.ignored.tolist(),
            "scores": self.scores.tolist(),
            "lengths": self.lengths.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Puts captured episodes back."""
        self.ignored = np.array(state["ignored"], dtype=np.bool_)
        self.scores = np.array(state["scores"])
        self.lengths = np.array(state["lengths"], dtype=np.int64)


def _reported(infos: dict[str, Any]) -> list[Episode]:
    if "_episode" not in infos:
        return []
    scores, lengths = infos["episode"]["r"], infos["episode"]["l"]
    return [
        Episode(int(n), float(scores[n]), int(lengths[n])) for n in infos["_episode"].nonzero()[0]
    ]
