"""PPO's steps, executed on a GPU: the same functions, recorded once as CUDA graphs and replayed.

A rollout of Atari games lives on the device: screens come in, actions go out, and all between and
after, from preprocessing to the last gradient step, happens there without the host waiting for it.
On a CPU the same code runs step by step.
"""

import gc
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from relval._machine import give_way
from relval.envs import AtariPool, Episode, EpisodeCounter
from relval.envs.atari.player import RESULT, STACK, copy_records
from relval.envs.atari.pool import Group
from relval.envs.atari.screens import SIZE
from relval.envs.atari.tensors import FrameMaker, push
from relval.optimizer import Compiler, as_it_is
from relval.ppo import Agent, Collected
from relval.relative import Trajectories

Result = TypeVar("Result")
Waiting = Generator[None, None, Result]
"""Yields when it would have to wait, to be asked again later."""
GROUPS = 8
"""Of games that do not wait for each other, in all runs of a process."""
_LONG = 1.0
"""Seconds that no device takes to choose actions."""


def finish(waiting: Waiting[Result]) -> Result:
    """Asks again and again, and returns the result; in the end the stream is what it was.

    In between it gives way to any process that wants the core: it may be the one waited for.
    """
    stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None
    try:
        while True:
            try:
                next(waiting)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            give_way()
    finally:
        go_to(stream)


def go_to(stream: torch.cuda.Stream | None) -> None:
    """Lets all that follows happen in a stream, until told otherwise; a context costs ten times."""
    if stream is not None:
        torch.cuda.set_stream(stream)


def in_turn(works: Sequence[Waiting[None]]) -> Waiting[None]:
    """Asks each in turn, until all have ended; closes those that are left if one fails."""
    going = list(works)
    try:
        while going:
            for work in tuple(going):
                try:
                    next(work)
                except StopIteration:
                    going.remove(work)
            yield
    finally:
        for work in going:
            work.close()


class Recorded:
    """A function without arguments that works on fixed memory, as one CUDA graph.

    The first call runs it as it is, so that libraries can set themselves up; the second records
    it. Where there is no GPU, every call runs it as it is.

    Args:
      function: What to run; it returns tensors in memory of its own, or nothing.
      generator: The source of its random numbers.
      enabled: Whether to record.
    """

    def __init__(
        self, function: Callable[[], Any], generator: torch.Generator, *, enabled: bool
    ) -> None:
        self.function = function
        self.generator = generator
        self.enabled = enabled and generator.device.type == "cuda"
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: Any = None

    def __call__(self) -> Any:
        """Runs the function."""
        self.calls += 1
        if not self.enabled or self.calls == 1:
            return self.function()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            self.graph.register_generator_state(self.generator)
            here = torch.cuda.current_stream()
            elsewhere = here == torch.cuda.default_stream()  # where nothing can be recorded
            with _no_garbage(), torch.cuda.graph(self.graph, stream=None if elsewhere else here):
                self.result = self.function()
        self.graph.replay()
        return self.result


