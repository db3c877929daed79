"""A run and its folder: start, watch, stop, resume, load."""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from relval import envs
from relval.accelerated import Waiting, finish, in_turn
from relval.critics import critic_name
from relval.ppo import Agent
from relval.runs import checkpoint as checkpoints
from relval.runs.config import Config, from_yaml, to_yaml
from relval.runs.display import Display, Progress, make_displays
from relval.runs.logs import CsvLog, TensorBoard, Tracker, WeightsAndBiases, require_wandb
from relval.runs.profile import Profile
from relval.runs.provenance import provenance
from relval.runs.trainer import Trainer, make_normaliser, restore_agent
from relval.runs.watch import Watch

_CONFIG, _PROVENANCE, _SUMMARY = "config.yaml", "provenance.json", "summary.json"
_CHECKPOINTS, _METRICS, _EPISODES = "checkpoints", "metrics.csv", "episodes.csv"


class InterruptedRunError(Exception):
    """A run that was asked to stop, and saved itself first."""


@dataclass(frozen=True)
class Policy:
    """A trained policy: call it with an observation, or with a batch of them."""

    agent: Agent
    normaliser: envs.Normaliser
    shape: tuple[int, ...]
    generator: torch.Generator
    trained: int
    """Environment steps so far."""

    @torch.no_grad()
    def __call__(self, observation: ArrayLike, *, deterministic: bool = True) -> np.ndarray:
        """The action for an observation as the environment gives it.

        Args:
          observation: One observation, or a batch `[B, ...]`.
          deterministic: The likeliest action, or else one drawn from the policy.
        """
        single = np.shape(observation) == self.shape
        batch = np.asarray(observation)[None] if single else np.asarray(observation)
        seen = torch.from_numpy(np.ascontiguousarray(self.normaliser.observations(batch)))
        head = self.agent.policy
        outputs = head(self.agent.encoder(seen.to(self.generator.device)))
        noise = head.noise(len(batch), generator=self.generator)
        actions = head.mode(outputs) if deterministic else head.sample(outputs, noise)
        chosen = head.to_environment(actions)
        action: np.ndarray = chosen[0] if single else chosen
        return action


@dataclass(frozen=True)
class Run:
    """A run's folder, and what can be had from it."""

    folder: Path
    config: Config

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def metrics(self) -> Path:
        """The curves: `pandas.read_csv(run.metrics)`."""
        return self.folder / _METRICS

    @property
    def episodes(self) -> Path:
        """All finished episodes: `pandas.read_csv(run.episodes)`."""
        return self.folder / _EPISODES

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return (self.folder / _SUMMARY).exists()

    @property
    def summary(self) -> dict[str, Any]:
        """What a finished run came to."""
        if not self.finished:
            raise FileNotFoundError(
                f"{self.folder} has not finished; go on with `relval train --resume {self.folder}`"
            )
        summary: dict[str, Any] = json.loads((self.folder / _SUMMARY).read_text(encoding="utf-8"))
        return summary

    @property
    def provenance(self) -> dict[str, Any]:
        """The versions, source and machine that the run was started with."""
        text = (self.folder / _PROVENANCE).read_text(encoding="utf-8")
        provenance: dict[str, Any] = json.loads(text)
        return provenance

    @cached_property
    def policy(self) -> Policy:
        """The policy of the newest checkpoint."""
        newest = checkpoints.load_newest(self.folder / _CHECKPOINTS)
        if newest is None:
            raise FileNotFoundError(
                f"{self.folder} has no checkpoint yet; go on with "
                f"`relval train --resume {self.folder}`"
            )
        made = envs.make(self.config.env, replace(self.config.envs, num_envs=1, workers=0))
        space = made.single_observation_space
        agent = Agent(space, made.single_action_space, self.config.network, self.config.critic)
        made.close()
        restore_agent(agent, newest)
        normaliser = make_normaliser(self.config, space.shape or ())
        normaliser.restore(newest.state["normaliser"])
        generator = torch.Generator().manual_seed(self.config.seed)
        return Policy(agent, normaliser, space.shape or (), generator, newest.state["step"])


def load(folder: str | Path) -> Run:
    """The run in a folder."""
    folder = Path(folder)
    path = folder / _CONFIG
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no run: there is no {path}")
    return Run(folder, from_yaml(path.read_text(encoding="utf-8")))


def default_folder(config: Config) -> Path:
    """Where a run goes that was not told where."""
    env = config.env.replace("/", "-").lower()
    return Path("runs") / f"{env}-{critic_name(config.critic)}-{config.seed}"


