"""The command line."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from relval import __version__
from relval._errors import raised_in

if TYPE_CHECKING:
    from relval.runs import Config, Run

# Commands import what they run themselves, so that `relval --help` need not wait for PyTorch.


def train() -> int:
    """Train PPO with a critic on an environment; `relval train --help` tells how."""
    from relval.runs import configure, resume, train_together

    names = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--critic", "--preset", "--resume", "--seeds"):
        names.add_argument(name)
    chosen, rest = names.parse_known_args(sys.argv[2:])
    env = rest.pop(0) if rest and not rest[0].startswith("-") else None
    if chosen.resume is not None:
        given = [f"--{name}" for name, value in vars(chosen).items() if value is not None]
        surplus = [word for word in (env, *given) if word not in (None, "--resume")]
        if surplus:
            raise ValueError(
                "--resume goes on with a run as it was configured, so leave out "
                + ", ".join(map(str, surplus))
            )
        options = tyro.cli(_ResumeOptions, prog="relval train --resume DIR", args=rest)
        run = resume(chosen.resume, device=options.device, quiet=options.quiet, wandb=options.wandb)
        return _report(run)
    asked_for_help = "-h" in rest or "--help" in rest
    if env is None and not asked_for_help:
        raise ValueError(
            "which environment? It comes first, for example: relval train CartPole-v1 "
            "--critic relative"
        )
    default = configure(env or "CartPole-v1", chosen.critic or "relative", preset=chosen.preset)
    options = tyro.cli(
        _train_options(default),
        prog="relval train ENV [--critic NAME] [--preset NAME]",
        description=_train_description(),
        args=rest,
    )
    configs: list[Config] = [options.config]
    outs: list[Path | None] = [options.out]
    if chosen.seeds is not None:
        seeds = _numbers(chosen.seeds)
        configs = [replace(options.config, seed=seed) for seed in seeds]
        outs = [options.out and options.out / f"seed-{seed}" for seed in seeds]
    runs = train_together(
        configs, outs, quiet=options.quiet, wandb=options.wandb, profile=options.profile
    )
    return max(_report(run) for run in runs)


def _numbers(text: str) -> list[int]:
    """The numbers in `1-4` or `1,2,5`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            raise ValueError(f"--seeds must look like 1-4 or 1,2,5, got {text!r}")
        numbers += range(int(first), int(last or first) + 1)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"--seeds must name at least one seed, and none twice, got {text!r}")
    return numbers


@dataclass(frozen=True)
class _RunOptions:
    quiet: bool = False
    """Show no progress."""
    wandb: bool = False
    """Send curves to Weights & Biases too."""


@dataclass(frozen=True)
class _ResumeOptions(_RunOptions):
    device: Literal["cpu", "cuda"] | None = None
    """Where networks live from now on; by default where they did."""


def _train_options(default: "Config") -> type:
    """The options of `relval train`, with the values of a preset as defaults."""
    from relval.runs import Config

    @dataclass(frozen=True)
    class Options(_RunOptions):
        out: Path | None = None
        """The run's folder; by default one under runs, named for environment, critic and seed.
        With --seeds, the folder that holds theirs."""
        profile: bool = False
        """Write where the time went, as a table and a picture, into the run's folder."""
        config: Annotated[Config, tyro.conf.arg(name="")] = default

    return Options


def _train_description() -> str:
    from relval.critics import CRITICS
    from relval.runs import PRESETS

    presets = "; ".join(f"{name}: {preset.summary}" for name, preset in PRESETS.items())
    return (
        "Train PPO with a critic on an environment: Pong, MinAtar/Breakout, CartPole-v1, as "
        f"`relval envs` lists them. Critics: {', '.join(CRITICS)}. Presets, by default the one "
        f"that suits the environment: {presets}. A run that was stopped goes on with: "
        "relval train --resume DIR. With --seeds 1-4, runs with these seeds share the process."
    )


def _report(run: "Run") -> int:
    summary = run.summary
    score = "no episode ended" if summary["score"] is None else f"score {summary['score']:,.2f}"
    print(f"{score} after {summary['steps']:,} steps; the run is in {run.folder}")
    return 0


