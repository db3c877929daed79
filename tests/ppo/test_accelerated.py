"""Steps that are compiled, recorded and replayed, against the same steps as they are.

Without a GPU nothing is recorded, and the tests hold what remains: that the code for a GPU computes
the same on a CPU.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from relval import accelerated
from relval.accelerated import DeviceCollector, Recorded, Waiting, finish
from relval.critics import CRITICS
from relval.envs import AtariPool, Normaliser, seen_space
from relval.optimizer import RecordableAdam, as_it_is, make_optimizer
from relval.ppo import Agent, Collected, Collector, fetch, learn
from relval.relative import Trajectories
from relval.runs import Config, configure

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in CRITICS},
    "relative, all pairs": ("relative", {"pairs": "all", "clip": None}),
    "relative, all pairs, lambda": (
        "relative",
        {"pairs": "all", "clip": None, "target": "lambda"},
    ),
    "relative, all pairs, clipped": ("relative", {"pairs": "all"}),
    "relative, zero": ("relative", {"anchor": "zero"}),
    "relative, terminal": ("relative", {"anchor": "terminal"}),
    "relative, minvar": ("relative", {"anchor": "minvar"}),
    "relative, mean, returns": (
        "relative",
        {"anchor": "mean", "target": "returns", "pairs": "all", "clip": None},
    ),
    "relative, mlp": ("relative", {"head": "mlp", "anchor": "zero"}),
    "relative, refreshed": ("relative", {"refresh_targets": True}),
    "relative, minibatch": ("relative", {"pairs": "random", "partners": "minibatch"}),
    "relative, unmasked": ("relative", {"mask_terminal": False}),
}
STEPS, ENVS = 16, 2


def settings(critic: str = "relative", options: dict[str, Any] | None = None) -> Config:
    return configure(
        "Pong",
        critic,
        preset="paper" if critic == "relative" else None,
        critic_options=options or {},
        ppo={"steps": STEPS, "minibatch": 8, "epochs": 2},
        envs={"num_envs": ENVS},
    )


def make_agent(pool: AtariPool, config: Config, device: str) -> Agent:
    torch.manual_seed(0)
    space = seen_space(pool, config.envs)
    return Agent(space, pool.single_action_space, config.network, config.critic).to(device)


@pytest.fixture
def pools() -> Iterator[tuple[AtariPool, AtariPool]]:
    made = AtariPool("Pong", ENVS, workers=0), AtariPool("Pong", ENVS, workers=0, deliver="screens")
    yield made
    for pool in made:
        pool.close()


def collect(pool: AtariPool, agent: Agent, device: str, *, record: bool) -> Collected:
    generator = torch.Generator(device).manual_seed(1)
    collector = DeviceCollector(pool, agent, STEPS, generator, seed=3, record=record)
    generator.manual_seed(2)
    return finish(collector.collecting())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("critic", ["relative", "absolute"])
def test_a_rollout_on_a_device_is_that_of_the_plain_collector(
    critic: str, device: str, pools: tuple[AtariPool, AtariPool]
) -> None:
    stacks, screens = pools
    config = settings(critic)
    agent = make_agent(stacks, config, "cpu")
    normaliser = Normaliser((4, 84, 84), ENVS, 0.99, obs=False, rewards=False)
    plain = Collector(stacks, normaliser, seed=3)
    moved = make_agent(screens, config, device)
    generator, other = (torch.Generator(place).manual_seed(1) for place in ("cpu", device))
    collector = DeviceCollector(screens, moved, STEPS, other, seed=3, record=True)
    for _ in range(3):
        noise = agent.policy.noise(STEPS + 1, ENVS, generator=generator)
        for who in (agent, moved):
            who.policy.noise = partial(_given, noise)  # type: ignore[method-assign]
        expected = plain.collect(agent, STEPS, generator)
        rollout = finish(collector.collecting())
        difference = rollout.observations.cpu().int() - expected.observations.int()
        assert difference.abs().max() <= 1
        assert torch.equal(rollout.actions.cpu(), expected.actions)
        assert torch.equal(rollout.traj.rewards.cpu(), expected.traj.rewards)
        assert torch.equal(rollout.traj.terminated.cpu(), expected.traj.terminated)
        seen = rollout.memory[: len(expected.memory)].cpu()
        torch.testing.assert_close(seen, expected.memory, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(rollout.log_prob.cpu(), expected.log_prob, rtol=1e-3, atol=1e-3)
        assert rollout.episodes == expected.episodes


def _given(noise: Tensor, steps: int, *shape: int, generator: torch.Generator) -> Tensor:
    return noise[:steps].to(generator.device)


def test_a_game_that_is_cut_off_leaves_its_true_last_state() -> None:
    """The limit ends each game within the rollout, after a step that was played in full."""
    stacks, screens = (
        AtariPool("Freeway", ENVS, workers=0, max_frames=60, deliver=deliver)
        for deliver in ("stacks", "screens")
    )
    config = settings()
    agent = make_agent(stacks, config, "cpu")
    normaliser = Normaliser((4, 84, 84), ENVS, 0.99, obs=False, rewards=False)
    plain = Collector(stacks, normaliser, seed=3)
    generator, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    collector = DeviceCollector(screens, agent, STEPS, other, seed=3, record=False)
    noise = agent.policy.noise(STEPS + 1, ENVS, generator=generator)
    agent.policy.noise = partial(_given, noise)  # type: ignore[method-assign]
    expected, rollout = plain.collect(agent, STEPS, generator), finish(collector.collecting())
    cut = expected.traj.truncated
    assert cut.any()
    assert torch.equal(rollout.traj.truncated, cut)
    theirs, ours = expected.traj.successor[cut], rollout.traj.successor[cut]
    assert (theirs >= expected.traj.states.numel()).all()
    assert (ours >= rollout.traj.states.numel()).all()
    torch.testing.assert_close(rollout.memory[ours], expected.memory[theirs], atol=1e-3, rtol=1e-3)


def collect_in_double_precision(pool: AtariPool, config: Config, device: str) -> Collected:
    """A rollout to learn from where rounding cannot hide a mistake: Adam makes the most of it."""
    rollout = collect(pool, make_agent(pool, config, device), device, record=False)
    return replace(
        rollout,
        policy_outputs=rollout.policy_outputs.double(),
        memory=rollout.memory.double(),
        log_prob=rollout.log_prob.double(),
    )


class Learner:
    """An agent, and how it learns from a rollout."""

    def __init__(
        self, pool: AtariPool, config: Config, rollout: Collected, device: str, *, record: bool
    ) -> None:
        self.agent = make_agent(pool, config, device).double()
        generator = torch.Generator(device).manual_seed(5)
        recording = record and self.agent.critic.static
        compiling = recording and device == "cuda"
        self.update = Recorded(
            partial(
                learn,
                self.agent,
                make_optimizer(self.agent, rate=2.5e-4, eps=1e-5),
                rollout,
                config.ppo,
                generator,
                clip=0.1,
                compiled=partial(torch.compile, dynamic=False) if compiling else as_it_is,
            ),
            generator,
            enabled=recording,
        )

    @property
    def parameters(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.agent.parameters()]).cpu()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_updates_that_are_recorded_learn_the_same(
    variant: str, device: str, pools: tuple[AtariPool, AtariPool]
) -> None:
    """Three updates from the same data: as it is, recorded, replayed."""
    pool, config = pools[1], settings(*VARIANTS[variant])
    rollout = collect_in_double_precision(pool, config, device)
    plain, recorded = (
        Learner(pool, config, rollout, device, record=record) for record in (False, True)
    )
    before = plain.parameters
    for learner in (plain, recorded):
        losses = {fetch(learner.update())["policy_loss"] for _ in range(3)}
        assert len(losses) == 3
    assert_learned_the_same(before, plain.parameters, recorded.parameters, device)


@pytest.mark.parametrize("device", DEVICES)
def test_learners_side_by_side_do_not_disturb_each_other(
    device: str, pools: tuple[AtariPool, AtariPool]
) -> None:
    """Three updates of two learners at the same time, on a GPU in a stream each."""
    pool = pools[1]
    configs = settings("relative"), settings("absolute")
    rollouts = [collect_in_double_precision(pool, config, device) for config in configs]

    def learners() -> list[Learner]:
        return [
            Learner(pool, config, rollout, device, record=True)
            for config, rollout in zip(configs, rollouts, strict=True)
        ]

    alone, together = learners(), learners()
    before = [learner.parameters for learner in alone]
    for learner in alone:
        for _ in range(3):
            learner.update()
    streams = [torch.cuda.Stream() if device == "cuda" else None for _ in together]
    if device == "cuda":
        torch.cuda.synchronize()
    for _ in range(3):
        for learner, stream in zip(together, streams, strict=True):
            with torch.cuda.stream(stream):
                learner.update()
    if device == "cuda":
        torch.cuda.synchronize()
    for start, one, other in zip(before, alone, together, strict=True):
        assert_learned_the_same(start, one.parameters, other.parameters, device)


def assert_learned_the_same(before: Tensor, one: Tensor, other: Tensor, device: str) -> None:
    moved = (one - before).norm()
    assert moved > 0
    tolerance = 0.0 if device == "cpu" else 1e-6
    assert (one - other).norm() <= tolerance * moved


def test_an_adam_that_can_be_replayed_is_adam() -> None:
    start = torch.randn(50, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    recordable = RecordableAdam(ours, rate=0.01, eps=1e-5)
    adam = torch.optim.Adam([theirs], lr=0.01, eps=1e-5)
    for seed in range(30):
        gradient = torch.randn(50, generator=torch.Generator().manual_seed(seed))
        ours.grad, theirs.grad = gradient, gradient.clone()
        recordable.step()
        adam.step()
    assert (theirs - start).norm() > 0.1
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_who_waits_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core may be the one that a worker needs, which is waited for."""
    moments: list[str] = []
    monkeypatch.setattr(accelerated, "give_way", lambda: moments.append("gave way"))

    def waiting() -> Waiting[str]:
        for _ in range(2):
            moments.append("looked")
            yield
        return "done"

    assert finish(waiting()) == "done"
    assert moments == ["looked", "gave way"] * 2


