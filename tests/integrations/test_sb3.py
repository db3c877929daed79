"""PPO with the relative critic inside Stable-Baselines3."""

import importlib
import inspect
import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from torch import Tensor, nn

from relval.critics import RelativeConfig
from relval.integrations.sb3 import RelativePPO, RelativeRolloutBuffer
from relval.relative import all_pairs_loss, mean_offset

GAMMA, LAM = 0.9, 0.8


class Walk(gym.Env[Any, Any]):
    """Counts its steps and pays their number; episodes terminate after so many, by turns."""

    def __init__(self, lengths: tuple[int, ...], action_space: gym.Space[Any]) -> None:
        self.observation_space = spaces.Box(0, 10, (1,), np.float32)
        self.action_space = action_space
        self.lengths = itertools.cycle(lengths)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = next(self.lengths)
        self.position = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position += 1
        over = self.position == self.length
        return self.observation(), float(self.position), over, False, {}

    def observation(self) -> Any:
        return np.array([self.position], np.float32)


class Picture(Walk):
    """The position as a bright row."""

    def __init__(self) -> None:
        super().__init__((3, 9), spaces.Discrete(2))
        self.observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def observation(self) -> Any:
        picture = np.zeros((36, 36, 1), np.uint8)
        picture[self.position] = 255
        return picture


class Parts(Walk):
    """The position by name."""

    def __init__(self) -> None:
        super().__init__((3, 9), spaces.Discrete(2))
        self.observation_space = spaces.Dict({"position": self.observation_space})

    def observation(self) -> Any:
        return {"position": super().observation()}


def walks(
    count: int, *, lengths: tuple[int, ...] = (3, 9), space: gym.Space[Any] | None = None
) -> DummyVecEnv:
    """Environments that are truncated after four steps, every other one with the lengths turned."""

    def make(n: int) -> gym.Env[Any, Any]:
        turned = lengths[n % len(lengths) :] + lengths[: n % len(lengths)]
        return TimeLimit(Walk(turned, space or spaces.Discrete(2)), 4)

    return DummyVecEnv([partial(make, n) for n in range(count)])


def small(env: Any, policy: str = "MlpPolicy", **options: Any) -> RelativePPO:
    settings: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "seed": 0}
    return RelativePPO(policy, env, device="cpu", **settings | options)