class DeviceCollector:
    """Steps Atari games with an agent on a device, from one rollout to the next.

    Games are split into groups that do not wait for each other within a rollout, so that a long
    step of one does not hold up all, and a group's games are played while another's actions are
    chosen. What is played does not depend on that: the noise of each action is drawn beforehand.

    Args:
      pool: Games that deliver screens.
      agent: Who plays, and whose critic remembers.
      steps: Of each game in a rollout.
      generator: The source of random numbers, on the agent's device.
      seed: Of the games.
      record: Whether to record steps as CUDA graphs.
      compiled: Makes a function of tensors faster.
      groups: How many groups, at most.
    """

    def __init__(
        self,
        pool: AtariPool,
        agent: Agent,
        steps: int,
        generator: torch.Generator,
        *,
        seed: int,
        record: bool,
        compiled: Compiler = as_it_is,
        groups: int = GROUPS,
    ) -> None:
        self.pool, self.agent, self.steps, self.generator = pool, agent, steps, generator
        self.counter = EpisodeCounter(pool)
        self.device = generator.device
        pool.reset(seed=seed)
        self._host = torch.from_numpy(pool.board.shown)
        if self.device.type == "cuda":
            _lock_pages(pool, self._host)
        self._make_frames = FrameMaker(
            pool.board.observations.shape[2], torch.from_numpy(pool.grey), self.device
        )
        self.stacks = torch.zeros(
            pool.num_envs, STACK, SIZE, SIZE, dtype=torch.uint8, device=self.device
        )
        self._rollout = _Memory(agent, self.stacks, steps, generator)
        self._groups = [
            _Player(self, group, record=record, compiled=compiled) for group in pool.groups(groups)
        ]

    @property
    def observations(self) -> np.ndarray:
        """What the agent sees now, `[N, 4, 84, 84]`."""
        return self.stacks.cpu().numpy()

    @observations.setter
    def observations(self, observations: np.ndarray) -> None:
        self.stacks.copy_(torch.from_numpy(observations))

    def collecting(self) -> Waiting[Collected]:
        """Plays a rollout; what it returns is overwritten by the next one."""
        begin = time.perf_counter()
        rollout, count = self._rollout, self.pool.num_envs
        rollout.begin(self.agent.policy.noise(self.steps + 1, count, generator=self.generator))
        stream = torch.cuda.current_stream() if self.device.type == "cuda" else None
        for player in self._groups:
            _let_wait(player.stream, stream)
        yield from in_turn([player.playing() for player in self._groups])
        go_to(stream)
        for player in self._groups:
            _let_wait(stream, player.stream)
        acting = float(np.mean([player.seconds_acting for player in self._groups]))
        seconds = {"env": time.perf_counter() - begin - acting, "act": acting}
        return rollout.collected(self.agent, seconds)

    def seconds_to_copy(self, repeats: int = 100) -> float:
        """What it takes to bring the screens of one step to the device."""
        player = self._groups[0]
        player.receive_screens()
        player.ended.any().item()  # waits
        begin = time.perf_counter()
        for _ in range(repeats):
            player.receive_screens()
        player.ended.any().item()
        return (time.perf_counter() - begin) / repeats

    def seconds_to_emulate(self, steps: int = 512) -> float:
        """What a step of all games takes by itself, with random actions: the least it could be."""
        random = np.random.default_rng(0)
        actions = random.integers(self.agent.policy.outputs, size=(steps, self.pool.num_envs))

        def playing(group: Group) -> Waiting[None]:
            for chosen in actions[:, group.envs]:
                group.send(chosen)
                while not group.ready():
                    yield

        begin = time.perf_counter()
        finish(in_turn([playing(player.group) for player in self._groups]))
        return (time.perf_counter() - begin) / steps


