"""Training: from configurations to finished runs, alone or several together."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType

import torch

from relval.accelerated import Waiting, finish, in_turn
from relval.critics import critic_name
from relval.envs import Episode
from relval.runs import checkpoint as checkpoints
from relval.runs import files
from relval.runs.config import Config, Device, to_yaml
from relval.runs.display import Display, Progress, make_displays
from relval.runs.logs import CsvLog, TensorBoard, Tracker, WeightsAndBiases, require_wandb
from relval.runs.profile import Profile
from relval.runs.provenance import continued, provenance
from relval.runs.run import Run, load, opened
from relval.runs.trainer import Trainer
from relval.runs.watch import Watch


class InterruptedRunError(Exception):
    """A run that was asked to stop, and saved itself first."""


@contextmanager
def _threads_left_as_found() -> Iterator[None]:
    """Puts PyTorch's number of threads back, which belongs to whoever called."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def default_folder(config: Config) -> Path:
    """Where a run goes that was not told where."""
    env = files.label(config.env).lower()
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


@_threads_left_as_found()
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
    for config in configs:
        if not isinstance(config, Config):
            raise TypeError(
                f"a configuration was expected, got {config!r}: use `configure`, for example "
                'train(configure("CartPole-v1"))'
            )
    folders = [
        default_folder(config) if out is None else Path(out)
        for config, out in zip(configs, outs or [None] * len(configs), strict=True)
    ]
    for place, folder in enumerate(folders):
        _check_empty(folder)
        if folder in folders[:place]:
            raise ValueError(f"two runs have the same folder, {folder}: give each its own")
    _check_one_precision(configs)
    if wandb:
        require_wandb()
    begun = [
        _begin(trainer, folder)
        for trainer, folder in zip(_make_trainers(configs), folders, strict=True)
    ]
    _raise(_learn(begun, quiet=quiet, wandb=wandb, profile=profile))
    return [each.run for each in begun]


@_threads_left_as_found()
def resume(
    run: Run | str | Path,
    *,
    device: Device | None = None,
    quiet: bool = False,
    wandb: bool = False,
    say: Callable[[str], object] = print,
) -> Run:
    """Goes on with a run from its newest checkpoint, to its end.

    Args:
      run: A run or its folder; one that has finished is left alone.
      device: Where networks live from now on; by default where they did. Another one draws other
        random numbers, and rounds otherwise.
      quiet: Show no progress.
      wandb: Send curves to Weights & Biases too.
      say: What to do with messages, such as the step that the run goes on from.

    Returns:
      The finished run.
    """
    run = opened(run)
    if run.finished:
        say(f"{run.folder} has finished already")
        return run
    if wandb:
        require_wandb()
    begun = _reopen(run, runs=1, device=device or run.config.device, say=say)
    _raise(_learn([begun], quiet=quiet, wandb=wandb))
    return run


@_threads_left_as_found()
def train_or_resume(
    configs: Sequence[Config], folders: Sequence[Path]
) -> dict[Path, Exception | None]:
    """Brings several runs to their end, in this process, quietly, each from where it stands.

    Args:
      configs: What to train. A run that has begun goes on as it was configured, on this device.
      folders: Of the runs.

    Returns:
      By folder, what has stopped a run before its end; one that fails does not stop the others.
    """
    runs = len(configs)
    stopped_by: dict[Path, Exception | None] = {}
    begun: list[_Begun] = []
    for config, folder in zip(configs, folders, strict=True):
        try:
            if files.is_begun(folder):
                begun.append(
                    _reopen(load(folder), runs=runs, device=config.device, say=_say_nothing)
                )
            else:
                _check_empty(folder)
                begun.append(_begin(_make_trainer(config, runs=runs), folder))
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
            f"`relval train --resume {folder}` (in Python, relval.resume({str(folder)!r})), or "
            "choose another folder with --out (in Python, `out`)"
        )


def _check_one_precision(configs: Sequence[Config]) -> None:
    """Refuses runs of which the last would decide how products are computed in all of them."""
    asked = {config.precision: None for config in configs if config.device == "cuda"}
    if len(asked) > 1:
        raise ValueError(
            f"runs that share a process on a GPU must have one precision, got {', '.join(asked)}: "
            "train those of each together"
        )


def _make_trainers(configs: Sequence[Config]) -> list[Trainer]:
    """Trainers that share the process; if one cannot be made, the others are closed."""
    with ExitStack() as made:
        trainers = []
        for config in configs:
            trainers.append(_make_trainer(config, runs=len(configs)))
            made.callback(trainers[-1].envs.close)
        made.pop_all()
        return trainers


def _make_trainer(config: Config, *, runs: int) -> Trainer:
    with _explained():
        return Trainer(config, runs=runs)


