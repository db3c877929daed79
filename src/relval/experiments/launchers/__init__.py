"""How the runs of a sweep are executed; the code that trains does not know."""

from relval.experiments.launchers.jobs import Job, Launcher, Outcome
from relval.experiments.launchers.local import Local
from relval.experiments.launchers.ray import Ray

__all__ = ["Job", "Launcher", "Local", "Outcome", "Ray"]
