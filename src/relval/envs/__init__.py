"""Environments: vectors of them from names, what agents see of them, and the Atari engine."""

from relval.envs.atari import AtariPool as AtariPool
from relval.envs.episodes import Episode as Episode
from relval.envs.episodes import EpisodeCounter as EpisodeCounter
from relval.envs.episodes import autoreset_mode as autoreset_mode
from relval.envs.normalise import Normaliser as Normaliser
from relval.envs.normalise import Settled as Settled
from relval.envs.vector import EnvConfig as EnvConfig
from relval.envs.vector import NoPicturesError as NoPicturesError
from relval.envs.vector import capture as capture
from relval.envs.vector import gymnasium_id as gymnasium_id
from relval.envs.vector import make as make
from relval.envs.vector import pictures as pictures
from relval.envs.vector import restore as restore
from relval.envs.vector import seen_space as seen_space
from relval.envs.vector import settle as settle