def train(
    config: Config,
    out: str | Path | None = None,
    *,
    quiet: bool = False,
    wandb: bool = False,
    profile: bool = False,
) -> Run:
    """Trains from the beginning, in a new folder.

    Args:
      config: What to train; see `configure`.
      out: The run's folder; by default one under `runs` named for the environment, critic and seed.
      quiet: Show no progress.
      wandb: Send curves to Weights & Biases too.
      profile: Write where the time went, as a table and a picture.

    Returns:
      The finished run.
    """
    (run,) = train_together([config], [out], quiet=quiet, wandb=wandb, profile=profile)
    return run


def train_together(
    configs: Sequence[Config],
    outs: Sequence[str | Path | None] | None = None,
    *,
    quiet: bool = False,
    wandb: bool = False,
    profile: bool = False,
) -> list[Run]:
    """Trains several runs from the beginning, in this process, where they take turns.

    On a GPU the games of one are played while another learns. No run sees anything of another. The
    other arguments are those of `train`, with one configuration and one folder for each run.
    """
    folders = [
        default_folder(config) if out is None else Path(out)
        for config, out in zip(configs, outs or [None] * len(configs), strict=True)
    ]
    for place, folder in enumerate(folders):
        _check_empty(folder)
        if folder in folders[:place]:
            raise ValueError(f"two runs have the same folder, {folder}: give each its own")
    if wandb:
        require_wandb()
    begun = [
        _begin(config, folder, runs=len(configs))
        for config, folder in zip(configs, folders, strict=True)
    ]
    _raise(_learn(begun, quiet=quiet, wandb=wandb, profile=profile))
    return [each.run for each in begun]


def resume(
    folder: str | Path,
    *,
    quiet: bool = False,
    wandb: bool = False,
    say: Callable[[str], object] = print,
) -> Run:
    """Goes on with a run from its newest checkpoint, to its end."""
    run = load(folder)
    if run.finished:
        say(f"{run.folder} has finished already")
        return run
    if wandb:
        require_wandb()
    _raise(_learn([_reopen(run, runs=1, say=say)], quiet=quiet, wandb=wandb))
    return run


def train_or_resume(
    configs: Sequence[Config], folders: Sequence[Path]
) -> dict[Path, Exception | None]:
    """Brings several runs to their end, in this process, quietly, each from where it stands.

    Returns:
      By folder, what has stopped a run before its end; one that fails does not stop the others.
    """
    stopped_by: dict[Path, Exception | None] = {}
    begun: list[_Begun] = []
    for config, folder in zip(configs, folders, strict=True):
        try:
            if (folder / _CONFIG).exists():
                run = load(folder)
                begun.append(_reopen(run, runs=len(configs), say=lambda message: None))
            else:
                _check_empty(folder)
                begun.append(_begin(config, folder, runs=len(configs)))
        except Exception as failure:
            stopped_by[folder] = failure
    failures = _learn(begun, quiet=True, wandb=False)
    return stopped_by | dict(zip((each.run.folder for each in begun), failures, strict=True))


@dataclass(frozen=True)
class _Begun:
    """A run that is ready to learn; `kept` says how much of each log belongs to it so far."""

    run: Run
    trainer: Trainer
    kept: dict[str, int] = field(default_factory=dict)


def _check_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(
            f"{folder} holds something already, and nothing is overwritten: go on with it by "
            f"`relval train --resume {folder}`, or choose another --out"
        )


def _begin(config: Config, folder: Path, *, runs: int) -> _Begun:
    """A new run in an empty folder, one of some that share the process."""
    with _explained():
        trainer = Trainer(config, runs=runs)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / _PROVENANCE, provenance())
    _write(folder / _CONFIG, to_yaml(config))
    return _Begun(Run(folder, config), trainer)


def _reopen(run: Run, *, runs: int, say: Callable[[str], object]) -> _Begun:
    """A run as its newest checkpoint left it."""
    with _explained():
        trainer = Trainer(run.config, runs=runs)
    newest = checkpoints.load_newest(run.folder / _CHECKPOINTS)
    if newest is None:
        say(f"{run.folder} has no checkpoint yet: starting from the beginning")
        return _Begun(run, trainer)
    for lost in trainer.restore(newest):
        say(f"not restored: {lost}")
    say(f"{run.folder} goes on from step {trainer.step:,}")
    return _Begun(run, trainer, newest.state["logs"])


def _learn(
    begun: Sequence[_Begun], *, quiet: bool, wandb: bool, profile: bool = False
) -> list[Exception | None]:
    """Trains to the end, all in turn; what has stopped each before, if anything has."""
    titles = [each.run.name for each in begun]
    displaying = make_displays(titles, quiet=quiet)
    with displaying as displays, _stop_on_interrupt() as stopped:
        return take_turns(
            [
                _learning(each, display, stopped, wandb=wandb, profile=profile)
                for each, display in zip(begun, displays, strict=True)
            ]
        )


