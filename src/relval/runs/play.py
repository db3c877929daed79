"""What a trained policy is worth, and what it looks like."""

import os
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from PIL import Image

from relval import envs
from relval._bounds import Count, Natural, check_value
from relval._statistics import mean_and_margin
from relval.runs.run import Run, opened


@dataclass(frozen=True)
class Scores:
    """Scores of whole episodes."""

    scores: list[float]
    lengths: list[int]

    @property
    def mean(self) -> float:
        """Mean score."""
        return statistics.fmean(self.scores)

    @property
    def margin(self) -> float:
        """Half the width of a 95% interval for the mean; infinite for a single episode."""
        return mean_and_margin(self.scores)[1]


def evaluate(
    run: Run | str | Path, episodes: int = 100, *, seed: int = 0, deterministic: bool = False
) -> Scores:
    """Plays whole episodes in new environments.

    Each environment plays the same number of episodes, so that short ones do not crowd out long
    ones.

    Args:
      run: A run or its folder; its newest checkpoint is played.
      episodes: How many.
      seed: Of the environments; those of training are never met again.
      deterministic: Take the likeliest action, in place of drawing one as in training.
    """
    check_value("episodes", Count, episodes)
    check_value("seed", Natural, seed)
    run = opened(run)
    count = min(episodes, run.config.envs.num_envs)
    made = envs.make(run.config.env, replace(run.config.envs, num_envs=count))
    counter = envs.EpisodeCounter(made)
    due = np.array([episodes // count + (n < episodes % count) for n in range(count)])
    policy = run.policy
    policy.generator.manual_seed(seed)
    fresh = np.random.SeedSequence([run.config.seed, seed, 1])
    observations, _ = made.reset(seed=int(fresh.generate_state(1)[0]))
    finished = Scores([], [])
    while due.any():
        actions = policy(observations, deterministic=deterministic)
        observations, rewards, terminated, truncated, infos = made.step(actions)
        for episode in counter.count(rewards, terminated | truncated, infos):
            if due[episode.env]:
                due[episode.env] -= 1
                finished.scores.append(episode.score)
                finished.lengths.append(episode.length)
    made.close()
    return finished


@dataclass(frozen=True)
class Film:
    """An episode that was written as an animated picture."""

    score: float
    """As far as it goes."""
    frames: int
    whole: bool
    """Whether it goes to the episode's end."""


def record(
    run: Run | str | Path,
    path: str | Path,
    *,
    seed: int = 0,
    deterministic: bool = False,
    max_steps: int = 2000,
) -> Film:
    """Plays one episode, or its first steps, and writes it as an animated GIF.

    Args:
      run: A run or its folder; its newest checkpoint is played.
      path: The file, a .gif.
      seed: Of the environment and of what is drawn.
      deterministic: Take the likeliest action, in place of drawing one as in training.
      max_steps: After so many the film ends.
    """
    run, path = opened(run), Path(path)
    check_value("seed", Natural, seed)
    check_value("max_steps", Count, max_steps)
    if path.suffix != ".gif":
        raise ValueError(f"a film is written as a .gif, got {str(path)!r}")
    made = make_to_see(run, 1)
    observations, _ = made.reset(seed=seed)
    counter = envs.EpisodeCounter(made)
    policy = run.policy
    policy.generator.manual_seed(seed)
    frames, score, finished = [_frame(made)], 0.0, []
    for _ in range(max_steps):
        actions = policy(observations, deterministic=deterministic)
        observations, rewards, terminated, truncated, infos = made.step(actions)
        score += float(infos.get("raw_reward", rewards)[0])
        finished = counter.count(rewards, terminated | truncated, infos)
        if finished:
            score = finished[0].score
            break
        frames.append(_frame(made))
    speed = made.metadata.get("render_fps", 30)
    made.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=max(20, 1000 // speed), loop=0
    )
    return Film(score, len(frames), whole=bool(finished))


def make_to_see(run: Run, count: int) -> VectorEnv[Any, Any, Any]:
    """New environments of a run's kind that can be looked at."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
    return envs.make(run.config.env, replace(run.config.envs, num_envs=count), render=True)


def _frame(made: VectorEnv[Any, Any, Any]) -> Image.Image:
    """The picture of the only environment, small enough to share."""
    picture = Image.fromarray(envs.pictures(made)[0])
    picture.thumbnail((400, 400))
    return picture.convert("P", palette=Image.Palette.ADAPTIVE)
