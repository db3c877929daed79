"""The page itself: HTML that needs nothing beside it."""

import base64
from html import escape
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from relval._page import facts, page, short
from relval.critics import critic_name
from relval.runs.inspection.recording import GAMES, Recording
from relval.runs.run import Run

_LARGEST = 2**15 - 1


def render(run: Run, recording: Recording) -> str:
    """The page about what an agent played."""
    name = run.config.env
    title = f"<h1>{escape(name)}</h1>"
    sections = [title, _about(run), _facts(run, recording), _PLAYED, _DIFFERENCES, _ranking(run)]
    return page(f"{name}: what the critic sees", sections, _data(recording), package=__package__)


def _about(run: Run) -> str:
    critic = escape(critic_name(run.config.critic))
    return (
        f"<p>Played by the agent of the run <strong>{escape(run.folder.resolve().name)}</strong>, "
        "which drew its actions as in training, and seen by its critic "
        f"<strong>{critic}</strong>. Point anywhere.</p>"
    )


def _facts(run: Run, recording: Recording) -> str:
    scores = recording.scores
    ended = {
        "mean score of them" if len(scores) > 1 else "its score": f"{fmean(scores):,.1f}",
    } if scores else {"score so far": f"{recording.points:,.1f}"}
    return facts(
        {
            "steps of training": f"{run.policy.trained:,}",
            "seed of training": f"{run.config.seed}",
            "steps played": f"{recording.rollout.traj.steps:,}",
            "episode ended" if len(scores) == 1 else "episodes ended": f"{len(scores)}",
            **ended,
        }
    )


_PLAYED = """
<section class="played">
<figure class="now">
<img id="frame" alt="">
<div class="buttons">
<button id="back" aria-label="one step back">◂</button>
<button id="play" aria-pressed="false">play</button>
<button id="on" aria-label="one step on">▸</button>
</div>
<dl id="readout" aria-label="this step"></dl>
</figure>
<figure class="timeline">
<fieldset id="anchor"><legend>Values</legend></fieldset>
<div id="curves"></div>
<input id="scrub" type="range" min="0" value="0" aria-label="step">
<p class="quiet" id="meaning"></p>
</figure>
</section>"""

_DIFFERENCES = """
<h2>Differences between states</h2>
<p class="quiet">Δ(s<sub>i</sub>, s<sub>j</sub>), how much better state i is than state j, for all
pairs. Lines are where episodes begin.</p>
<section class="pairs">
<figure class="matrix">
<div id="matrix"></div>
<div class="scale"><span id="lowest"></span><i></i><span id="highest"></span></div>
</figure>
<figure class="two">
<p id="difference" aria-live="polite"></p>
<div><img id="first" alt=""><label><span id="first-name"></span>
<input id="i" type="range" min="0" value="0" aria-label="state i"></label></div>
<div><img id="second" alt=""><label><span id="second-name"></span>
<input id="j" type="range" min="0" value="0" aria-label="state j"></label></div>
</figure>
</section>"""


def _ranking(run: Run) -> str:
    return f"""
<h2>Start states, ranked</h2>
<p class="quiet">The states in which episodes began, in this game and in {GAMES - 1} that were
played beside it, best first, each with its value: {escape(run.policy.agent.critic.gauge)}. Those of
this game lead there.</p>
<ol id="ranking"></ol>"""


def _data(recording: Recording) -> dict[str, Any]:
    """All that the page's script shows."""
    traj, shown = recording.rollout.traj, recording.shown
    ends = traj.terminated[:, 0].int() + 2 * traj.truncated[:, 0].int()
    return {
        "frames": [_picture(recording.frames[number]) for number in shown.tolist()],
        "speed": recording.speed,
        "actions": _actions(recording),
        "rewards": _numbers(traj.rewards[:, 0]),
        "ends": ends.tolist(),
        "gauges": {
            "anchored": recording.critic.gauge,
            "unanchored": "the sum of differences from zero at each episode's start",
        },
        "values": {name: _numbers(values[shown]) for name, values in recording.values.items()},
        "advantages": {name: _numbers(each) for name, each in recording.advantages.items()},
        "gamma": recording.gamma,
        "lam": recording.lam,
        "differences": _differences(recording.differences),
        "ranking": [_start(recording, number) for number in recording.ranking],
    }


def _differences(matrix: Tensor) -> dict[str, Any]:
    """The upper triangle, row by row, as whole numbers in units of a small one (little-endian)."""
    rows, columns = torch.triu_indices(*matrix.shape, offset=1)
    upper = matrix[rows, columns].double()
    unit = max(float(upper.abs().max()), 1e-12) / _LARGEST
    whole = (upper / unit).round().to(torch.int16).numpy().astype("<i2")
    return {"unit": unit, "upper": base64.b64encode(whole.tobytes()).decode()}


def _start(recording: Recording, number: int) -> dict[str, Any]:
    """A start state; of the first game, with its step, of another with its picture."""
    step, game = divmod(number, recording.rollout.traj.envs)
    place = {"step": step} if game == 0 else {"frame": _picture(recording.frames[number])}
    return {"value": short(float(recording.values["anchored"][number])), **place}


def _actions(recording: Recording) -> list[str]:
    traj, names = recording.rollout.traj, recording.action_names
    taken = recording.rollout.actions.view(traj.steps, traj.envs, -1)[:, 0].tolist()
    return [names[step[0]] if names else ", ".join(f"{x:.3g}" for x in step) for step in taken]


def _picture(webp: bytes) -> str:
    return base64.b64encode(webp).decode()


def _numbers(tensor: Tensor) -> list[float]:
    return [short(x) for x in tensor.tolist()]