def test_emulation_alone_plays_every_game(pools: tuple[AtariPool, AtariPool]) -> None:
    pool = pools[1]
    agent = make_agent(pool, settings(), "cpu")
    collector = DeviceCollector(pool, agent, STEPS, torch.Generator(), seed=3, record=False)
    before = [game["length"] for game in pool.capture()["games"]]
    assert collector.seconds_to_emulate(steps=6) > 0
    after = [game["length"] for game in pool.capture()["games"]]
    assert [new - old for old, new in zip(before, after, strict=True)] == [6] * ENVS


@pytest.mark.parametrize("critic", ["absolute", "relative", "discounted"])
def test_an_update_never_waits_for_a_device(
    critic: str, pools: tuple[AtariPool, AtariPool]
) -> None:
    """What reads data, or has a shape that depends on it, fails on tensors that hold none."""
    config = settings(critic)
    agent = make_agent(pools[1], config, "meta")
    optimizer = torch.optim.SGD(agent.parameters(), lr=1e-3)
    means = learn(agent, optimizer, _empty(agent), config.ppo, None, clip=0.1)  # type: ignore[arg-type]
    assert all(mean.shape == () for mean in means.values())


def _empty(agent: Agent) -> Collected:
    """A rollout without data."""
    count, states = STEPS * ENVS, (STEPS + 2) * ENVS
    stacks = torch.zeros(states, 4, 84, 84, dtype=torch.uint8, device="meta")
    outputs = torch.zeros(count, agent.policy.outputs, device="meta")
    flags = torch.zeros(STEPS, ENVS, dtype=torch.bool, device="meta")
    return Collected(
        traj=Trajectories(
            torch.zeros(STEPS, ENVS, device="meta"),
            flags,
            flags,
            torch.zeros(STEPS, ENVS, dtype=torch.int64, device="meta"),
            num_states=states,
        ),
        actions=torch.zeros(count, dtype=torch.int64, device="meta"),
        policy_outputs=outputs,
        memory=torch.zeros(states, device="meta"),
        states=stacks,
        log_prob=torch.zeros(count, device="meta"),
        episodes=[],
    )
