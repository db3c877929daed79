"""PPO's steps, executed on a GPU: the same functions, recorded once as CUDA graphs and replayed.

A rollout of Atari games lives on the device: screens come in, actions go out, and all between and
after, from preprocessing to the last gradient step, happens there without the host waiting for it.
On a CPU the same code runs step by step.
"""

import time
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from relval.envs import AtariPool, Episode, EpisodeCounter
from relval.envs.atari.player import STACK
from relval.envs.atari.screens import SIZE
from relval.envs.atari.tensors import FrameMaker, push
from relval.ppo import Agent, Collected, Compiler, as_it_is
from relval.relative import Trajectories

Result = TypeVar("Result")
Waiting = Generator[None, None, Result]
"""Yields when it would have to wait, to be asked again later."""


def finish(waiting: Waiting[Result]) -> Result:
    """Asks again and again, and returns the result."""
    while True:
        try:
            next(waiting)
        except StopIteration as stop:
            result: Result = stop.value
            return result


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
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
                self.result = self.function()
        self.graph.replay()
        return self.result


class DeviceCollector:
    """Steps Atari games with an agent on a device, from one rollout to the next.

    Args:
      pool: Games that deliver screens.
      agent: Who plays, and whose critic remembers.
      steps: Of each game in a rollout.
      generator: The source of random numbers, on the agent's device.
      seed: Of the games.
      record: Whether to record steps as CUDA graphs.
      compiled: Makes a function of tensors faster.
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
    ) -> None:
        self.pool, self.agent, self.steps, self.generator = pool, agent, steps, generator
        self.counter = EpisodeCounter(pool)
        self.device = generator.device
        pool.reset(seed=seed)
        board, count = pool.board, pool.num_envs
        self._host = torch.from_numpy(board.shown)
        _lock_pages(self._host, self.device)
        self._incoming = torch.empty_like(self._host, device=self.device)
        screens = self._incoming[: board.observations.nbytes]
        self._screens = screens.view(board.observations.shape)
        begin = board.ended.ctypes.data - board.shown.ctypes.data
        self._ended = self._incoming[begin : begin + count].view(torch.bool)
        height = board.observations.shape[2]
        self._make_frames = FrameMaker(height, torch.from_numpy(pool.grey), self.device)
        self._receive_screens()
        self.stacks = self._make_frames(self._screens)[:, None].repeat(1, STACK, 1, 1)
        self._reserve(count)
        self._see, self._think = compiled(_see), compiled(_think)
        self._act_once = Recorded(self._act, generator, enabled=record)
        self._look_and_act = Recorded(self._observe_and_act, generator, enabled=record)

    def _reserve(self, count: int) -> None:
        """Memory for a rollout: a row more than steps, and the last state of a cut game for each.

        A game is never cut off twice in one rollout.
        """
        rows, states = (self.steps + 1) * count, (self.steps + 2) * count
        device, policy = self.device, self.agent.policy
        self._observations = torch.zeros(
            states, STACK, SIZE, SIZE, dtype=torch.uint8, device=device
        )
        with torch.no_grad():
            features = self.agent.encoder(self.stacks)
            memory = self.agent.critic.remember(self.agent.critic_encoder(self.stacks))
            actions = policy.sample(policy(features), policy.noise(count, generator=self.generator))
        self._outputs = torch.zeros(rows, policy.outputs, device=device)
        self._actions = torch.zeros(rows, *actions.shape[1:], dtype=actions.dtype, device=device)
        self._memory = torch.zeros(states, *memory.shape[1:], device=device)
        self._noise = torch.zeros(self.steps + 1, count, policy.noise_size, device=device)
        self._log_prob = torch.zeros(self.steps * count, device=device)
        self._row = torch.zeros(1, dtype=torch.int64, device=device)
        self._env = torch.arange(count, device=device)
        self._chosen = torch.zeros(actions.shape, dtype=actions.dtype)
        self._done = None
        if device.type == "cuda":
            self._chosen = self._chosen.pin_memory()
            self._done = torch.cuda.Event()
        grid = (self.steps, count)
        self._traj = {
            "rewards": torch.zeros(grid, device=device),
            "terminated": torch.zeros(grid, dtype=torch.bool, device=device),
            "truncated": torch.zeros(grid, dtype=torch.bool, device=device),
            "successor": torch.zeros(grid, dtype=torch.int64, device=device),
        }

    @property
    def observations(self) -> np.ndarray:
        """What the agent sees now, `[N, 4, 84, 84]`."""
        return self.stacks.cpu().numpy()

    @observations.setter
    def observations(self, observations: np.ndarray) -> None:
        self.stacks.copy_(torch.from_numpy(observations))

    def collecting(self) -> Waiting[Collected]:
        """Plays a rollout; what it returns is overwritten by the next one."""
        count, steps = self.pool.num_envs, self.steps
        rewards = np.zeros((steps, count), np.float32)
        terminated, truncated = np.zeros((2, steps, count), np.bool_)
        successor = np.arange(count, (steps + 1) * count).reshape(steps, count)
        episodes: list[Episode] = []
        acting = emulating = 0.0
        self._noise.copy_(self.agent.policy.noise(steps + 1, count, generator=self.generator))
        self._row.zero_()
        for t in range(steps):
            begin = time.perf_counter()
            (self._look_and_act if t else self._act_once)()
            yield from self._wait_for_actions()
            chosen = self.agent.policy.to_environment(self._chosen)
            now = time.perf_counter()
            acting += now - begin
            self.pool.send(chosen)
            while not self.pool.ready():
                yield
            _, rewards[t], terminated[t], cut, infos = self.pool.receive()
            truncated[t] = cut & ~terminated[t]
            if truncated[t].any():
                self._keep_last(t, truncated[t], successor[t])
            episodes += self.counter.count(rewards[t], terminated[t] | truncated[t], infos)
            emulating += time.perf_counter() - now
        begin = time.perf_counter()
        self._look_and_act()  # for what the critic remembers of the last row; no action is played
        for name, values in (
            ("rewards", rewards),
            ("terminated", terminated),
            ("truncated", truncated),
            ("successor", successor),
        ):
            self._traj[name].copy_(torch.from_numpy(values))
        seconds = {"env": emulating, "act": acting + time.perf_counter() - begin}
        return self._collected(episodes, seconds)

    def seconds_to_copy(self, repeats: int = 100) -> float:
        """What it takes to bring the screens of one step to the device."""
        self._receive_screens()
        self._ended.any().item()  # waits
        begin = time.perf_counter()
        for _ in range(repeats):
            self._receive_screens()
        self._ended.any().item()
        return (time.perf_counter() - begin) / repeats

    @torch.no_grad()
    def _collected(self, episodes: list[Episode], seconds: dict[str, float]) -> Collected:
        """The rollout, in memory that stays where it is."""
        played = self.steps * self.pool.num_envs
        outputs, actions = self._outputs[:played], self._actions[:played]
        self._log_prob.copy_(self.agent.policy.log_prob(outputs, actions))
        return Collected(
            traj=Trajectories(**self._traj, num_states=len(self._observations)),
            actions=actions,
            policy_outputs=outputs,
            memory=self._memory,
            observations=self._observations[:played],
            log_prob=self._log_prob,
            episodes=episodes,
            seconds=seconds,
        )

    def _receive_screens(self) -> None:
        self._incoming.copy_(self._host, non_blocking=True)

    @torch.no_grad()
    def _observe_and_act(self) -> None:
        self._receive_screens()
        self._see(self._make_frames, self._screens, self._ended, self.stacks)
        self._act()

    @torch.no_grad()
    def _act(self) -> None:
        """Chooses actions for what is seen, and keeps all that learning will need of it."""
        memory, outputs, actions = self._think(self.agent, self.stacks, self._noise, self._row)
        places = self._row * len(self._env) + self._env
        self._observations.index_copy_(0, places, self.stacks)
        self._memory.index_copy_(0, places, memory)
        self._outputs.index_copy_(0, places, outputs)
        self._actions.index_copy_(0, places, actions)
        self._chosen.copy_(actions, non_blocking=True)
        self._row.add_(1)

    def _wait_for_actions(self) -> Waiting[None]:
        if self._done is not None:
            self._done.record()
            while not self._done.query():
                yield

    @torch.no_grad()
    def _keep_last(self, t: int, cut: np.ndarray, successor: np.ndarray) -> None:
        """Appends the true last states of games that were cut off in step t."""
        count = self.pool.num_envs
        for env in cut.nonzero()[0].tolist():
            last = torch.from_numpy(self.pool.board.final_observations[env]).to(self.device)
            before = self._observations[t * count + env]
            stack = torch.cat([before[1:], self._make_frames(last[None])])[None]
            successor[env] = place = (self.steps + 1) * count + env
            self._observations[place] = stack[0]
            self._memory[place] = self.agent.critic.remember(self.agent.critic_encoder(stack))[0]


def _see(make_frames: FrameMaker, screens: Tensor, ended: Tensor, stacks: Tensor) -> None:
    """Takes new screens in."""
    stacks.copy_(push(stacks, make_frames(screens), ended))


def _think(
    agent: Agent, stacks: Tensor, noise: Tensor, row: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What the critic remembers, the policy's outputs, and actions."""
    features = agent.encoder(stacks)
    seen = features if agent.shared else agent.critic_encoder(stacks)
    outputs = agent.policy(features)
    actions = agent.policy.sample(outputs, noise.index_select(0, row)[0])
    return agent.critic.remember(seen), outputs, actions


def _lock_pages(host: Tensor, device: torch.device) -> None:
    """Lets the device read memory by itself, for as long as the tensor lives."""
    if device.type != "cuda":
        return
    address, cudart = host.data_ptr(), torch.cuda.cudart()
    code = int(cudart.cudaHostRegister(address, host.numel(), 0))
    if code != 0:
        raise RuntimeError(f"shared memory could not be page-locked: CUDA error {code}")
    weakref.finalize(host, cudart.cudaHostUnregister, address)