def _begin(trainer: Trainer, folder: Path) -> _Begun:
    """A run at its beginning, in a folder without anything to keep."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / files.PROVENANCE, provenance())
    files.write(folder / files.CONFIG, to_yaml(trainer.config))
    return _Begun(Run(folder, trainer.config), trainer)


def _reopen(run: Run, *, runs: int, device: Device, say: Callable[[str], object]) -> _Begun:
    """A run as its newest checkpoint left it."""
    trainer = _make_trainer(replace(run.config, device=device), runs=runs)
    newest = checkpoints.load_newest(run.folder / files.CHECKPOINTS)
    if newest is None:
        say(f"{run.folder} has no checkpoint yet: starting from the beginning")
        return _begin(trainer, run.folder)
    for lost in trainer.restore(newest):
        say(f"not restored: {lost}")
    say(f"{run.folder} goes on from step {trainer.step:,}")
    files.write_json(run.folder / files.PROVENANCE, continued(run.provenance, trainer.step))
    return _Begun(run, trainer, newest.state["logs"])


def _say_nothing(message: str) -> None:
    """Where nobody listens."""


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


class _Records:
    """What a run writes and shows while it learns."""

    def __init__(self, begun: _Begun, display: Display, *, wandb: bool) -> None:
        self.run, self.trainer = begun.run, begun.trainer
        folder = self.run.folder
        self.logs = {
            name: CsvLog(folder / name, keep=begun.kept.get(name, 0))
            for name in (files.METRICS, files.EPISODES)
        }
        resumed_at = self.trainer.step or None
        self.trackers: list[Tracker] = [
            TensorBoard(folder / files.TENSORBOARD, resumed_at=resumed_at)
        ]
        if wandb:
            self.trackers.append(WeightsAndBiases(folder, asdict(self.run.config)))
        self.watch = Watch(self.run.name)
        self.display = display

    def add(
        self, metrics: dict[str, float], seconds: dict[str, float], episodes: list[Episode]
    ) -> None:
        """Notes what an iteration of the trainer gave."""
        config, step, score = self.run.config, self.trainer.step, self.trainer.score
        whole = sum(seconds.values())
        for episode in episodes:
            self.logs[files.EPISODES].append({"step": step, **asdict(episode)})
        general = {
            "score": float("nan") if score is None else score,
            "episodes": self.trainer.episodes,
            "steps_per_second": config.ppo.steps * config.envs.num_envs / whole,
            **{f"seconds_{phase}": spent for phase, spent in seconds.items()},
        }
        self.logs[files.METRICS].append({"step": step, **general, **metrics})
        for tracker in self.trackers:
            tracker.log(step, {**general, **metrics})
        self.watch.look(step, metrics)
        self.display.show(
            Progress(
                step,
                config.total_steps,
                score,
                self.trainer.episodes,
                step / self.trainer.seconds,
                metrics,
                {phase: spent / whole for phase, spent in seconds.items()},
            )
        )

    def save(self) -> None:
        """Writes a checkpoint that knows how much of each log belongs to it."""
        state = self.trainer.capture()
        sizes = {name: log.flush() for name, log in self.logs.items()}
        state = checkpoints.Checkpoint(state.tensors, {**state.state, "logs": sizes})
        checkpoints.save(self.run.folder / files.CHECKPOINTS, self.trainer.step, state)

    def summarise(self) -> None:
        """Notes what the run came to, which says that it has finished."""
        config, trainer = self.run.config, self.trainer
        files.write_json(
            self.run.folder / files.SUMMARY,
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

    def close(self) -> None:
        """Closes all files and connections."""
        for log in self.logs.values():
            log.close()
        for tracker in self.trackers:
            tracker.close()


def _learning(
    begun: _Begun,
    display: Display,
    stopped: Callable[[], bool],
    *,
    wandb: bool,
    profile: bool,
) -> Waiting[None]:
    """Trains one run to its end, giving way whenever it would have to wait."""
    run, trainer, config = begun.run, begun.trainer, begun.run.config
    records = _Records(begun, display, wandb=wandb)
    saved = trainer.step
    batch = config.ppo.steps * config.envs.num_envs
    profiled = Profile(-(-(config.total_steps - trainer.step) // batch))
    try:
        while trainer.step < config.total_steps:
            metrics, seconds, episodes = yield from trainer.iterating()
            profiled.add(seconds)
            records.add(metrics, seconds, episodes)
            at_end = trainer.step >= config.total_steps
            stopping = stopped() and not at_end
            if stopping or at_end or trainer.step - saved >= config.checkpoint_every:
                records.save()
                saved = trainer.step
            if stopping:
                raise InterruptedRunError(
                    f"stopped and saved at step {trainer.step:,}; go on with "
                    f"`relval train --resume {run.folder}`"
                )
        if profile:
            profiled.write(run.folder, trainer)
    finally:
        records.close()
        trainer.envs.close()
    records.summarise()


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
