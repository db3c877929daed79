"""Vector environments from names, and their states for checkpoints."""

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from relval._bounds import Count, Natural, Share
from relval._errors import raised_in
from relval._names import installing, unknown
from relval.envs import atari, minatar
from relval.envs.atari import AtariPool
from relval.envs.random_state import capture as _capture_generator
from relval.envs.random_state import restore as _restore_generator


@dataclass(frozen=True)
class EnvConfig:
    """How environments are made and seen."""

    num_envs: Count = 8
    """Environments side by side."""
    normalise_observations: bool = False
    """Shift and scale observations by running statistics."""
    normalise_rewards: bool = False
    """Divide rewards by the running spread of discounted returns."""
    gauge: float = 0.0
    """Learn from rewards with 1 − γ of this added. Where nothing terminates the problem stays the
    same, with this added to all values (Lemma B.1). Scores are those of the true rewards."""
    sticky_actions: Share | None = None
    """Atari, MinAtar: probability that the last action is repeated in place of the chosen one; by
    default 0 for Atari, 0.1 for MinAtar."""
    full_actions: bool = False
    """Atari: offer all 18 actions, in place of those that the game knows."""
    episodic_life: bool = True
    """Atari: let the loss of a life end an episode; scores are those of whole games always."""
    fire_reset: bool = True
    """Atari: begin episodes with FIRE, in games that know it."""
    workers: Natural | None = None
    """Atari: processes that emulate, 0 for none beside the learner; by default one for each
    environment, but on a CPU no more than there are cores. Results do not depend on it."""
    ramping: bool = True
    """MinAtar: let the difficulty rise during an episode."""


def settle(name: str, config: EnvConfig) -> tuple[str, EnvConfig]:
    """An environment's one name, and its settings with nothing left open."""
    sticky = config.sticky_actions
    if sticky is None:
        sticky = 0.1 if name.startswith(minatar.PREFIX) else 0.0
    return atari.find(name) or name, replace(config, sticky_actions=sticky)


def gymnasium_id(name: str) -> str:
    """The id in `module:Id-v0`, whose module is imported so that it may register it."""
    module, colon, after = name.partition(":")
    if not colon:
        return name
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{name!r} asks for the module {module!r}, which cannot be imported: {error}"
        ) from error
    return after


class NoPicturesError(RuntimeError):
    """Says why environments cannot be looked at here."""


def make(
    name: str, config: EnvConfig, *, render: bool = False, screens: bool = False
) -> VectorEnv[Any, Any, Any]:
    """The vector environment of a name: `Pong`, `MinAtar/Breakout`, or any Gymnasium id.

    Args:
      name: The environment; `module:Id-v0` for one that a module registers when it is imported.
      config: How it is made and seen.
      render: Whether it will be asked for pictures.
      screens: Whether Atari games deliver screens, to be preprocessed elsewhere.
    """
    name, config = settle(name, config)
    assert config.sticky_actions is not None
    if name in atari.games():
        return AtariPool(
            name,
            config.num_envs,
            deliver="screens" if screens else "stacks",
            sticky_actions=config.sticky_actions,
            full_actions=config.full_actions,
            episodic_life=config.episodic_life,
            fire_reset=config.fire_reset,
            workers=0 if render else config.workers,
            render_mode="rgb_array" if render else None,
        )
    if name.startswith(minatar.PREFIX):
        return minatar.MinAtarVectorEnv(
            minatar.game(name),
            config.num_envs,
            sticky_actions=config.sticky_actions,
            ramping=config.ramping,
            render_mode="rgb_array" if render else None,
        )
    name = gymnasium_id(name)
    if name not in gym.registry:
        known = [*gym.registry, *minatar.names(), *atari.games()]
        raise unknown("environment", name, known, otherwise="`relval envs` lists some")
    options: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
    with _explained(f"{name} needs", drawn=render):
        if render:
            _check_draws(name)
        if gym.spec(name).entry_point == _CARTPOLE and not render:
            return gym.make_vec(name, config.num_envs, vectorization_mode="vector_entry_point")
        return gym.make_vec(
            name,
            config.num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
            **options,
        )