def _raise(failures: Sequence[Exception | None]) -> None:
    """Raises the first failure; that runs were asked to stop, for all of them."""
    failed = [failure for failure in failures if failure is not None]
    if failed and all(isinstance(failure, InterruptedRunError) for failure in failed):
        raise InterruptedRunError("\n".join(map(str, failed)))
    for failure in failed:
        if not isinstance(failure, InterruptedRunError):
            raise failure


def _learning(
    begun: _Begun,
    display: Display,
    stopped: Callable[[], bool],
    *,
    wandb: bool,
    profile: bool,
) -> Waiting[None]:
    """Trains one run to its end, giving way whenever it would have to wait."""
    run, trainer, kept = begun.run, begun.trainer, begun.kept
    config, folder = run.config, run.folder
    logs = {name: CsvLog(folder / name, keep=kept.get(name, 0)) for name in (_METRICS, _EPISODES)}
    resumed_at = trainer.step or None
    trackers: list[Tracker] = [TensorBoard(folder / "tensorboard", resumed_at=resumed_at)]
    if wandb:
        trackers.append(WeightsAndBiases(run.folder, asdict(config)))

    def save() -> None:
        state = trainer.capture()
        sizes = {name: log.flush() for name, log in logs.items()}
        state = checkpoints.Checkpoint(state.tensors, {**state.state, "logs": sizes})
        checkpoints.save(folder / _CHECKPOINTS, trainer.step, state)

    saved = trainer.step
    batch = config.ppo.steps * config.envs.num_envs
    watched = Watch(run.name)
    profiled = Profile(-(-(config.total_steps - trainer.step) // batch))
    try:
        while trainer.step < config.total_steps:
            metrics, seconds, episodes = yield from trainer.iterating()
            profiled.add(seconds)
            whole = sum(seconds.values())
            for episode in episodes:
                logs[_EPISODES].append({"step": trainer.step, **asdict(episode)})
            general = {
                "score": float("nan") if trainer.score is None else trainer.score,
                "episodes": trainer.episodes,
                "steps_per_second": batch / whole,
                **{f"seconds_{phase}": spent for phase, spent in seconds.items()},
            }
            logs[_METRICS].append({"step": trainer.step, **general, **metrics})
            watched.look(trainer.step, metrics)
            for tracker in trackers:
                tracker.log(trainer.step, {**general, **metrics})
            display.show(
                Progress(
                    trainer.step,
                    config.total_steps,
                    trainer.score,
                    trainer.episodes,
                    trainer.step / trainer.seconds,
                    metrics,
                    {phase: spent / whole for phase, spent in seconds.items()},
                )
            )
            if stopped() and trainer.step < config.total_steps:
                save()
                raise InterruptedRunError(
                    f"stopped and saved at step {trainer.step:,}; go on with "
                    f"`relval train --resume {folder}`"
                )
            if trainer.step - saved >= config.checkpoint_every:
                save()
                saved = trainer.step
        if trainer.step != saved:
            save()
        if profile:
            profiled.write(folder, trainer)
    finally:
        for log in logs.values():
            log.close()
        for tracker in trackers:
            tracker.close()
        trainer.envs.close()
    _write_json(
        folder / _SUMMARY,
        {
            "env": config.env,
            "critic": critic_name(config.critic),
            "seed": config.seed,
            "score": trainer.score,
            "steps": trainer.step,
            "episodes": trainer.episodes,
            "seconds": trainer.seconds,
            "steps_per_second": trainer.step / trainer.seconds,
        },
    )


@contextmanager
def _explained() -> Iterator[None]:
    """Says what to change when a GPU is full."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RuntimeError(
            "the GPU has no memory left: train fewer seeds at once, make ppo.minibatch smaller, or "
            "end what else uses it"
        ) from error


def take_turns(runs: Sequence[Waiting[None]]) -> list[Exception | None]:
    """Asks each run in turn, until all have ended; a run that fails does not stop the others.

    Returns:
      The failure of each, if it failed.
    """
    failures: list[Exception | None] = [None] * len(runs)

    def noting_failure(number: int, run: Waiting[None]) -> Waiting[None]:
        try:
            with _explained():
                yield from run
        except Exception as failure:
            failures[number] = failure

    finish(in_turn([noting_failure(number, run) for number, run in enumerate(runs)]))
    return failures


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C or SIGTERM into a wish to stop; a second one interrupts at once."""
    wished = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if wished.is_set():
            raise KeyboardInterrupt
        wished.set()

    if threading.current_thread() is not threading.main_thread():
        yield wished.is_set
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wished.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    _write(path, json.dumps(content, indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