def evaluate(
    run: tyro.conf.Positional[Path],
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = False,
) -> int:
    """Play whole episodes with a run's newest checkpoint, and print its mean score.

    Args:
        run: The run's folder.
        episodes: How many episodes.
        seed: Of the environments.
        deterministic: Take the likeliest action in place of drawing one.
    """
    from relval.runs import evaluate

    scores = evaluate(run, episodes, seed=seed, deterministic=deterministic)
    if episodes == 1:
        print(f"score {scores.mean:,.2f} in one episode of {scores.lengths[0]:,} steps")
        return 0
    print(
        f"score {scores.mean:,.2f} ± {scores.margin:,.2f} (mean of {episodes} episodes, 95%), "
        f"from {min(scores.scores):,.2f} to {max(scores.scores):,.2f}, "
        f"{sum(scores.lengths) / episodes:,.0f} steps on average"
    )
    return 0


def video(
    run: tyro.conf.Positional[Path],
    out: Path | None = None,
    seed: int = 0,
    deterministic: bool = False,
) -> int:
    """Play one episode with a run's newest checkpoint, and write it as an animated GIF.

    Args:
        run: The run's folder.
        out: The file; by default video.gif in the run's folder.
        seed: Of the environment.
        deterministic: Take the likeliest action in place of drawing one.
    """
    from relval.runs import record

    path = out or run / "video.gif"
    film = record(run, path, seed=seed, deterministic=deterministic)
    cut = "" if film.whole else ", where the episode had not ended"
    print(f"score {film.score:,.2f} in {film.frames:,} frames{cut}: {path}")
    return 0


def inspect(
    run: tyro.conf.Positional[Path], out: Path | None = None, steps: int = 500, seed: int = 0
) -> int:
    """Play with a run's newest checkpoint, and write a page that shows what its critic sees.

    Args:
        run: The run's folder.
        out: The page; by default inspect.html in the run's folder.
        steps: How many steps to play.
        seed: Of the environments.
    """
    from relval.runs import inspect

    path = out or run / "inspect.html"
    recording = inspect(run, path, steps=steps, seed=seed)
    size = path.stat().st_size / 1e6
    print(f"{len(recording.shown):,} states, {size:.1f} MB: {path}")
    if recording.unseen:
        print(f"without pictures: {recording.unseen}")
    return 0


def demo(out: Path = Path("out/demo"), total_steps: int = 250_000) -> int:
    """Train PPO with its own critic and with the relative one, and write a report about both.

    Args:
        out: Folder for the runs and the report, report.html.
        total_steps: Environment steps of each run.
    """
    from relval.experiments.demo import demo

    return 0 if demo(out, total_steps) else 1


def suite(
    what: tyro.conf.Positional[Literal["list", "show"]], name: tyro.conf.Positional[str] = ""
) -> int:
    """List the suites of runs that `relval sweep` knows, or show what is in one.

    Args:
        what: list, or show with a name.
        name: Of the suite to show.
    """
    from rich.console import Console
    from rich.table import Table

    from relval.experiments.suites import SUITES, suite

    console = Console()
    if what == "list":
        table = Table("suite", "runs", "reproduces", "what", box=None)
        for known, each in SUITES.items():
            table.add_row(known, f"{len(each.runs()):,}", each.cites or "", each.summary)
        console.print(table)
        return 0
    if not name:
        raise ValueError("which suite? `relval suite list` lists them: relval suite show minatar")
    chosen = suite(name)
    console.print(f"[bold]{name}[/bold]: {chosen.summary}")
    if chosen.cites:
        console.print(f"in the paper: {chosen.cites}")
    console.print(f"{len(chosen.envs)} environments: {', '.join(chosen.envs)}")
    for variant in chosen.variants:
        changes = variant.options | variant.ppo | variant.env_options | variant.preferences
        options = "".join(f", {key} {value}" for key, value in changes.items())
        preset = f" of the preset {variant.preset}" if variant.preset else ""
        console.print(f"variant {variant.name}: the critic {variant.critic}{preset}{options}")
    console.print(
        f"seeds {chosen.seeds[0]} to {chosen.seeds[-1]}, {chosen.total_steps:,} steps each: "
        f"{len(chosen.runs()):,} runs"
    )
    return 0