def _check_draws(name: str) -> None:
    with gym.make(name) as env:
        modes = env.metadata.get("render_modes", [])
    if "rgb_array" not in modes:
        raise NoPicturesError(
            f"{name} draws no pictures: a render mode 'rgb_array' was expected, got {modes}; "
            "`relval eval` plays it without"
        )


_CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"


def pictures(
    envs: VectorEnv[Any, Any, Any], wanted: Iterable[int] | None = None
) -> tuple[np.ndarray, ...]:
    """Environments as they look now, `[height, width, 3]`; they were made with `render`.

    Args:
      envs: All environments.
      wanted: The numbers of those to look at, all by default. Where each draws for itself, others
        draw nothing.
    """
    numbers = range(envs.num_envs) if wanted is None else wanted
    with _explained("pictures need", drawn=True):
        if isinstance(envs, SyncVectorEnv):
            return tuple(np.asarray(envs.envs[n].render()) for n in numbers)
        rendered: Any = envs.render()
    return tuple(np.asarray(rendered[n]) for n in numbers)


@contextmanager
def _explained(who_needs: str, *, drawn: bool) -> Iterator[None]:
    """Lets errors about what this machine lacks say what to do; others are left alone."""
    try:
        yield
    except gym.error.DependencyNotInstalled as error:
        kind = NoPicturesError if drawn else ModuleNotFoundError
        raise kind(f"{who_needs} {_missing(str(error))}") from error
    except Exception as error:
        if not _is_from_opengl(error):
            raise
        chosen = os.environ.get("MUJOCO_GL")
        raise NoPicturesError(
            f"{who_needs} OpenGL, which does not work here with MUJOCO_GL "
            f"{'unset' if chosen is None else f'= {chosen!r}'}: {error}. Without a screen, set "
            "MUJOCO_GL=egl or MUJOCO_GL=osmesa, and install the system's library for it (libEGL "
            "or libOSMesa)"
        ) from error


def _missing(what: str) -> str:
    """What to install, from Gymnasium's message about what is missing."""
    for package, extra in (("pygame", "video"), ("mujoco", "mujoco")):
        if package in what.lower():
            return f"the package `{package}`: run {installing(extra)}"
    return f"a package that is missing: {what}"


def _is_from_opengl(error: Exception) -> bool:
    """Whether MuJoCo or PyOpenGL, which may be missing and are not imported here, raised it."""
    if type(error).__module__.partition(".")[0] in ("mujoco", "OpenGL"):
        return True
    return raised_in(error) == "OpenGL"


def seen_space(envs: VectorEnv[Any, Any, Any], config: EnvConfig) -> gym.Space[np.ndarray]:
    """What one observation is to an agent, preprocessed if it is delivered raw, and normalised."""
    space: gym.Space[np.ndarray] = (
        envs.stack_space if isinstance(envs, AtariPool) else envs.single_observation_space
    )
    if config.normalise_observations and isinstance(space, gym.spaces.Box):
        return gym.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
    return space


def capture(envs: VectorEnv[Any, Any, Any]) -> dict[str, Any] | None:
    """The state of all environments, as JSON holds it; None where they offer none."""
    if isinstance(envs, AtariPool | minatar.MinAtarVectorEnv):
        return envs.capture()
    if isinstance(envs.unwrapped, CartPoleVectorEnv):
        cartpole = envs.unwrapped
        assert cartpole.state is not None
        return {
            "state": cartpole.state.tolist(),
            "steps": cartpole.steps.tolist(),
            "prev_done": cartpole.prev_done.tolist(),
            "random": _capture_generator(cartpole.np_random),
        }
    return None


def restore(
    envs: VectorEnv[Any, Any, Any], state: dict[str, Any], *, seen: np.ndarray | None = None
) -> None:
    """Puts environments back into a captured state.

    What an agent saw in it is needed where they now preprocess what they then delivered raw.
    """
    if isinstance(envs, AtariPool):
        envs.restore(state, stacks=seen)
        return
    if isinstance(envs, minatar.MinAtarVectorEnv):
        envs.restore(state)
        return
    cartpole: Any = envs.unwrapped
    cartpole.state = np.array(state["state"])
    cartpole.steps = np.array(state["steps"], dtype=np.int32)
    cartpole.prev_done = np.array(state["prev_done"], dtype=np.bool_)
    _restore_generator(cartpole.np_random, state["random"])
