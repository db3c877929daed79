"""Results as a sweep would leave them, without the runs."""

from pathlib import Path

import numpy as np

from relval.experiments import results
from relval.experiments.results import Diagnosis, Point, Results, Score
from relval.experiments.suites import ABSOLUTE, DAE, RELATIVE, Suite

GAMES = ("Pong", "Breakout", "Boxing")
SUITE = Suite(
    summary="a study that was made up",
    envs=GAMES,
    variants=(ABSOLUTE, RELATIVE, DAE),
    seeds=(1, 2, 3),
    total_steps=1_000,
)


def made_up(suite: Suite = SUITE, *, without: tuple[str, ...] = ()) -> Results:
    """Runs whose curves rise; `without` names those that are missing, or how their names begin."""
    random = np.random.default_rng(0)
    scores, curves, diagnoses = [], [], []
    for name in suite.runs():
        env, variant, seed = name.split("/")
        level = 10.0 * (1 + [v.name for v in suite.variants].index(variant)) + random.normal()
        if name.startswith(without):
            continue
        scores.append(Score(env, variant, int(seed), round(level, 3), 1_000, 120, 50.0))
        curves += [
            Point(env, variant, int(seed), step, level * step / 1_000) for step in (500, 1_000)
        ]
        diagnoses += [
            Diagnosis(env, variant, int(seed), step, *(level + place for place in range(8)))
            for step in (500, 1_000)
        ]
    runs = [f"{s.env}/{s.variant}/{s.seed}" for s in scores]
    origin = {
        "runs": runs,
        "versions": {"relval": "0", "torch": "2.6"},
        "git": {"commit": "0123456789abcdef", "changed": False},
        "hardware": {"machine": "m", "system": "s", "cpu": "a processor", "cores": 2, "gpu": None},
    }
    settings = [
        {"runs": [run for run in runs if f"/{v.name}/" in run], "critic": {"name": v.critic}}
        for v in suite.variants
    ]
    return Results(
        suite, tuple(scores), tuple(curves), tuple(settings), (origin,), tuple(diagnoses)
    )


def store(found: Results, out: Path) -> Path:
    """Writes results as a sweep does."""
    results.write_suite(found.suite, out)
    results.write(found, out)
    return out
