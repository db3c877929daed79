"""`AtariPool` against EnvPool, other vector environments, and emulation with nothing around it.

A step is four emulated frames of one environment. In each repeat every contender plays the same
random actions, one contender at a time while the others sleep, each first in its turn; ratios are
taken within a repeat, since the clock of a machine drifts from one to the next.
"""

import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, Self

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from relval._machine import cores
from relval._names import not_installed
from relval.envs.atari import AtariPool, names
from relval.envs.atari.game import SKIP, Rules, inspect
from relval.runs.provenance import processor

GAMES = ("Breakout", "Pong", "MsPacman")
STACKS = "AtariPool, stacks"
SCREENS = "AtariPool, screens (preprocessing not included)"
ENVPOOL = "EnvPool"
RAW = "raw emulation"


@dataclass(frozen=True)
class Bar:
    """What a contender is to reach of another's speed, in every game."""

    contender: str
    other: str
    ratio: float


@dataclass(frozen=True)
class Setting:
    """How many environments play, and what is demanded then."""

    num_envs: int
    bars: tuple[Bar, ...]

    @property
    def title(self) -> str:
        """How it is called."""
        workers = _count(_workers(self.num_envs), "worker")
        return f"{_count(self.num_envs, 'environment')}, {workers}"


ONE = Setting(1, (Bar(STACKS, ENVPOOL, 1.35), Bar(SCREENS, ENVPOOL, 1.7), Bar(SCREENS, RAW, 0.9)))
ALL_CORES = Setting(8, (Bar(STACKS, ENVPOOL, 1.35),))
Speeds = dict[str, list[float]]
"""Steps per second of each contender, one for each repeat; not of those that are not installed."""


def run(games: Sequence[str] = GAMES, seconds: float = 1.5, repeats: int = 5) -> None:
    """Steps per second of all contenders, in each setting and game, and whether the bars hold.

    Args:
      games: As `AtariPool` takes them.
      seconds: That each contender plays in a repeat.
      repeats: Of each measurement; their median counts.
    """
    games = [names.game(game) for game in games]
    _print_conditions(seconds, repeats)
    for setting in (ONE, ALL_CORES):
        heads = f"{'steps/s':>12}{'of EnvPool':>14}{'of raw emulation':>20}"
        print(f"\n{setting.title:<52}{heads}", flush=True)
        speeds: dict[str, Speeds] = {}
        for game in games:
            speeds[game] = _measure(game, setting, seconds, repeats)
            _print_rows(game, speeds[game])
        for bar in setting.bars:
            print(_verdict(bar, speeds))
    neighbours(games[0], seconds, repeats)


