import re
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml

from relval._bounds import check_fields
from relval.critics import CRITICS, Critic, CriticConfig, RelativeConfig
from relval.runs import PRESETS, Config, configure
from relval.runs.config import from_yaml, to_yaml
from relval.runs.presets import preset_for
from relval.runs.trainer import Trainer

ALL = [(preset, critic) for preset in PRESETS for critic in PRESETS[preset].critics]
TRAINABLE = {
    "classic": "CartPole-v1",
    "minatar": "MinAtar/Breakout",
    "pendulum": "Pendulum-v1",
    "mujoco": "Pendulum-v1",
}
"""An environment for each preset that is not for Atari."""


def changed(config: Config, section: str | None, **values: object) -> str:
    """The configuration as YAML, with values added or changed."""
    tree = yaml.safe_load(to_yaml(config))
    (tree[section] if section else tree).update(values)
    return yaml.safe_dump(tree)


@pytest.fixture
def config() -> Config:
    return configure("CartPole-v1", "relative")


@pytest.mark.parametrize(("preset", "critic"), ALL)
def test_every_preset_survives_yaml(preset: str, critic: str) -> None:
    made = configure("CartPole-v1", critic, preset=preset, seed=7)
    assert made.preset == preset
    assert from_yaml(to_yaml(made)) == made


@pytest.mark.parametrize(("preset", "critic"), ALL)
def test_every_critic_of_a_preset_meets_rewards_on_the_same_scale(preset: str, critic: str) -> None:
    made = configure("CartPole-v1", critic, preset=preset)
    assert made.envs.normalise_rewards == (preset in ("classic", "pendulum", "mujoco"))


def test_values_that_are_not_the_preset_s_survive_yaml() -> None:
    made = configure(
        "MinAtar/Breakout",
        "relative",
        total_steps=5,
        checkpoint_every=3,
        threads=2,
        critic_options={"head": "mlp", "clip": 0.125, "anchor": "zero"},
        ppo={"max_grad_norm": None, "learning_rate": 1e-7, "minibatch": 9},
        network={"hidden": (3, 2, 1), "activation": "relu"},
        envs={"sticky_actions": 0.0, "ramping": False, "normalise_rewards": True},
    )
    assert from_yaml(to_yaml(made)) == made


def test_whole_numbers_in_yaml_become_floats_where_floats_are_meant(config: Config) -> None:
    read = from_yaml(changed(config, "ppo", clip=1, max_grad_norm=2))
    assert isinstance(read.ppo.clip, float)
    assert isinstance(read.ppo.max_grad_norm, float)


