"""Named settings, each number with the place it comes from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from inspect import signature
from typing import Any, TypeVar

import gymnasium as gym

from relval._names import check_name
from relval.critics import (
    CRITICS,
    AbsoluteConfig,
    CriticConfig,
    DAEConfig,
    DiscountedConfig,
    RelativeConfig,
)
from relval.envs import EnvConfig, gymnasium_id, minatar, settle
from relval.networks import NetworkConfig
from relval.ppo import PPOConfig
from relval.preferences import PreferenceConfig
from relval.runs.config import Config, check_settings

Section = TypeVar("Section", CriticConfig, EnvConfig, NetworkConfig, PPOConfig, PreferenceConfig)


@dataclass(frozen=True)
class Preset:
    """Settings for a family of environments, and for each critic that they were made for."""

    summary: str
    critics: dict[str, CriticConfig]
    ppo: PPOConfig
    network: NetworkConfig
    envs: EnvConfig
    total_steps: int
    changes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """What single critics want otherwise, section by section."""


# "Relative Value Learning" (ICLR 2026), App. D, Table 3, unless said otherwise.
_PAPER_PPO = PPOConfig(
    gamma=0.99,
    lam=0.95,
    clip=0.1,
    epochs=5,
    minibatch=128,
    steps=128,
    learning_rate=2.5e-4,
    adam_eps=1e-5,
    entropy=0.01,
    max_grad_norm=0.5,
    anneal_learning_rate=False,  # not mentioned
    anneal_clip=False,  # not mentioned
)
_PAPER_RELATIVE = RelativeConfig(
    coefficient=1.25,
    clip=0.15,
    target="n-step",  # Sec. 5
    n=5,
    pairs="biased",  # App. D, "Additional Hyperparameters Details"
    same_episode=0.33,  # the same
    head="linear",  # Sec. 5.1
    anchor="rank",  # Sec. 4.1
    both_terminal="zero",  # Sec. 3.3
    normalise_advantages=True,  # not mentioned; usual in PPO for Atari
)
_ATARI_NETWORK = NetworkConfig(shared=True)  # Sec. 5.1
_ATARI_ENVS = EnvConfig(num_envs=8)
_ATARI_STEPS = 10_000_000  # Sec. 6: 40M frames

# All that relval brings; others, which users register, are taken with their own defaults.
_SMALL_CRITICS: dict[str, CriticConfig] = {
    "absolute": AbsoluteConfig(),
    "relative": RelativeConfig(),
    "discounted": DiscountedConfig(coefficient=0.1, clip=None),
    "dae": DAEConfig(coefficient=0.5),
}

PRESETS: dict[str, Preset] = {
    "paper": Preset(
        summary="Relative Value Learning as printed",
        critics={"relative": _PAPER_RELATIVE},
        ppo=_PAPER_PPO,
        network=_ATARI_NETWORK,
        envs=_ATARI_ENVS,
        total_steps=_ATARI_STEPS,
    ),
    "paper-fit": Preset(
        summary="the reading of the paper that learns: a half in the critic's loss",
        critics={"relative": replace(_PAPER_RELATIVE, coefficient=1.25 / 2)},
        ppo=_PAPER_PPO,
        network=_ATARI_NETWORK,
        envs=_ATARI_ENVS,
        total_steps=_ATARI_STEPS,
    ),
    "relval": Preset(
        summary="the best found for Atari",
        critics={
            "relative": RelativeConfig(),
            "discounted": DiscountedConfig(coefficient=0.3),
            "absolute": AbsoluteConfig(coefficient=0.5),
            "dae": DAEConfig(coefficient=1.5),
        },
        ppo=_PAPER_PPO,
        # CustomPPO_atari.yml of Pan et al. (2022); their gradients are not clipped.
        changes={"dae": {"ppo": {"epochs": 6, "max_grad_norm": None}}},
        network=_ATARI_NETWORK,
        envs=_ATARI_ENVS,
        total_steps=_ATARI_STEPS,
    ),
    "ppo2017": Preset(
        summary="PPO's own settings for Atari",
        # Schulman et al. (2017), Table 5; the squared error is halved, as in the authors' code.
        critics={"absolute": AbsoluteConfig(coefficient=1.0)},
        ppo=PPOConfig(
            steps=128,
            epochs=3,
            minibatch=32 * 8,
            gamma=0.99,
            lam=0.95,
            clip=0.1,
            anneal_clip=True,
            learning_rate=2.5e-4,
            anneal_learning_rate=True,
            entropy=0.01,
            adam_eps=1e-5,  # the authors' code
            max_grad_norm=0.5,  # the authors' code
        ),
        network=_ATARI_NETWORK,
        envs=_ATARI_ENVS,
        total_steps=_ATARI_STEPS,
    ),
    "cleanrl": Preset(
        summary="CleanRL's settings for Atari",
        # The defaults of CleanRL's ppo_atari.py.
        critics={"absolute": AbsoluteConfig(coefficient=0.5, clip=0.1)},
        ppo=PPOConfig(
            steps=128,
            epochs=4,
            minibatch=128 * 8 // 4,
            gamma=0.99,
            lam=0.95,
            clip=0.1,
            learning_rate=2.5e-4,
            anneal_learning_rate=True,
            entropy=0.01,
            adam_eps=1e-5,
            max_grad_norm=0.5,
        ),
        network=_ATARI_NETWORK,
        envs=_ATARI_ENVS,
        total_steps=_ATARI_STEPS,
    ),
    # The following were found by trial on the environments that they are for.
    "classic": Preset(
        summary="CartPole and other small tasks with discrete actions",
        critics=_SMALL_CRITICS,
        ppo=PPOConfig(
            epochs=4,
            minibatch=256,
            clip=0.2,
            learning_rate=1e-3,
            anneal_learning_rate=True,
            entropy=0.0,
        ),
        changes={"dae": {"ppo": {"epochs": 10}}},
        network=NetworkConfig(shared=False),
        # Errors of values near 100 would fill the gradient's norm, and hold up the policy; and on
        # Acrobot the relative critic fails without, on two seeds of five (suite anchors).
        envs=EnvConfig(num_envs=8, normalise_rewards=True),
        total_steps=300_000,
    ),
    "minatar": Preset(
        summary="MinAtar",
        critics=_SMALL_CRITICS,
        ppo=PPOConfig(epochs=4, minibatch=256, clip=0.1, learning_rate=1e-3, entropy=0.01),
        changes={"dae": {"ppo": {"epochs": 10}}},
        network=NetworkConfig(shared=True),
        envs=EnvConfig(num_envs=8),
        total_steps=1_000_000,
    ),
    "pendulum": Preset(
        summary="Pendulum and other small tasks with continuous actions",
        critics=_SMALL_CRITICS,
        ppo=PPOConfig(
            steps=256,
            epochs=10,
            minibatch=256,
            clip=0.2,
            learning_rate=1e-3,
            anneal_learning_rate=True,
            entropy=0.0,
        ),
        network=NetworkConfig(shared=False),
        envs=EnvConfig(num_envs=8, normalise_observations=True, normalise_rewards=True),
        total_steps=500_000,
    ),
    "mujoco": Preset(
        summary="MuJoCo",
        critics=_SMALL_CRITICS,
        ppo=PPOConfig(
            steps=256,
            epochs=10,
            minibatch=64,
            clip=0.2,
            learning_rate=3e-4,
            anneal_learning_rate=True,
            entropy=0.0,
        ),
        network=NetworkConfig(shared=False),
        envs=EnvConfig(num_envs=8, normalise_observations=True, normalise_rewards=True),
        total_steps=1_000_000,
    ),
}


def preset_for(env: str) -> str:
    """The preset that an environment gets when none is named, by what it shows and takes."""
    if env.startswith(minatar.PREFIX):
        return "minatar"
    name = gymnasium_id(env)
    if name not in gym.registry:
        return "relval"  # Atari, or else refused when it is made
    return _preset_of_registered(name)


@cache  # suites ask for each of their runs, and some environments are slow to make
def _preset_of_registered(name: str) -> str:
    if "mujoco" in str(gym.spec(name).entry_point):
        return "mujoco"
    try:
        with gym.make(name) as made:
            seen, done = made.observation_space, made.action_space
    except gym.error.DependencyNotInstalled:
        return "classic"
    if seen.shape is not None and len(seen.shape) == 3:
        return "relval"
    return "pendulum" if isinstance(done, gym.spaces.Box) else "classic"


def configure(
    env: str,
    critic: str = "relative",
    *,
    preset: str | None = None,
    seed: int = 1,
    total_steps: int | None = None,
    critic_options: dict[str, Any] | None = None,
    ppo: dict[str, Any] | None = None,
    network: dict[str, Any] | None = None,
    envs: dict[str, Any] | None = None,
    preferences: dict[str, Any] | None = None,
    **others: Any,
) -> Config:
    """A configuration from names, with single values changed.

    Example: `configure("CartPole-v1", "relative", seed=2, ppo={"clip": 0.1})`.

    Args:
      env: `Pong`, `MinAtar/Breakout` and the like, any Gymnasium id, or `module:Id-v0` for one that
        a module registers.
      critic: absolute, relative, discounted or dae, or one of your own that is registered, with
        its configuration's defaults.
      preset: A name from `PRESETS`; by default the one that suits the environment.
      seed: Of everything random in the run.
      total_steps: Environment steps; by default the preset's.
      critic_options: Changes to the critic's settings.
      ppo: Changes to PPO's settings.
      network: Changes to the network's settings.
      envs: Changes to the environments' settings.
      preferences: Changes to how rewards are learned from comparisons; by default they are not.
      **others: Other fields of `Config`.
    """
    if not isinstance(env, str):
        raise TypeError(
            "an environment is named, as 'CartPole-v1' or 'my_module:MyEnv-v0', so that the run "
            f"can make more of it, got {env!r}"
        )
    check_name("critic", critic, CRITICS)
    name = preset or preset_for(env)
    check_name("preset", name, PRESETS)
    chosen = PRESETS[name]
    if critic in _SMALL_CRITICS and critic not in chosen.critics:
        raise ValueError(
            f"the preset {name!r} is for the critics {', '.join(chosen.critics)}, not for "
            f"{critic!r}; leave the preset out, or choose another"
        )
    own = chosen.changes.get(critic, {})
    told = chosen.critics[critic] if critic in chosen.critics else CRITICS[critic][0]()
    _check_others(others, told)

    def section(name: str, original: Section, changes: dict[str, Any] | None) -> Section:
        return _changed(name, _changed(name, original, own.get(name, {})), changes or {})

    env, settled = settle(env, section("envs", chosen.envs, envs))
    return Config(
        env=env,
        critic=section("critic", told, critic_options),
        preset=name,
        seed=seed,
        total_steps=chosen.total_steps if total_steps is None else total_steps,
        envs=settled,
        network=section("network", chosen.network, network),
        ppo=section("ppo", chosen.ppo, ppo),
        preferences=section("preferences", PreferenceConfig(), preferences),
        **others,
    )


def _check_others(others: Iterable[str], critic: CriticConfig) -> None:
    """Refuses what `configure` does not take, with the section that has it, if one has."""
    sections: dict[str, Any] = {
        "ppo": PPOConfig,
        "critic_options": critic,
        "network": NetworkConfig,
        "envs": EnvConfig,
        "preferences": PreferenceConfig,
    }
    for name in others:
        for section, kind in sections.items():
            if name in (item.name for item in fields(kind)):
                raise ValueError(
                    f"{name} is a setting of {section}: pass {section}={{{name!r}: ...}}"
                )
    taken = [*signature(configure).parameters][:-1]  # the last is `others`
    known = dict.fromkeys([*taken, *(item.name for item in fields(Config))])
    for name in others:
        check_name("argument of configure", name, known)


def _changed(section: str, original: Section, changes: dict[str, Any]) -> Section:
    """A section with single values changed."""
    if not isinstance(changes, Mapping):
        raise TypeError(f"{section} must be a mapping of settings to values, got {changes!r}")
    check_settings(changes, [item.name for item in fields(original)], f"{section}.")
    return replace(original, **changes)