def sweep(
    name: tyro.conf.Positional[str],
    out: Path | None = None,
    seeds: tuple[int, ...] = (),
    games: tuple[str, ...] = (),
    critics: tuple[str, ...] = (),
    total_steps: int | None = None,
    device: Literal["cpu", "cuda"] | None = None,
    precision: Literal["fp32", "tf32", "bf16"] | None = None,
    launcher: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    ray_address: str | None = None,
    cpus_per_run: float = 1,
    gpus_per_run: float = 0,
) -> int:
    """Run a suite of runs, as far as they are missing, and print its table.

    Args:
        name: Of the suite; `relval suite list` tells which there are.
        out: The folder; by default one under results, named for the suite.
        seeds: Run these seeds only.
        games: Run these games only.
        critics: Run these variants only.
        total_steps: Make each run this long.
        device: Where networks live: cpu, cuda.
        precision: How encoders compute: fp32, tf32, bf16.
        launcher: local: on this machine. ray: on the nodes of a Ray cluster that share the folder.
        jobs: With local: runs at a time; by default one for each core, and on GPUs, where runs
            share a process, one for each four cores.
        ray_address: With ray: the cluster, host:port or auto; by default one is started here.
        cpus_per_run: With ray: cores for each run.
        gpus_per_run: With ray: GPUs for each run, such as 0.25.
    """
    from relval.experiments.launchers import Local, Ray
    from relval.experiments.suites import suite
    from relval.experiments.sweep import sweep

    whole = suite(name).narrowed(total_steps=total_steps, device=device, precision=precision)
    part = whole.narrowed(games=games, critics=critics, seeds=seeds)
    on_gpu = whole.device == "cuda"
    if launcher == "ray" and on_gpu != (gpus_per_run > 0):
        raise ValueError(
            "on a Ray cluster --device cuda and --gpus-per-run belong together, for example: "
            "--device cuda --gpus-per-run 0.25"
        )
    where = (
        Local(jobs, gpus=None if on_gpu else 0)
        if launcher == "local"
        else Ray(ray_address, cpus=cpus_per_run, gpus=gpus_per_run)
    )
    folder = out or Path("results") / name
    return 0 if sweep(whole, folder, only=part, launcher=where) else 1


def report(
    folders: tyro.conf.Positional[tuple[Path, ...]] = (),
    out: Path = Path("report.html"),
    paper: bool = False,
    csv: bool = False,
    markdown: bool = False,
    latex: bool = False,
    picture: Path | None = None,
    reach: tuple[float, ...] = (),
) -> int:
    """Write one self-contained page about the results of a sweep, finished or not, or of several.

    Args:
        folders: The sweeps', such as results/minatar.
        out: The page.
        paper: Without any runs: the paper's aggregates, from the means that it prints.
        csv: Write the table of scores beside the page too, as CSV.
        markdown: The same in Markdown.
        latex: The same in LaTeX.
        picture: Draw the learning curves to this file too, a .png, .svg or .pdf.
        reach: Print after how many steps runs first had these scores.
    """
    from relval.experiments import report, tables

    if bool(folders) == paper:
        raise ValueError(
            "which results? Name a sweep's folder, for example: relval report results/minatar; or "
            "ask for the paper's own numbers: relval report --paper"
        )
    if len(folders) > 1:
        if csv or markdown or latex or picture is not None or reach:
            raise ValueError(
                "tables, pictures and --reach are of one sweep: name one folder, or leave them out"
            )
        report.report_together(folders, out)
        print(f"written: {out}")
        return 0
    study = report.report_paper(out) if paper else report.report(folders[0], out)
    written = [out]
    for suffix, wanted, write in (
        (".csv", csv, tables.comma_separated),
        (".md", markdown, tables.markdown),
        (".tex", latex, tables.latex),
    ):
        if wanted:
            written.append(out.with_suffix(suffix))
            written[-1].write_text(write(tables.compare(study.results)), encoding="utf-8")
    if picture is not None:
        report.draw(study, picture)
        written.append(picture)
    if study.aggregates:
        print(study)
    for score in reach:
        print(tables.reached(study.results, score))
    print(f"written: {', '.join(map(str, written))}")
    return 0


