"""Runs that begin on one device and go on on another.

Without a GPU its place is taken by the same code on a CPU, where random numbers are a CPU's.
"""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from relval import envs
from relval.accelerated import DeviceCollector
from relval.experiments.suites import RELATIVE, Suite
from relval.experiments.sweep import sweep
from relval.runs import Config, load, resume, trainer
from relval.runs import checkpoint as checkpoints
from relval.runs.provenance import continued, provenance
from relval.runs.trainer import Trainer
from tests.runs.conftest import Finished
from tests.runs.helpers import UPDATE, available, contents, small, train_until

HAS_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")


class Twin(Trainer):
    """What a trainer is on a GPU, on a CPU."""

    def _make_envs(self, config: envs.EnvConfig) -> Any:
        return envs.make(self.config.env, config, screens=True)

    def _make_collector(self, seed: int) -> DeviceCollector:
        assert isinstance(self.envs, envs.AtariPool)
        steps = self.config.ppo.steps
        return DeviceCollector(
            self.envs, self.agent, steps, self.generator, seed=seed, record=False
        )


def on_gpu(config: Config) -> Trainer:
    return Trainer(replace(config, device="cuda"))


MAKERS = {
    "the twin": (Trainer, Twin),
    "from the twin": (Twin, Trainer),
    "to a GPU": (Trainer, on_gpu),
    "from a GPU": (on_gpu, Trainer),
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=needs_gpu if "GPU" in way else ()) for way in MAKERS]
)
def test_games_go_on_where_they_were(way: str) -> None:
    begin, go_on = MAKERS[way]
    config = small("Breakout", checkpoint_every=UPDATE)
    one, other = begin(config), go_on(config)
    for _ in range(2):
        one.iterate()
    lost = other.restore(one.capture())
    assert lost == (["the random numbers, which another kind of device drew"] * ("GPU" in way))
    assert (other.step, other.episodes) == (one.step, one.episodes)
    before = one.collector.observations.copy()
    np.testing.assert_array_equal(other.collector.observations, before)
    for ours, theirs in zip(one.agent.parameters(), other.agent.parameters(), strict=True):
        assert torch.equal(ours.cpu(), theirs.cpu())
    moments = [
        trainer.capture().tensors["optimizer.0.exp_avg_sq"].cpu() for trainer in (one, other)
    ]
    assert torch.equal(*moments)

    other.iterate()
    rollout = other._rollout
    assert rollout is not None
    stacks, count = rollout.states.cpu().numpy(), config.envs.num_envs
    np.testing.assert_array_equal(stacks[:count], before)
    going_on = ~rollout.traj.terminated[0].cpu().numpy()
    assert going_on.any()
    following = stacks[count : 2 * count]
    np.testing.assert_array_equal(following[going_on, :3], before[going_on, 1:])
    for each in (one, other):
        each.envs.close()


@pytest.fixture
def from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of CartPole that stopped half way on a GPU of another machine, or so it says."""
    folder = tmp_path / "runs/CartPole-v1/relative/1"
    config = small("CartPole-v1")
    train_until(monkeypatch, config, folder, update=10)
    (newest,) = available(folder)[-1:]
    found = checkpoints.load(newest)
    state = torch.zeros(16, dtype=torch.uint8)  # as long as a GPU's
    moved = replace(found, tensors={**found.tensors, "generator": state})
    checkpoints.save(folder / "checkpoints", 10 * UPDATE, moved)
    tree = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    (folder / "config.yaml").write_text(yaml.safe_dump({**tree, "device": "cuda"}), "utf-8")
    origin = load(folder).provenance
    origin["hardware"]["gpu"] = "another GPU"
    (folder / "provenance.json").write_text(json.dumps(origin), encoding="utf-8")
    return folder


def assert_went_on(folder: Path) -> None:
    run = load(folder)
    assert run.summary["steps"] == 16 * UPDATE
    assert run.config.device == "cuda"
    assert run.provenance["hardware"]["gpu"] == "another GPU"
    assert [part["from_step"] for part in run.provenance["continued"]] == [10 * UPDATE]
    assert run.provenance["continued"][0]["hardware"] == provenance()["hardware"]


def test_a_run_goes_on_without_the_gpu_that_it_began_on(
    from_elsewhere: Path, relval: Callable[..., Finished]
) -> None:
    went_on = relval("train", "--resume", from_elsewhere, "--device", "cpu", "--quiet")
    assert went_on.status == 0, went_on.err
    assert "not restored: the random numbers, which another kind" in went_on.out
    assert_went_on(from_elsewhere)


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_a_run_is_not_moved_unasked(from_elsewhere: Path) -> None:
    before = contents(from_elsewhere)
    with pytest.raises(RuntimeError, match="use --device cpu"):
        resume(from_elsewhere, quiet=True)
    assert contents(from_elsewhere) == before


def test_a_sweep_finishes_runs_from_another_device(from_elsewhere: Path) -> None:
    """A run's settings are its own but for the device; a suite's other settings are refused."""
    out = from_elsewhere.parents[3]
    suite = Suite("a test", ("CartPole-v1",), (RELATIVE,), (1,), total_steps=16 * UPDATE)
    with pytest.raises(ValueError, match="other settings than the suite"):
        sweep(suite, out)
    config = replace(load(from_elsewhere).config, device="cpu")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Suite, "runs", lambda self: {"CartPole-v1/relative/1": config})
        assert sweep(suite, out)
    assert_went_on(from_elsewhere)


def test_a_run_without_a_checkpoint_begins_again_as_a_run_of_its_new_device(
    from_elsewhere: Path,
) -> None:
    for path in available(from_elsewhere):
        (path / "state.json").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="is passed over"):
        run = resume(from_elsewhere, device="cpu", quiet=True)
    assert load(run.folder).config.device == "cpu"
    assert run.provenance == provenance()


def test_a_run_that_goes_on_where_it_was_tells_nothing_more() -> None:
    origin = provenance()
    assert continued(origin, 100) == origin
    elsewhere = {**origin, "hardware": {"cores": 3}}
    here = {"from_step": 100, **origin}
    once = continued(elsewhere, 100)
    assert once == {**elsewhere, "continued": [here]}
    assert continued(once, 200) == once
    assert continued(once, 100) == once
    assert continued({**origin, "continued": [{"from_step": 100, **elsewhere}]}, 100) == origin
    assert continued(once, 50) == {**elsewhere, "continued": [{**here, "from_step": 50}]}
    back = {**once, "continued": [here, {"from_step": 200, **elsewhere}]}
    assert continued(back, 300)["continued"] == [*back["continued"], {**here, "from_step": 300}]


def test_an_idle_gpu_is_told_of_where_images_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, cartpole = (envs.make(name, envs.EnvConfig(2)) for name in ("Pong", "CartPole-v1"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.warns(UserWarning, match="--device cuda"):
        trainer._warn_of_idle_gpu(pool)
    with warnings.catch_warnings(action="error"):
        trainer._warn_of_idle_gpu(cartpole)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        trainer._warn_of_idle_gpu(pool)
    pool.close()
    cartpole.close()