class Table(nn.Module):
    """A value network that looks up the score of a position."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__()
        self.scores = torch.tensor(scores)

    def forward(self, positions: Tensor) -> Tensor:
        return self.scores[positions.round().long()]


def collect(
    algorithm: type[PPO], env: VecEnv, scores: list[float], *, steps: int = 16, **options: Any
) -> Any:
    """A model that has collected a rollout with these scores, and learned nothing."""
    model: Any = algorithm(
        "MlpPolicy",
        env,
        n_steps=steps,
        batch_size=steps,
        gamma=GAMMA,
        gae_lambda=LAM,
        policy_kwargs={"net_arch": []},
        device="cpu",
        **options,
    )
    model.policy.value_net = Table(scores)
    model.train = lambda: None
    return model.learn(1)


def positions(first_is_short: bool) -> list[tuple[int, str]]:
    """The steps of a walk: where each begins, and how it ends the episode, if it does."""
    short = [(0, ""), (1, ""), (2, "terminated")]
    long = [(0, ""), (1, ""), (2, ""), (3, "truncated")]
    return (short + long if first_is_short else long + short) * 6


def expected_advantages(
    path: list[tuple[int, str]], scores: list[float], lowest: float | None, terminal: float
) -> Any:
    """R-GAE along a path, term by term; anchored where episodes begin, or at the lowest score.

    Terminations are worth `terminal`.
    """
    starts = [0] + [t + 1 for t, (_, end) in enumerate(path) if end]
    advantages = np.zeros(len(path))
    for t in range(len(path)):
        start = max(s for s in starts if s <= t)
        offset = scores[path[start][0]] if lowest is None else lowest
        weight = 1.0
        for position, end in path[t:]:
            ahead = terminal if end == "terminated" else scores[position + 1] - offset
            residual = position + 1 + GAMMA * ahead - (scores[position] - offset)
            advantages[t] += weight * residual
            weight *= GAMMA * LAM
            if end:
                break
    return advantages


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize(
    ("anchor", "mask_terminal"), [("rank", True), ("zero", True), ("rank", False)]
)
@pytest.mark.parametrize("steps", [12, 18])  # at the last one a walk terminates, is truncated
def test_advantages_are_relative_gae(
    envs: int, anchor: str, mask_terminal: bool, steps: int
) -> None:
    scores = [2.0, -1.0, 0.5, 3.0, 7.0]
    options: dict[str, Any] = {"anchor": anchor, "mask_terminal": mask_terminal}
    model = collect(RelativePPO, walks(envs), scores, steps=steps, **options)
    for start in (0, steps):  # the second rollout begins within an episode
        paths = [positions(n % 2 == 0)[start : start + steps] for n in range(envs)]
        begun = [scores[0], *(scores[path[0][0]] for path in paths)]
        lowest = min(begun) if anchor == "rank" else None
        terminal = 0.0 if mask_terminal else scores[0] - min(begun)
        expected = np.stack(
            [expected_advantages(path, scores, lowest, terminal) for path in paths], 1
        )
        np.testing.assert_allclose(model.rollout_buffer.advantages, expected, atol=1e-5)
        model.learn(1, reset_num_timesteps=False)


def test_under_the_right_anchor_advantages_and_returns_are_those_of_ppo() -> None:
    values = [0.0, 1.5, -2.0, 4.0, 3.0]  # starts are worth zero, so ranks add nothing
    relative = collect(RelativePPO, walks(3), values, anchor="rank")
    absolute = collect(PPO, walks(3), values)
    np.testing.assert_allclose(
        relative.rollout_buffer.advantages, absolute.rollout_buffer.advantages, atol=1e-5
    )
    i, j = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
    target, _ = relative.rollout_buffer.prepared.judge(i, j)
    returns = absolute.rollout_buffer.returns.flatten()
    np.testing.assert_allclose(target, returns[i] - returns[j], atol=1e-5)


def test_gae_lambda_is_that_of_the_targets_also_when_it_changes_on_loading(tmp_path: Path) -> None:
    model = small(walks(1), target="lambda", gae_lambda=0.5)
    assert model.critic.config.target_lam == 0.5
    model.save(tmp_path / "model")
    loaded = RelativePPO.load(tmp_path / "model", gae_lambda=0.7, device="cpu")
    assert loaded.critic.config.target_lam == 0.7


def constant_of_the_rollout(model: Any) -> float:
    rollout = model.rollout_buffer.rollout
    return mean_offset(rollout.traj, rollout.memory, gamma=GAMMA, lam=LAM).item()


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_offset_rate_is_the_newest_rollouts_weight_in_the_constant(rate: float) -> None:
    scores = [2.0, -1.0, 0.5, 3.0, 7.0]
    model = collect(RelativePPO, walks(1), scores, steps=5, offset_rate=rate)
    constants = [constant_of_the_rollout(model)]
    for _ in range(2):
        model.learn(1, reset_num_timesteps=False)
        constants.append(constant_of_the_rollout(model))
    expected = constants[-1] if rate else np.mean(constants)  # the least weight is a fair share
    assert model.critic.offset.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("normalised", [False, True])
def test_truncations_leave_rewards_alone_and_keep_the_last_state(normalised: bool) -> None:
    env: Any = walks(2)
    scores = [2.0, -1.0, 0.5, 3.0, 7.0]
    if normalised:  # positions are doubled
        env, scores = VecNormalize(env, training=False, norm_reward=False), [0.0] * 8 + [7.0]
        env.obs_rms.var[:] = 0.25
    buffer = collect(RelativePPO, env, scores).rollout_buffer
    paths = [positions(first)[:16] for first in (True, False)]
    rewards = np.array([[position + 1 for position, _ in path] for path in paths]).T
    truncated = np.array([[end == "truncated" for _, end in path] for path in paths]).T
    traj = buffer.rollout.traj
    np.testing.assert_array_equal(buffer.rewards, rewards)
    np.testing.assert_array_equal(traj.truncated.numpy(), truncated)
    assert (buffer.rollout.memory[traj.successor[traj.truncated]] == 7.0).all()


def test_the_logged_loss_is_that_of_all_pairs() -> None:
    model = small(walks(3), target="n-step", batch_size=48, n_epochs=1, gamma=GAMMA).learn(1)
    rollout = model.rollout_buffer.rollout
    i = rollout.traj.transitions
    expected = all_pairs_loss(rollout.memory[i], rollout.memory, rollout.traj, i, n=5, gamma=GAMMA)
    logged = model.logger.name_to_value["train/value_loss"]
    assert logged == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("pairs", "partners"),
    [("biased", "batch"), ("random", "batch"), ("random", "minibatch"), ("all", "batch")],
)
@pytest.mark.parametrize("target", ["n-step", "returns"])
def test_differences_of_values_are_learned(pairs: str, partners: str, target: str) -> None:
    env = walks(2, lengths=(3,))
    learning: dict[str, Any] = {"learning_rate": 1e-2, "batch_size": 32, "n_epochs": 10}
    options: dict[str, Any] = {"pairs": pairs, "partners": partners, "target": target}
    model = small(env, gamma=GAMMA, **options, **learning).learn(960)
    u = model.policy.predict_values(torch.arange(3.0)[:, None]).flatten()
    truth = torch.tensor([1 + GAMMA * (2 + GAMMA * 3), 2 + GAMMA * 3, 3])
    torch.testing.assert_close(u - u[0], truth - truth[0], atol=0.1, rtol=0)


KINDS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "discrete": ("MlpPolicy", lambda: walks(1), {}),
    "several": ("MlpPolicy", lambda: walks(4), {}),
    "continuous": ("MlpPolicy", lambda: walks(2, space=spaces.Box(-1, 1, (2,))), {}),
    "multi-discrete": ("MlpPolicy", lambda: walks(2, space=spaces.MultiDiscrete([2, 3])), {}),
    "gSDE": ("MlpPolicy", lambda: walks(2, space=spaces.Box(-1, 1, (2,))), {"use_sde": True}),
    "images": ("CnnPolicy", lambda: DummyVecEnv([lambda: TimeLimit(Picture(), 4)]), {}),
    "parts": ("MultiInputPolicy", lambda: DummyVecEnv([lambda: TimeLimit(Parts(), 4)]), {}),
    "clipped": ("MlpPolicy", lambda: walks(2), {"clip_range_vf": lambda rest: 0.2 * rest}),
    "normalised": ("MlpPolicy", lambda: VecNormalize(walks(2), gamma=GAMMA), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_ppo_learns_from_is_learned_from_and_logged_alike(kind: str) -> None:
    policy, make, options = KINDS[kind]
    model = small(make(), policy, **options)
    before = {name: value.clone() for name, value in model.policy.named_parameters()}
    model.learn(2 * 16 * model.n_envs)
    for name, value in model.policy.named_parameters():
        assert value.isfinite().all()
        assert torch.equal(value, before[name]) == (name == "value_net.bias"), name
    assert model.policy.value_net.bias.grad is None
    ppo = PPO(policy, make(), n_steps=16, batch_size=8, n_epochs=2, device="cpu", **options)
    ppo.learn(1)
    assert set(model.logger.name_to_value) == set(ppo.logger.name_to_value)


@pytest.mark.parametrize("anchor", get_args(get_type_hints(RelativeConfig)["anchor"]))
def test_saved_and_loaded_it_predicts_alike_has_its_options_and_goes_on(
    anchor: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"pairs": "all", "n": 3, "anchor": anchor, "same_episode": 0.5}
    model = small(walks(2), both_terminal="derived", clip_range_vf=0.2, **options).learn(64)
    model.save(tmp_path / "model")
    loaded = RelativePPO.load(tmp_path / "model", env=walks(2), device="cpu")
    assert loaded.critic.config == model.critic.config
    assert loaded.critic.config.anchor == anchor
    assert loaded.get_parameters()["critic"] == model.critic.state_dict()
    seen = torch.arange(4.0)[:, None]
    assert torch.equal(loaded.policy.predict_values(seen), model.policy.predict_values(seen))
    actions, again = (m.predict(seen.numpy(), deterministic=True)[0] for m in (model, loaded))
    assert np.array_equal(actions, again)
    loaded.learn(32, reset_num_timesteps=False)
    assert loaded.num_timesteps == 96
    assert not torch.equal(loaded.policy.predict_values(seen), model.policy.predict_values(seen))
    loaded.set_parameters(str(tmp_path / "model"))
    assert torch.equal(loaded.policy.predict_values(seen), model.policy.predict_values(seen))


@pytest.mark.parametrize("by", ["argument", "custom object"])
@pytest.mark.parametrize(("before", "after"), [("mean", "zero"), ("rank", "mean")])
def test_an_anchor_given_on_loading_replaces_the_stored_one(
    before: str, after: str, by: str, tmp_path: Path
) -> None:
    model = small(walks(2), anchor=before).learn(64)
    model.save(tmp_path / "model")
    changed = {"anchor": after}
    kwargs: dict[str, Any] = changed if by == "argument" else {"custom_objects": changed}
    loaded = RelativePPO.load(tmp_path / "model", env=walks(2), device="cpu", **kwargs)
    assert loaded.critic.config.anchor == after
    assert not any(value.any() for value in loaded.critic.state_dict().values())
    seen = torch.arange(4.0)[:, None]
    assert torch.equal(loaded.policy.predict_values(seen), model.policy.predict_values(seen))
    loaded.learn(32, reset_num_timesteps=False)


@pytest.mark.parametrize("anchor", ["mean", "zero"])
@pytest.mark.parametrize("kind", ["several", "parts"])
def test_files_of_ppo_load_and_training_goes_on(kind: str, anchor: str, tmp_path: Path) -> None:
    policy, make, _ = KINDS[kind]
    ppo = PPO(policy, make(), n_steps=16, batch_size=8, device="cpu").learn(64)
    ppo.save(tmp_path / "ppo")
    loaded = RelativePPO.load(tmp_path / "ppo", env=make(), device="cpu", anchor=anchor)
    other = small(make(), policy, anchor=anchor).learn(64)
    other.set_parameters(str(tmp_path / "ppo"))
    for model in (loaded, other):
        assert not any(value.any() for value in model.critic.state_dict().values())
        for name, value in ppo.policy.state_dict().items():
            assert torch.equal(value, model.policy.state_dict()[name]), name
        model.learn(32, reset_num_timesteps=False)
        assert model.num_timesteps >= 96


def test_parameters_without_the_critics_leave_it_alone_unless_all_are_asked_for() -> None:
    model = small(walks(2)).learn(64)
    before = {name: value.clone() for name, value in model.critic.state_dict().items()}
    model.set_parameters({"policy": model.policy.state_dict()}, exact_match=False)
    assert model.critic.state_dict() == before
    with pytest.raises(ValueError, match="Names of parameters do not match"):
        model.set_parameters({"policy": model.policy.state_dict()})


@pytest.mark.parametrize("buffer", [RolloutBuffer, DictRolloutBuffer, None])
def test_buffers_of_stable_baselines3_mean_the_default(buffer: type[RolloutBuffer] | None) -> None:
    model = small(walks(1), rollout_buffer_class=buffer)
    assert type(model.rollout_buffer) is RelativeRolloutBuffer


def test_a_buffer_for_arrays_is_refused_where_observations_are_dictionaries() -> None:
    class Derived(RelativeRolloutBuffer):
        pass

    env = DummyVecEnv([lambda: TimeLimit(Parts(), 4)])
    with pytest.raises(ValueError, match=r"Derived .* from RelativeDictRolloutBuffer"):
        small(env, policy="MultiInputPolicy", rollout_buffer_class=Derived)


def test_normalising_advantages_can_be_changed_later_as_with_ppo() -> None:
    model = small(walks(1)).learn(1)
    model.normalize_advantage = False
    model.learn(1)
    assert not model.critic.config.normalise_advantages


class Reader(BaseCallback):
    """Looks at the rollout as it is stored."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        next(self.model.rollout_buffer.get(8))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["several", "parts"])