def gradients(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    rollouts: int = 50,
    out: Path = Path("gradients.csv"),
) -> int:
    """Measure how noisy gradients are: the policy's by anchor, the critic's by kind of pairs.

    Args:
        runs: Folders of trained runs, with the relative critic.
        rollouts: How many to collect with each.
        out: A table of all that was measured.
    """
    from relval.experiments.gradients import measure, show, write
    from relval.runs import load

    if not runs:
        raise ValueError("which runs? For example: relval gradients runs/cartpole-1")
    rows = [row for run in runs for row in measure(load(run), rollouts=rollouts)]
    show(rows)
    write(rows, out)
    print(f"written: {out}")
    return 0


def theory(out: Path = Path("out/theory")) -> int:
    """Show the theory at work on small decision processes, each prediction beside its number.

    Exits with 1 if a number is off.

    Args:
        out: Folder for the page with the pictures, index.html.
    """
    from relval.experiments import theory

    return 0 if theory.show(out) else 1


def bench(what: tyro.conf.Positional[Literal["math", "train", "atari", "gpu"]]) -> int:
    """Measure speed against a peer, in one run.

    Args:
        what: math: time and memory of the all-pairs loss and of n-step targets against the plain
            form over all B^2 pairs. train: steps per second against Stable-Baselines3's PPO and, on
            Atari, a plain loop around EnvPool. atari: steps per second of the Atari engine against
            EnvPool and others. gpu: what each lever of the GPU path gains on Pong.
    """
    from relval.experiments.bench import atari, gpu, mathematics, training

    benchmarks: dict[str, Callable[[], None]] = {
        "math": mathematics.run,
        "train": training.run,
        "atari": atari.run,
        "gpu": gpu.run,
    }
    benchmarks[what]()
    return 0


def envs() -> int:
    """List the environments: Atari, MinAtar, Gymnasium, and how to name them."""
    from rich.columns import Columns
    from rich.console import Console
    from rich.markup import escape

    from relval.envs.catalogue import catalogue

    console = Console()
    for family in catalogue():
        console.print(f"\n[bold]{family.title}[/bold]: {escape(family.note)}")
        console.print(Columns(family.names, equal=True, padding=(0, 2)))
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "demo": demo,
    "train": train,
    "eval": evaluate,
    "video": video,
    "inspect": inspect,
    "envs": envs,
    "suite": suite,
    "sweep": sweep,
    "report": report,
    "gradients": gradients,
    "theory": theory,
    "bench": bench,
}


def _command() -> int:
    """Runs any command but `train`, whose options depend on what it is told first."""
    status: int = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="relval",
        description="Relative Value Learning. `relval --version` tells which version this is.",
    )
    return status


_NUMBERS = ConstructorRegistry()


@_NUMBERS.primitive_rule
def _whole_numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Lets whole numbers be written as 1e6 too."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: _whole(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda number: [str(number)],
    )


def _whole(text: str) -> int:
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            number = kind(text)
            if number == int(number):
                return int(number)
    raise ValueError(f"a whole number was expected, such as 1000000 or 1e6, got {text!r}")


def main() -> None:
    """Runs the command that the arguments name."""
    if sys.argv[1:] == ["--version"]:
        print(f"relval {__version__}")
        return
    # Threads that spin while they wait take the cores that those they wait for need.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.path.append("")  # a script's own folder is there, but not the one with the user's modules
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what schedulers send, as Ctrl-C
    try:
        with _NUMBERS:
            status = train() if sys.argv[1:2] == ["train"] else _command()
    except (ArithmeticError, OSError, ImportError, RuntimeError, ValueError) as error:
        if os.environ.get("RELVAL_TRACEBACK"):
            raise
        # An environment or a library may have raised it.
        ours = raised_in(error) == "relval"
        hint = "" if ours else " (RELVAL_TRACEBACK=1 shows where this comes from)"
        print(f"relval: {error}{hint}", file=sys.stderr)
        status = 2
    except Exception as error:
        from relval.runs import InterruptedRunError

        if not isinstance(error, InterruptedRunError):
            raise
        print(error, file=sys.stderr)
        status = 130
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