def neighbours(game: str = GAMES[0], seconds: float = 1.5, repeats: int = 5) -> None:
    """What others on the machine cost, and what a pool costs them while nobody steps it."""
    busy = max(1, cores() // 2)
    title = f"{ALL_CORES.title}, {_count(busy, 'busy neighbour')}"
    print(f"\n{title:<52}{'alone':>12}{'beside them':>14}{'left':>20}\n{game}", flush=True)
    alone: Speeds = {}
    beside: Speeds = {}
    with Race((STACKS, ENVPOOL), game, ALL_CORES.num_envs, seconds) as race:
        for repeat in range(repeats):
            race.round(f"alone, repeat {repeat + 1} of {repeats}", repeat, alone)
            with _busy_loops(busy):
                race.round(f"with neighbours, repeat {repeat + 1} of {repeats}", repeat, beside)
    for name in (STACKS, ENVPOOL):
        if name in alone:
            left = f"{_ratio(beside[name], alone[name]):.0%}"
            speed, slowed = (statistics.median(speeds[name]) for speeds in (alone, beside))
            print(f"  {name:<50}{speed:>12,.0f}{slowed:>14,.0f}{left:>20}")
        else:
            print(f"  {not_installed(name, 'bench')}")
    print(f"  AtariPool's workers, a second after the last step: {_idle_use(game)}")


# What competes


class Contender(Protocol):
    """Environments that have begun to play."""

    def play(self, actions: np.ndarray) -> None:
        """Plays actions, `[steps, num_envs]`."""

    def close(self) -> None:
        """Ends all threads and processes."""


class Stepped:
    """A vector environment, which plays a step of every environment at a time."""

    def __init__(self, envs: Any, **seed: int) -> None:
        self.envs = envs
        envs.reset(**seed)

    def play(self, actions: np.ndarray) -> None:
        """Plays actions, `[steps, num_envs]`."""
        step = self.envs.step
        for row in actions:
            step(row)

    def close(self) -> None:
        """Ends all threads and processes; the peers' threads end with the last reference."""
        self.envs.close()
        self.envs = None


class Raw:
    """Emulators in processes that wait for nothing, with no screens, episodes, or rewards."""

    def __init__(self, game: str, num_envs: int) -> None:
        self.processes = _workers(num_envs)
        self._executor = ProcessPoolExecutor(
            self.processes, get_context("fork"), initializer=_switch_on, initargs=(game,)
        )
        self.play(np.zeros((1, self.processes), int))  # starts them

    def play(self, actions: np.ndarray) -> None:
        """Plays actions, `[steps, num_envs]`, an equal share of them in each process."""
        list(self._executor.map(_emulate, np.array_split(actions.ravel(), self.processes)))

    def close(self) -> None:
        """Ends the processes."""
        self._executor.shutdown()


_console: Any = None
"""The emulator of a process of `Raw`."""


def _switch_on(game: str) -> None:
    global _console
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    _console = ALEInterface()
    _console.setFloat("repeat_action_probability", 0.0)
    _console.loadROM(roms.get_rom_path(names.rom(game)))


def _emulate(actions: np.ndarray) -> None:
    console = _console
    meanings = console.getMinimalActionSet()
    for action in actions:
        for _ in range(SKIP):
            console.act(meanings[action])
        if console.game_over():
            console.reset_game()


def _stacks(game: str, num_envs: int) -> Contender:
    return Stepped(AtariPool(game, num_envs), seed=0)


def _screens(game: str, num_envs: int) -> Contender:
    return Stepped(AtariPool(game, num_envs, deliver="screens"), seed=0)


def _envpool(game: str, num_envs: int) -> Contender:
    return Stepped(make_envpool(game, num_envs))


def make_envpool(game: str, num_envs: int) -> Any:
    """EnvPool with the meaning of `AtariPool`."""
    import envpool

    return envpool.make(
        f"{game}-v5",
        env_type="gymnasium",
        num_envs=num_envs,
        batch_size=num_envs,
        num_threads=_workers(num_envs),
        seed=0,
        episodic_life=True,
        repeat_action_probability=0.0,
        noop_max=30,
        use_fire_reset=True,
    )


def _ale_vector(game: str, num_envs: int) -> Contender:
    from ale_py.vector_env import AtariVectorEnv

    return Stepped(
        AtariVectorEnv(
            names.rom(game),
            num_envs,
            num_threads=_workers(num_envs),
            autoreset_mode=AutoresetMode.SAME_STEP,
            repeat_action_probability=0.0,
            noop_max=30,
            episodic_life=True,
            use_fire_reset=True,
        ),
        seed=0,
    )


def _wrappers(game: str, num_envs: int) -> Contender:
    import ale_py
    from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv, FireResetEnv

    gym.register_envs(ale_py)

    def make() -> gym.Env[Any, Any]:
        env = gym.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
        env = EpisodicLifeEnv(gym.wrappers.AtariPreprocessing(env, noop_max=30))
        if "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
            env = FireResetEnv(env)
        return gym.wrappers.FrameStackObservation(env, 4)

    return Stepped(
        AsyncVectorEnv(
            [make] * num_envs,
            shared_memory=True,
            context="fork",
            autoreset_mode=AutoresetMode.SAME_STEP,
        ),
        seed=0,
    )


def _workers(num_envs: int) -> int:
    """Processes, or threads; only Gymnasium has one for each environment."""
    return min(num_envs, cores())


CONTENDERS: dict[str, Callable[[str, int], Contender]] = {
    # Those with processes first: they fork before the others start threads.
    STACKS: _stacks,
    SCREENS: _screens,
    "Gymnasium AsyncVectorEnv, one process each": _wrappers,
    RAW: Raw,
    "ale_py AtariVectorEnv": _ale_vector,
    ENVPOOL: _envpool,
}
"""Makes each contender, of a game and a number of environments."""


# How it is measured


class Race:
    """Contenders side by side, of which one plays at a time.

    Args:
      contenders: Their names; those that are not installed stay away.
      game: What is played.
      num_envs: Of each.
      seconds: That each plays in a round; how many steps that is, a warm-up decides.
    """

    def __init__(self, contenders: Sequence[str], game: str, num_envs: int, seconds: float) -> None:
        self.game, self.num_envs = game, num_envs
        self._num_actions = len(inspect(game, Rules()).actions)
        self._contenders: dict[str, Contender] = {}
        self._steps: dict[str, int] = {}
        try:
            for name in contenders:
                self._show(f"preparing {name}")
                self._enter(name)
            for name in self._contenders:
                self._show(f"warming up {name}")
                self._steps[name] = self._steps_within(seconds, name)
        except BaseException:
            self.close()
            raise

    def round(self, title: str, number: int, speeds: Speeds) -> None:
        """Lets each play once, the first one in its turn, and notes the steps per second."""
        actions = self._draw(max(self._steps.values()), seed=number)
        order = list(self._contenders)
        first = number % len(order)
        for name in order[first:] + order[:first]:
            self._show(f"{title}: {name}")
            steps = self._steps[name]
            elapsed = self._time(name, actions[:steps])
            speeds.setdefault(name, []).append(steps * self.num_envs / elapsed)

    def close(self) -> None:
        """Lets all contenders go."""
        for contender in self._contenders.values():
            contender.close()
        self._contenders = {}
        _show_progress("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _enter(self, name: str) -> None:
        with warnings.catch_warnings():
            # From Python 3.12 on, to fork beside threads warns.
            warnings.simplefilter("ignore", DeprecationWarning)
            with suppress(ModuleNotFoundError):
                self._contenders[name] = CONTENDERS[name](self.game, self.num_envs)

    def _steps_within(self, seconds: float, name: str) -> int:
        """The steps that a contender plays in a time, from a fifth of it."""
        steps, elapsed = 4, 0.0
        while elapsed < seconds / 5:
            steps *= 2
            elapsed = self._time(name, self._draw(steps, seed=0))
        return max(1, round(steps * seconds / elapsed))

    def _draw(self, steps: int, seed: int) -> np.ndarray:
        shape = (steps, self.num_envs)
        return np.random.default_rng(seed).integers(self._num_actions, size=shape)

    def _time(self, name: str, actions: np.ndarray) -> float:
        begin = time.perf_counter()
        self._contenders[name].play(actions)
        return time.perf_counter() - begin

    def _show(self, what: str) -> None:
        _show_progress(f"{self.game}, {_count(self.num_envs, 'environment')}, {what}")


def _measure(game: str, setting: Setting, seconds: float, repeats: int) -> Speeds:
    """The speeds of all contenders."""
    speeds: Speeds = {}
    with Race(tuple(CONTENDERS), game, setting.num_envs, seconds) as race:
        for repeat in range(repeats):
            race.round(f"repeat {repeat + 1} of {repeats}", repeat, speeds)
    return speeds


def _ratio(speeds: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios within the repeats."""
    return statistics.median(a / b for a, b in zip(speeds, others, strict=True))


@contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    """Processes that compute all the time; they end with this one, come what may."""
    loop = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    processes = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        time.sleep(0.2)  # until they have started
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _idle_use(game: str) -> str:
    """Percent of a core that the workers of a pool use while they wait."""
    pool = AtariPool(game, ALL_CORES.num_envs, workers=_workers(ALL_CORES.num_envs))
    try:
        pool.reset(seed=0)
        pool.step(np.zeros(pool.num_envs, int))
        time.sleep(1.0)
        before, begin = _cpu_seconds(pool.worker_pids), time.perf_counter()
        time.sleep(1.0)
        after = _cpu_seconds(pool.worker_pids)
        elapsed = time.perf_counter() - begin
    finally:
        pool.close()
    uses = (f"{(b - a) / elapsed:.0%}" for a, b in zip(before, after, strict=True))
    return f"{' and '.join(uses)} of a core"


def _cpu_seconds(processes: Sequence[int]) -> list[float]:
    """What each process has used so far, from Linux's account of it."""
    seconds = []
    for pid in processes:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return seconds


# What is printed


def _print_conditions(seconds: float, repeats: int) -> None:
    packages = ("ale-py", "envpool", "gymnasium")
    print(
        f"{processor()}, {_count(cores(), 'core')}, load {os.getloadavg()[0]:.1f} before; "
        + ", ".join(f"{package} {_version(package)}" for package in packages)
    )
    print(
        f"steps of {SKIP} frames, random actions; medians of {repeats} interleaved repeats of "
        f"{seconds:g} s"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print_rows(game: str, speeds: Speeds) -> None:
    print(game)
    for name in CONTENDERS:
        if name in speeds:
            speed = f"{statistics.median(speeds[name]):,.0f}"
            of_envpool, of_raw = (_share(name, other, speeds) for other in (ENVPOOL, RAW))
            print(f"  {name:<50}{speed:>12}{of_envpool:>14}{of_raw:>20}", flush=True)
        else:
            print(f"  {not_installed(name, 'bench')}")


def _share(name: str, other: str, speeds: Speeds) -> str:
    return f"{_ratio(speeds[name], speeds[other]):.2f}x" if other in speeds else "-"


def _verdict(bar: Bar, speeds: dict[str, Speeds]) -> str:
    """Whether a bar holds in every game."""
    demand = f"{bar.contender.partition(' (')[0]}, at least {bar.ratio:g}x {bar.other}"
    if any(bar.other not in of_game for of_game in speeds.values()):
        return f"{demand}: not known"
    ratios = {
        game: _ratio(of_game[bar.contender], of_game[bar.other]) for game, of_game in speeds.items()
    }
    verdict = "holds" if min(ratios.values()) >= bar.ratio else "DOES NOT HOLD"
    return f"{demand}: {verdict} ({', '.join(f'{g} {r:.2f}x' for g, r in ratios.items())})"


def _show_progress(text: str) -> None:
    """Writes over the last line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
