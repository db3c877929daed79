"""Which environments there are, and how to name them."""

import importlib.util
from dataclasses import dataclass

from relval._names import installing, not_installed
from relval.envs import atari, minatar


@dataclass(frozen=True)
class Family:
    """Environments that are named alike."""

    title: str
    note: str
    names: list[str]


def catalogue() -> list[Family]:
    """The environments, by family."""
    others = [game for game in atari.games() if game not in atari.PAPER_GAMES]
    return [
        Family(
            "Atari, the 49 games of the paper",
            "Pong, pong, ALE/Pong-v5 and PongNoFrameskip-v4 all mean the same" + _needs("ale_py"),
            list(atari.PAPER_GAMES),
        ),
        Family("Atari, other games", "named alike" + _needs("ale_py"), others),
        Family("MinAtar", "miniature games, quick to learn" + _needs("minatar"), minatar.names()),
        Family(
            "Gymnasium",
            "by their ids, where observations form a Box, of which images are seen as vectors, and "
            "actions are discrete or continuous; HalfCheetah-v5 and its like need "
            f"{installing('mujoco')}, LunarLander-v3 and its like "
            '`pip install "gymnasium[box2d]"`; for example',
            ["CartPole-v1", "Acrobot-v1", "LunarLander-v3", "Pendulum-v1", "HalfCheetah-v5"],
        ),
    ]


def _needs(package: str) -> str:
    if importlib.util.find_spec(package) is not None:
        return ""
    return f"; {not_installed(package, {'ale_py': 'atari'}.get(package, package))}"