class _Memory:
    """A rollout of fixed size on a device, which is filled again and again.

    States are numbered as `Trajectories` does; behind the grid each game has one place more, for
    its last state where it is cut off. That happens at most once in a rollout.
    """

    def __init__(
        self, agent: Agent, stacks: Tensor, steps: int, generator: torch.Generator
    ) -> None:
        count, device, policy = len(stacks), stacks.device, agent.policy
        rows, states = (steps + 1) * count, (steps + 2) * count
        with torch.no_grad():
            memory = agent.critic.remember(agent.critic_encoder(stacks))
            noise = policy.noise(steps + 1, count, generator=generator)
            actions = policy.sample(policy(agent.encoder(stacks)), noise[0])
        self.steps, self.count = steps, count
        self.noise = noise
        self.observations = stacks.new_zeros(states, *stacks.shape[1:])
        self.memory = memory.new_zeros(states, *memory.shape[1:])
        self.outputs = noise.new_zeros(rows, policy.outputs)
        self.actions = actions.new_zeros(rows, *actions.shape[1:])
        self.kept = (self.observations, self.memory, self.outputs, self.actions)
        self.log_prob = noise.new_zeros(steps * count)
        self.results = np.zeros((steps, count), RESULT)
        self.successor = np.zeros((steps, count), np.int64)
        self.traj = {
            name: torch.zeros((steps, count), dtype=dtype, device=device)
            for name, dtype in (
                ("rewards", torch.float32),
                ("terminated", torch.bool),
                ("truncated", torch.bool),
                ("successor", torch.int64),
            )
        }

    def begin(self, noise: Tensor) -> None:
        """Makes ready for another rollout, whose actions this noise will pick."""
        self.noise.copy_(noise)
        numbers = np.arange(self.count, (self.steps + 1) * self.count)
        self.successor[:] = numbers.reshape(self.steps, self.count)

    @torch.no_grad()
    def collected(self, agent: Agent, seconds: dict[str, float]) -> Collected:
        """The rollout, in memory that stays where it is."""
        results = self.results
        for name, values in (
            ("rewards", np.sign(results["raw_reward"])),
            ("terminated", results["terminated"]),
            ("truncated", results["truncated"] & ~results["terminated"]),
            ("successor", self.successor),
        ):
            self.traj[name].copy_(torch.from_numpy(values))
        episodes = [
            Episode(int(env), float(results["score"][t, env]), int(results["length"][t, env]))
            for t, env in zip(*results["finished"].nonzero(), strict=True)
        ]
        played = self.steps * self.count
        outputs, actions = self.outputs[:played], self.actions[:played]
        self.log_prob.copy_(agent.policy.log_prob(outputs, actions))
        return Collected(
            traj=Trajectories(**self.traj, num_states=len(self.observations)),
            actions=actions,
            policy_outputs=outputs,
            memory=self.memory,
            states=self.observations,
            log_prob=self.log_prob,
            episodes=episodes,
            seconds=seconds,
        )


class _Player:
    """Plays a group of games through a rollout: screens in, actions out."""

    def __init__(
        self, collector: DeviceCollector, group: Group, *, record: bool, compiled: Compiler
    ) -> None:
        self.agent, self.group = collector.agent, group
        self.board, self.device = collector.pool.board, collector.device
        self.rollout, self.make_frames = collector._rollout, collector._make_frames
        self.stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        self.seconds_acting = 0.0
        """In the last rollout; the rest of it was waiting for emulation."""
        envs = group.envs
        self.host, self.stacks = collector._host[envs], collector.stacks[envs]
        self.incoming = torch.empty_like(self.host, device=self.device)
        shape = self.board.observations.shape[1:]
        size = int(np.prod(shape))
        self.screens = self.incoming[:, :size].unflatten(1, shape)
        self.ended = self.incoming[:, size].view(torch.bool)
        self.row = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.env = torch.arange(group.begin, group.end, device=self.device)
        self.chosen = torch.zeros(len(self.env), dtype=torch.int64)
        if self.stream is not None:
            self.chosen = self.chosen.pin_memory()
        self.actions = self.chosen.numpy()
        """The actions that were chosen, as they arrive from the device; negative until then."""
        self._see, self._think = compiled(_see), compiled(_think)
        generator = collector.generator
        self._act_once = Recorded(self._act, generator, enabled=record)
        self._look_and_act = Recorded(self._observe_and_act, generator, enabled=record)
        self.receive_screens()
        self.stacks.copy_(self.make_frames(self.screens)[:, None])

    def playing(self) -> Waiting[None]:
        """Plays the group's part of a rollout."""
        rollout, envs = self.rollout, self.group.envs
        acting = 0.0
        go_to(self.stream)
        self.row.zero_()
        for t in range(rollout.steps):
            begin = time.perf_counter()
            self.actions.fill(-1)
            go_to(self.stream)
            (self._look_and_act if t else self._act_once)()
            while -1 in self.actions.tolist():
                yield
                _check_health(time.perf_counter() - begin)
            acting += time.perf_counter() - begin
            self.group.send(self.actions)
            while not self.group.ready():
                yield
            copy_records(self.board.results[envs], rollout.results[t, envs])
            self._keep_last_states(t)
        go_to(self.stream)
        self._look_and_act()  # for what the critic remembers of the last row
        self.seconds_acting = acting

    def receive_screens(self) -> None:
        """Brings the group's screens to the device."""
        self.incoming.copy_(self.host, non_blocking=True)

    @torch.no_grad()
    def _observe_and_act(self) -> None:
        self.receive_screens()
        self._see(self.make_frames, self.screens, self.ended, self.stacks)
        self._act()

    @torch.no_grad()
    def _act(self) -> None:
        """Chooses actions for what is seen, and keeps all that learning will need of it."""
        noise = self.rollout.noise[:, self.group.envs]
        actions = self._think(self.agent, self.stacks, noise, self.row, self.env, self.rollout.kept)
        self.chosen.copy_(actions, non_blocking=True)

    @torch.no_grad()
    def _keep_last_states(self, t: int) -> None:
        """Appends the true last states of games that were cut off in step t."""
        results = self.rollout.results[t, self.group.envs]
        if True not in results["truncated"].tolist():
            return
        rollout = self.rollout
        for place in np.flatnonzero(results["truncated"] & ~results["terminated"]):
            env = self.group.begin + int(place)
            number = (rollout.steps + 1) * rollout.count + env
            go_to(self.stream)
            last = torch.from_numpy(self.board.final_observations[env]).to(self.device)
            before = rollout.observations[t * rollout.count + env]
            stack = torch.cat([before[1:], self.make_frames(last[None])])[None]
            rollout.observations[number] = stack[0]
            memory = self.agent.critic.remember(self.agent.critic_encoder(stack))
            rollout.memory[number] = memory[0]
            rollout.successor[t, env] = number


