import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import relval
from relval import envs
from relval.runs import Run
from relval.runs import checkpoint as checkpoints
from tests.runs.helpers import available

RUNS = ["cartpole", "breakout", "pendulum"]


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """A finished run, loaded anew."""
    trained: Run = request.getfixturevalue(request.param)
    return relval.load(trained.folder)


def observations(run: Run, steps: int = 20) -> list[np.ndarray]:
    """Batches of observations that a random policy meets."""
    made: Any = envs.make(run.config.env, run.config.envs)
    made.action_space.seed(0)
    seen = [made.reset(seed=0)[0].copy()]
    seen += [made.step(made.action_space.sample())[0].copy() for _ in range(steps)]
    made.close()
    return seen


def action_space(run: Run) -> gym.Space[Any]:
    made = envs.make(run.config.env, run.config.envs)
    made.close()
    return made.single_action_space


def test_three_lines_give_an_action(cartpole: Run) -> None:
    policy = relval.load(cartpole.folder).policy
    observation, _ = gym.make("CartPole-v1").reset(seed=0)
    assert int(policy(observation)) in (0, 1)


@pytest.mark.parametrize("run", RUNS, indirect=True)
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_policy_takes_single_observations_and_batches(run: Run, deterministic: bool) -> None:
    space = action_space(run)
    for batch in observations(run):
        actions = run.policy(batch, deterministic=deterministic)
        assert actions.shape == (4, *(space.shape or ()))
        assert all(space.contains(action) for action in actions)
        assert space.contains(run.policy(batch[0], deterministic=deterministic))


@pytest.mark.parametrize("run", RUNS, indirect=True)
def test_a_deterministic_policy_acts_alike_on_single_observations_and_batches(run: Run) -> None:
    for batch in observations(run):
        singly = np.stack([run.policy(observation) for observation in batch])
        np.testing.assert_allclose(run.policy(batch), singly, rtol=0, atol=1e-6)


@pytest.mark.parametrize("run", ["cartpole"], indirect=True)
def test_a_policy_draws_its_actions_when_told_to(run: Run) -> None:
    batch = np.zeros((400, 4), np.float32)
    assert len(np.unique(run.policy(batch))) == 1
    assert len(np.unique(run.policy(batch, deterministic=False))) == 2


@pytest.mark.parametrize("run", ["cartpole"], indirect=True)
@pytest.mark.parametrize("kind", [list, np.float64, np.float32])
def test_a_policy_takes_any_kind_of_float(run: Run, kind: Any) -> None:
    numbers = [0.01, -0.02, 0.03, -0.04]
    observation: Any = numbers if kind is list else np.array(numbers, dtype=kind)
    assert int(run.policy(observation)) in (0, 1)


@pytest.mark.parametrize("run", ["pendulum"], indirect=True)
def test_running_statistics_are_restored(run: Run) -> None:
    saved = checkpoints.load(available(run.folder)[-1]).state["normaliser"]
    normaliser = run.policy.normaliser
    assert normaliser.capture() == saved
    assert saved["obs"]["count"] > run.config.total_steps
    assert normaliser.obs is not None
    batch = observations(run)[0]
    scaled = (batch - normaliser.obs.mean) / np.sqrt(normaliser.obs.variance)
    np.testing.assert_allclose(normaliser.observations(batch), scaled, rtol=1e-5)


@pytest.mark.parametrize("run", ["pendulum"], indirect=True)
def test_a_policy_sees_observations_through_the_statistics_and_leaves_them(run: Run) -> None:
    batch = observations(run)[0]
    policy = run.policy
    before, actions = policy.normaliser.capture(), policy(batch)
    assert policy.normaliser.capture() == before
    assert policy.normaliser.obs is not None
    policy.normaliser.obs.mean = policy.normaliser.obs.mean + 1
    assert not np.array_equal(policy(batch), actions)


@pytest.mark.parametrize("run", ["cartpole"], indirect=True)
@pytest.mark.parametrize("shape", [(3,), (2, 5), (2, 1, 4)])
def test_an_observation_of_another_shape_is_refused(run: Run, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \[4\], and a batch of B of them \[B, 4\], got"):
        run.policy(np.zeros(shape))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("critic: {name: relative\n", "flow mapping"),
        ("env: CartPole-v1\nseed: abc\ncritic: {name: relative}\n", "seed must be a whole number"),
        (
            "env: CartPole-v1\nppo: {clip: abc}\ncritic: {name: relative}\n",
            "ppo.clip must be a number, got 'abc'",
        ),
        ("env: CartPole-v1\ncritic: 3\n", "critic.name must be one of .*, got 3"),
        ("env: CartPole-v1\nppo: 3\ncritic: {name: relative}\n", "ppo must be a mapping"),
        ("critic: {name: relative}\n", "the setting env is missing"),
        (
            "env: CartPole-v1\nnetwork: {hidden: 3}\ncritic: {name: relative}\n",
            "network.hidden must be a list, got 3",
        ),
    ],
)
def test_a_broken_configuration_is_refused_with_its_file(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"(?s)config\.yaml is not a run's.*{message}"):
        relval.load(tmp_path)


@pytest.mark.parametrize(
    ("finished", "message"),
    [
        (True, "no checkpoint of .* can be read, and the run has finished: train again"),
        (False, "no checkpoint that can be read; go on with `relval train --resume"),
    ],
)
def test_a_run_without_a_readable_checkpoint_says_how_to_get_one(
    finished: bool, message: str, cartpole: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(cartpole.folder, folder)
    for path in available(folder):
        (path / "tensors.safetensors").write_bytes(b"damaged")
    if not finished:
        (folder / "summary.json").unlink()
    with (
        pytest.warns(RuntimeWarning, match="it is passed over"),
        pytest.raises(FileNotFoundError, match=message),
    ):
        _ = relval.load(folder).policy


def test_a_configuration_that_the_checkpoints_are_not_of_is_named(
    cartpole: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(cartpole.folder, folder)
    (folder / "config.yaml").write_text(
        "env: CartPole-v1\ncritic: {name: relative}\nnetwork: {hidden: [3]}\n"
    )
    with pytest.raises(ValueError, match=r"not of the network that config\.yaml describes"):
        _ = relval.load(folder).policy


def test_a_broken_summary_is_named_and_can_be_written_anew(cartpole: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(cartpole.folder, folder)
    (folder / "summary.json").write_text("{")
    with pytest.raises(ValueError, match=r"summary\.json cannot be read: .*; remove it, and `relv"):
        _ = relval.load(folder).summary
    (folder / "summary.json").unlink()
    assert relval.resume(folder, quiet=True).summary["score"] == cartpole.summary["score"]


def test_what_is_no_folder_is_refused(cartpole: Run) -> None:
    with pytest.raises(TypeError, match="a run's folder was expected, got a NoneType"):
        relval.load(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a run's folder was expected, got a Policy"):
        relval.evaluate(cartpole.policy)  # type: ignore[arg-type]


def test_a_policy_refuses_what_comes_with_an_observation(cartpole: Run) -> None:
    env = gym.make("CartPole-v1")
    for returned in (env.reset(seed=0), env.step(0)):
        with pytest.raises(TypeError, match="all that `reset` or `step` returns: pass the first"):
            cartpole.policy(returned)  # type: ignore[arg-type]


def test_what_is_no_configuration_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got 'CartPole-v1': use `configure`"):
        relval.train("CartPole-v1")  # type: ignore[arg-type]
