"""Runs: configuration, training, checkpoints, curves, evaluation, video, inspection."""

from relval.runs.config import Config as Config
from relval.runs.inspection import inspect as inspect
from relval.runs.learning import InterruptedRunError as InterruptedRunError
from relval.runs.learning import resume as resume
from relval.runs.learning import train as train
from relval.runs.learning import train_or_resume as train_or_resume
from relval.runs.learning import train_together as train_together
from relval.runs.play import Film as Film
from relval.runs.play import Scores as Scores
from relval.runs.play import evaluate as evaluate
from relval.runs.play import record as record
from relval.runs.presets import PRESETS as PRESETS
from relval.runs.presets import configure as configure
from relval.runs.run import Policy as Policy
from relval.runs.run import Run as Run
from relval.runs.run import load as load
