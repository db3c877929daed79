"""Atari 2600 games, emulated by ale-py."""

from relval.envs.atari.names import PAPER_GAMES as PAPER_GAMES
from relval.envs.atari.names import find as find
from relval.envs.atari.names import games as games
from relval.envs.atari.pool import AtariPool as AtariPool
from relval.envs.atari.workers import WorkerError as WorkerError