@pytest.mark.parametrize(
    ("section", "wrong", "right"),
    [
        ("ppo", "learning_rat", "ppo.learning_rate"),
        ("critic", "same_episodes", "critic.same_episode"),
        ("envs", "num_env", "envs.num_envs"),
        ("network", "hiden", "network.hidden"),
        (None, "total_step", "total_steps"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_one(
    config: Config, section: str | None, wrong: str, right: str
) -> None:
    with pytest.raises(ValueError, match=rf"{wrong}'; did you mean {right}\?"):
        from_yaml(changed(config, section, **{wrong: 1}))


def test_a_setting_like_no_other_is_refused(config: Config) -> None:
    with pytest.raises(ValueError, match=r"no setting 'ppo\.xyzzy'; choose from ppo\.steps, "):
        from_yaml(changed(config, "ppo", xyzzy=1))


@pytest.mark.parametrize("text", ["", "[]", "env: CartPole-v1\n"])
def test_yaml_without_a_critic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a mapping with a section `critic`"):
        from_yaml(text)


def test_an_environment_that_is_no_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"an environment is named, as 'CartPole-v1'.*, got <"):
        configure(gym.make("CartPole-v1"))  # type: ignore[arg-type]


def test_an_unknown_critic_in_yaml_is_refused_with_the_known_ones(config: Config) -> None:
    message = "one of absolute, relative, discounted, dae, .* import the module that registers it"
    with pytest.raises(ValueError, match=message):
        from_yaml(changed(config, "critic", name="relativ"))


@dataclass(frozen=True)
class OwnConfig(CriticConfig):
    """Of a critic that a user registers."""

    width: int = 3


@pytest.mark.parametrize("preset", PRESETS)
def test_a_critic_of_ones_own_gets_any_presets_settings(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CRITICS, "own", (OwnConfig, Critic))
    made = configure("CartPole-v1", "own", preset=preset, critic_options={"width": 4})
    assert made.critic == OwnConfig(width=4)
    assert made.ppo == PRESETS[preset].ppo
    assert from_yaml(to_yaml(made)) == made


@pytest.mark.parametrize(
    "values",
    [
        {"total_steps": -1},
        {"total_steps": 0},
        {"threads": 0},
        {"checkpoint_every": 0},
        {"envs": {"num_envs": 0}},
        {"ppo": {"steps": 0}},
        {"ppo": {"epochs": 0}},
        {"ppo": {"minibatch": 0}},
        {"ppo": {"minibatch": 8 * 128 + 1}},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(values: dict[str, Any]) -> None:
    name, value = next(iter(values.items()))
    full = f"{name}.{next(iter(value))}" if isinstance(value, dict) else name
    with pytest.raises(ValueError, match=f"^{full} must be at"):
        configure("CartPole-v1", "relative", **values)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("ppo", {"gamma": 1.5}),
        ("ppo", {"lam": -0.1}),
        ("ppo", {"clip": 0.0}),
        ("ppo", {"entropy": -0.1}),
        ("ppo", {"learning_rate": -1e-3}),
        ("ppo", {"max_grad_norm": 0.0}),
        ("envs", {"sticky_actions": 2.0}),
        ("critic", {"n": 0}),
        ("critic", {"coefficient": -1.0}),
        ("critic", {"clip": 0.0}),
        ("critic", {"same_episode": 2.0}),
        ("critic", {"head": "liner"}),
        ("critic", {"anchor": "rnk"}),
        ("network", {"activation": "gelu"}),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_before_a_run_begins(
    config: Config, section: str, values: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"{section}.{next(iter(values))} must"):
        from_yaml(changed(config, section, **values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "a"}, "^seed must be a whole number, got 'a'"),
        ({"seed": True}, "^seed must be a whole number, got True"),
        ({"total_steps": 1e5}, "^total_steps must be a whole number, got 100000.0"),
        ({"ppo": {"epochs": 2.5}}, "^ppo.epochs must be a whole number, got 2.5"),
        ({"ppo": {"clip": "wide"}}, "^ppo.clip must be a number, got 'wide'"),
        ({"ppo": {"clip": True}}, "^ppo.clip must be a number, got True"),
        ({"ppo": {"anneal_clip": 1}}, "^ppo.anneal_clip must be True or False, got 1"),
        ({"seed": None}, "^seed must be a whole number, got None"),
        ({"ppo": {"gamma": None}}, "^ppo.gamma must be a number, got None"),
        ({"ppo": {"anneal_clip": None}}, "^ppo.anneal_clip must be True or False, got None"),
        ({"ppo": {"learning_rate": np.inf}}, "^ppo.learning_rate must be finite, got inf"),
        ({"ppo": {"max_grad_norm": np.nan}}, "^ppo.max_grad_norm must be finite, got nan"),
        ({"critic_options": {"head": None}}, "^critic.head must be one of linear, mlp, got None"),
        ({"envs": {"gauge": "x"}}, "^envs.gauge must be a number, got 'x'"),
        ({"envs": {"gauge": -np.inf}}, "^envs.gauge must be finite, got -inf"),
        ({"envs": {"workers": -1}}, "^envs.workers must be at least 0, got -1"),
        ({"envs": {"workers": 0.5}}, "^envs.workers must be a whole number, got 0.5"),
        ({"device": None}, "^device must be one of cpu, cuda, got None"),
        ({"network": {"hidden": ()}}, "^network.hidden must be one or more whole.*got \\(\\)"),
        ({"network": {"hidden": (64, 0)}}, "^network.hidden must .*, got \\(64, 0\\)"),
        ({"network": {"hidden": (-3,)}}, "^network.hidden must .*, got \\(-3,\\)"),
        ({"network": {"hidden": (2.5,)}}, "^network.hidden must .*, got \\(2.5,\\)"),
        ({"network": {"hidden": 64}}, "^network.hidden must .*, got 64"),
        ({"network": {"hidden": None}}, "^network.hidden must .*, got None"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure("CartPole-v1", "relative", **values)


def test_none_is_a_value_where_the_type_says_so() -> None:
    made = configure(
        "CartPole-v1",
        "absolute",
        threads=None,
        critic_options={"clip": None},
        ppo={"max_grad_norm": None},
        envs={"workers": None, "sticky_actions": None},
    )
    assert made.ppo.max_grad_norm is None


def test_a_section_is_checked_alone() -> None:
    check_fields(RelativeConfig(), "critic.")
    with pytest.raises(ValueError, match=r"^critic\.n must be at least 1, got 0"):
        check_fields(RelativeConfig(n=0), "critic.")


def test_numbers_may_be_those_of_numpy() -> None:
    options: dict[str, Any] = {"seed": np.int64(3), "ppo": {"clip": np.float32(0.5)}}
    config = configure("CartPole-v1", **options)
    assert from_yaml(to_yaml(config)) == configure("CartPole-v1", seed=3, ppo={"clip": 0.5})


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"clip": 0.1}, ValueError, r"clip is a setting of ppo: pass ppo=\{'clip': \.\.\.\}"),
        ({"anchor": "rank"}, ValueError, "anchor is a setting of critic_options"),
        ({"devise": "cpu"}, ValueError, "no argument of configure 'devise'; did you mean device?"),
        ({"options": {"n": 3}}, ValueError, "'options'; did you mean critic_options?"),
        ({"xyzzy": 1}, ValueError, "choose from env, critic, .*, critic_options, .*, device"),
        ({"ppo": 0.1}, TypeError, "ppo must be a mapping of settings to values, got 0.1"),
    ],
)
def test_a_setting_in_the_wrong_place_is_refused_with_the_right_one(
    values: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        configure("CartPole-v1", "relative", **values)


@pytest.mark.parametrize(("preset", "critic"), ALL)
def test_every_preset_makes_a_run(preset: str, critic: str) -> None:
    env = TRAINABLE.get(preset)
    made = configure(env or "CartPole-v1", critic, preset=preset)
    if env == "Pendulum-v1" and critic == "dae":
        made = replace(made, env="CartPole-v1")
    if env is not None:
        trainer = Trainer(made)
        assert trainer.step == 0
        trainer.envs.close()


class Shown(gym.Env[Any, Any]):
    """An environment of somebody else."""

    def __init__(self, **options: Any) -> None:
        self.observation_space = gym.spaces.Box(0, 255, options["shape"], np.uint8)
        self.action_space = gym.spaces.Discrete(2)


gym.register("Pictures-v0", Shown, kwargs={"shape": (8, 8, 3)})
gym.register("Numbers-v0", Shown, kwargs={"shape": (8,)})


@pytest.mark.parametrize(
    ("env", "preset"),
    [
        ("MinAtar/Freeway", "minatar"),
        ("CartPole-v1", "classic"),
        ("Acrobot-v1", "classic"),
        ("Pendulum-v1", "pendulum"),
        ("MountainCarContinuous-v0", "pendulum"),
        ("HalfCheetah-v5", "mujoco"),
        ("Pong", "relval"),
        ("tests.runs.test_config:Pictures-v0", "relval"),
        ("tests.runs.test_config:Numbers-v0", "classic"),
    ],
)
def test_an_environment_gets_the_preset_that_suits_it(env: str, preset: str) -> None:
    assert preset_for(env) == preset
    assert configure(env).preset == preset


def test_the_preset_paper_holds_the_printed_numbers() -> None:
    made = configure("CartPole-v1", "relative", preset="paper")
    assert isinstance(made.critic, RelativeConfig)
    assert (made.ppo.gamma, made.ppo.lam, made.critic.n) == (0.99, 0.95, 5)
    assert (made.ppo.clip, made.ppo.epochs, made.ppo.minibatch) == (0.1, 5, 128)
    assert (made.envs.num_envs, made.ppo.steps) == (8, 128)
    assert (made.ppo.learning_rate, made.ppo.adam_eps) == (2.5e-4, 1e-5)
    assert (made.ppo.entropy, made.ppo.max_grad_norm) == (0.01, 0.5)
    assert (made.critic.coefficient, made.critic.clip) == (1.25, 0.15)
    assert (made.critic.pairs, made.critic.same_episode) == ("biased", 0.33)


@pytest.mark.parametrize(
    ("preset", "differences"),
    [
        ("paper-fit", {"coefficient": 0.625}),
        (
            "relval",
            {
                "coefficient": 0.1,
                "clip": None,
                "target": "returns",
                "pairs": "all",
                "anchor": "mean",
            },
        ),
    ],
)
def test_presets_differ_from_the_paper_s_in_the_critic_alone(
    preset: str, differences: dict[str, Any]
) -> None:
    printed = configure("CartPole-v1", "relative", preset="paper")
    ours = configure("CartPole-v1", "relative", preset=preset)
    assert ours == replace(printed, critic=replace(printed.critic, **differences), preset=preset)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"critic": "relatve"}, "no critic 'relatve'; did you mean relative?"),
        ({"preset": "papr"}, "no preset 'papr'; did you mean paper?"),
        ({"critic": "xyzzy"}, "choose from absolute, relative, discounted, dae"),
        ({"critic": "dae", "preset": "paper"}, "'paper' is for the critics relative, not for"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(names: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        configure("CartPole-v1", **names)  # type: ignore[arg-type]