def test_a_callback_that_reads_the_rollout_changes_nothing(kind: str) -> None:
    policy, make, _ = KINDS[kind]
    first, second = (
        nn.utils.parameters_to_vector(
            small(make(), policy).learn(128, callback).policy.parameters()
        )
        for callback in (None, Reader())
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("pairs", ["biased", "all"])
def test_the_same_seed_gives_the_same_parameters(pairs: str) -> None:
    first, second, other = (
        nn.utils.parameters_to_vector(
            small(walks(2), pairs=pairs, seed=seed).learn(64).policy.parameters()
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


SCRIPT = """
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

env = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=0))
test_env = VecNormalize(make_vec_env("CartPole-v1"), training=False, norm_reward=False)
callbacks = [
    EvalCallback(test_env, best_model_save_path=".", eval_freq=64, n_eval_episodes=2, verbose=0),
    CheckpointCallback(save_freq=64, save_path="."),
]
model = PPO("MlpPolicy", env, n_steps=64, tensorboard_log=".", device="cpu")
model.learn(256, callbacks)
model.save("model")
env.save("env.pkl")
model = PPO.load("rl_model_128_steps", env=env, device="cpu")
mean, _ = evaluate_policy(PPO.load("best_model", device="cpu"), test_env, n_eval_episodes=2)
"""


@pytest.mark.parametrize(
    "line",
    ["from stable_baselines3 import PPO", "from relval.integrations.sb3 import RelativePPO as PPO"],
)
def test_one_import_is_all_that_a_script_changes(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(SCRIPT.replace("from stable_baselines3 import PPO", line), scope)
    assert scope["mean"] > 5
    assert scope["model"].num_timesteps == 128
    assert [path.name for path in tmp_path.glob("*PPO_1")] == [f"{scope['PPO'].__name__}_1"]


def test_the_constructor_is_that_of_ppo_and_the_critics_options() -> None:
    own, theirs = (
        list(inspect.signature(kind.__init__).parameters.values()) for kind in (RelativePPO, PPO)
    )
    different = [
        a.name
        for a, b in zip(own, theirs, strict=False)
        if (a.name, a.kind, a.default) != (b.name, b.kind, b.default)
    ]
    assert different == ["vf_coef"]
    for option in own[len(theirs) :]:
        assert option.kind is option.KEYWORD_ONLY
        assert option.default == getattr(RelativeConfig, option.name)


def test_target_kl_stops_the_update() -> None:
    model = small(walks(2), target_kl=1e-9, n_epochs=5, learning_rate=0.1).learn(1)
    assert model._n_updates == 1


class OtherBuffer(RolloutBuffer):
    """One that somebody derived from SB3's."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": "some"}, "pairs must be one of random, biased, all, got 'some'"),
        ({"anchor": "median"}, "anchor must be one of"),
        ({"both_terminal": "one"}, "both_terminal must be one of"),
        ({"same_episode": 2.0}, "same_episode must lie in"),
        ({"n": 0}, "n must be at least 1"),
        ({"offset_rate": 2.0}, "offset_rate must lie in"),
        ({"partners": "minibatch"}, "partners minibatch is for critic.pairs random"),
        ({"mask_terminal": False}, "anchor mean .* needs critic.mask_terminal"),
        ({"rollout_buffer_class": OtherBuffer}, "OtherBuffer .* derive rollout_buffer_class from"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(walks(1), **options)


def test_without_stable_baselines3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "relval.integrations.sb3")
    with pytest.raises(ImportError, match=r'pip install "relval\[sb3\]"'):
        importlib.import_module("relval.integrations.sb3")


def test_it_learns_cartpole() -> None:
    env = make_vec_env("CartPole-v1", n_envs=8, seed=1)
    model = RelativePPO(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        seed=1,
        device="cpu",
    )
    model.learn(30_000)
    mean: Any = evaluate_policy(model, make_vec_env("CartPole-v1", seed=2), n_eval_episodes=20)[0]
    assert mean > 150
