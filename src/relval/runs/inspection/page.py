"""The page itself: HTML that needs nothing beside it."""

import base64
from html import escape
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from relval._page import facts, page, prose, short
from relval.critics import critic_name
from relval.runs.inspection.recording import GAMES, Recording
from relval.runs.run import Run

_LARGEST = 2**15 - 1


def render(run: Run, recording: Recording) -> str:
    """The page about what an agent played."""
    name = run.config.env
    title = f"<h1>{escape(name)}</h1>"
    top = [title, _about(run), _facts(run, recording), _unseen(recording)]
    sections = [*top, _PLAYED, _DIFFERENCES, _RANKING]
    return page(f"{name}: what the critic sees", sections, _data(recording), package=__package__)


def _about(run: Run) -> str:
    critic = escape(critic_name(run.config.critic))
    return (
        f"<p>Played by the agent of the run <strong>{escape(run.folder.resolve().name)}</strong>, "
        "which drew its actions as in training, and seen by its critic "
        f"<strong>{critic}</strong>. Point at curves or differences to see a state, click to keep "
        "it; or use ←&nbsp;→.</p>"
    )


def _facts(run: Run, recording: Recording) -> str:
    scores = recording.scores
    label = ("score so far", "score")[len(scores)] if len(scores) < 2 else "mean score"
    return facts(
        {
            "steps of training": f"{run.policy.trained:,}",
            "seed of training": f"{run.config.seed}",
            "steps played": f"{recording.rollout.traj.steps:,}",
            "game finished" if len(scores) == 1 else "games finished": f"{len(scores)}",
            label: f"{fmean(scores) if scores else recording.points:,.1f}",
        }
    )


def _unseen(recording: Recording) -> str:
    """Why there are no pictures, where there are none."""
    reason = recording.unseen
    return reason and f'<p id="unseen" class="quiet">Without pictures: {prose(reason)}.</p>'


_PLAYED = """
<section class="played">
<figure class="now">
<img id="frame" alt="">
<div class="buttons">
<button id="back" aria-label="one step back">◂</button>
<button id="play">play</button>
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
<p id="difference"></p>
<div><img id="first" alt=""><label><span id="first-name"></span>
<input id="i" type="range" min="0" value="0" aria-label="state i"></label></div>
<div><img id="second" alt=""><label><span id="second-name"></span>
<input id="j" type="range" min="0" value="0" aria-label="state j"></label></div>
</figure>
</section>"""

_RANKING = f"""
<h2>Start states, ranked</h2>
<p class="quiet">The states in which episodes began, in this game and in {GAMES - 1} that were
played beside it, best first, with their anchored values. Those that are alike are shown once.</p>
<ol id="ranking"></ol>"""


def _data(recording: Recording) -> dict[str, Any]:
    """All that the page's script shows."""
    traj, shown = recording.rollout.traj, recording.shown
    ends = traj.terminated[:, 0].int() + 2 * traj.truncated[:, 0].int()
    return {
        "frames": [_picture(recording, number) for number in shown.tolist()],
        "speed": recording.speed,
        "actions": recording.actions,
        "rewards": _numbers(traj.rewards[:, 0]),
        "ends": ends.tolist(),
        "gauges": {
            "anchored": recording.critic.gauge,
            "unanchored": "relative, summed up from zero at each episode's start",
        },
        "values": {
            name: [_exact(value) for value in values[shown].tolist()]
            for name, values in recording.values.items()
        },
        "advantages": {name: _numbers(each) for name, each in recording.advantages.items()},
        "gamma": recording.gamma,
        "lam": recording.lam,
        "differences": _differences(recording.differences),
        "ranking": [_start(recording, alike) for alike in recording.ranking],
    }


def _differences(matrix: Tensor) -> dict[str, Any]:
    """The upper triangle, row by row, as whole numbers in units of a small one (little-endian)."""
    rows, columns = torch.triu_indices(len(matrix), len(matrix), 1)
    upper = matrix[rows, columns].double()
    unit = max(float(upper.abs().max()), 1e-12) / _LARGEST
    whole = (upper / unit).round().to(torch.int16).numpy().astype("<i2")
    return {"unit": unit, "upper": base64.b64encode(whole.tobytes()).decode()}


def _start(recording: Recording, alike: list[int]) -> dict[str, Any]:
    """A start state that was met once or more often, and at which steps of the first game."""
    games = recording.rollout.traj.envs
    return {
        "value": _exact(float(recording.values["anchored"][alike[0]])),
        "frame": _picture(recording, alike[0]),
        "times": len(alike),
        "steps": [number // games for number in alike if number % games == 0],
    }


def _picture(recording: Recording, number: int) -> str:
    """Of a state; nothing where there are no pictures."""
    return base64.b64encode(recording.frames.get(number, b"")).decode()


def _numbers(tensor: Tensor) -> list[float]:
    return [short(x) for x in tensor.tolist()]


def _exact(value: float) -> float:
    """As many digits as single precision has: values may be close to each other, far from zero."""
    return float(f"{value:.7g}")