def _see(make_frames: FrameMaker, screens: Tensor, ended: Tensor, stacks: Tensor) -> None:
    """Takes new screens in."""
    stacks.copy_(push(stacks, make_frames(screens), ended))


def _think(
    agent: Agent, stacks: Tensor, noise: Tensor, row: Tensor, first: Tensor, kept: Sequence[Tensor]
) -> Tensor:
    """Chooses actions, and writes down what learning will need.

    Args:
      agent: Who thinks.
      stacks: What it sees, `[n, 4, 84, 84]`.
      noise: What picks actions, in each row of the rollout.
      row: The row that is played, `[1]`; moved on to the next.
      first: The states of the first row, `[n]`.
      kept: Observations, what the critic remembers, the policy's outputs, and actions, each with a
        place for every state.
    """
    features = agent.encoder(stacks)
    seen = features if agent.shared else agent.critic_encoder(stacks)
    outputs = agent.policy(features)
    actions = agent.policy.sample(outputs, noise.index_select(0, row)[0])
    states = first + row * (len(kept[-1]) // len(noise))
    for memory, values in zip(
        kept, (stacks, agent.critic.remember(seen), outputs, actions), strict=True
    ):
        memory.index_copy_(0, states, values)
    row.add_(1)
    return actions


_locked: weakref.WeakSet[AtariPool] = weakref.WeakSet()
"""Pools whose screens a device may read by itself."""


def _lock_pages(pool: AtariPool, host: Tensor) -> None:
    """Lets the device read memory by itself, for as long as the pool lives."""
    if pool in _locked:
        return
    address, cudart = host.data_ptr(), torch.cuda.cudart()
    code = int(cudart.cudaHostRegister(address, host.numel(), 0))
    if code != 0:
        raise RuntimeError(f"shared memory could not be page-locked: CUDA error {code}")
    _locked.add(pool)
    weakref.finalize(pool, cudart.cudaHostUnregister, address)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Collects garbage before, but not meanwhile: to free device memory would spoil a recording."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _let_wait(stream: torch.cuda.Stream | None, other: torch.cuda.Stream | None) -> None:
    """Lets what follows in a stream wait for what is in another one."""
    if stream is not None and other is not None:
        stream.wait_stream(other)


def _check_health(seconds: float) -> None:
    """Asks a device that takes long what is wrong."""
    if seconds > _LONG and torch.cuda.is_available():
        torch.cuda.synchronize()
