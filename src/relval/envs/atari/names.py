"""The games, and the names they go by."""

from functools import cache

from relval._names import unknown

PAPER_GAMES = (
    "Alien",
    "Amidar",
    "Assault",
    "Asterix",
    "Asteroids",
    "Atlantis",
    "BankHeist",
    "BattleZone",
    "BeamRider",
    "Bowling",
    "Boxing",
    "Breakout",
    "Centipede",
    "ChopperCommand",
    "CrazyClimber",
    "DemonAttack",
    "DoubleDunk",
    "Enduro",
    "FishingDerby",
    "Freeway",
    "Frostbite",
    "Gopher",
    "Gravitar",
    "IceHockey",
    "Jamesbond",
    "Kangaroo",
    "Krull",
    "KungFuMaster",
    "MontezumaRevenge",
    "MsPacman",
    "NameThisGame",
    "Pitfall",
    "Pong",
    "PrivateEye",
    "Qbert",
    "Riverraid",
    "RoadRunner",
    "Robotank",
    "Seaquest",
    "SpaceInvaders",
    "StarGunner",
    "Tennis",
    "TimePilot",
    "Tutankham",
    "UpNDown",
    "Venture",
    "VideoPinball",
    "WizardOfWor",
    "Zaxxon",
)
"""The 49 games of "Relative Value Learning" (ICLR 2026), Table 1."""

_TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}
"""Cartridges that a single player cannot start: to load one ends the process."""


def games() -> list[str]:
    """All games: those that ale-py brings, or the paper's where it is not installed."""
    return sorted(_roms()) or list(PAPER_GAMES)


def find(name: str) -> str | None:
    """The game that a name means, or None.

    `Pong`, `pong`, `ALE/Pong-v5` and `PongNoFrameskip-v4` are the same.
    """
    wanted = _key(name.removeprefix("ALE/").removesuffix("-v5").removesuffix("NoFrameskip-v4"))
    return next((game for game in games() if _key(game) == wanted), None)


def game(name: str) -> str:
    """The game that a name means; an unknown name is an error with the nearest known one."""
    found = find(name)
    if found is None:
        raise unknown("Atari game", name, games(), otherwise="`relval envs` lists them all")
    return found


def rom(game: str) -> str:
    """The cartridge of a game, as ale-py names it."""
    return _roms()[game]


def _roms() -> dict[str, str]:
    """The cartridge of each game; none where ale-py is not installed."""
    try:
        return _installed()
    except ModuleNotFoundError:
        return {}


@cache
def _installed() -> dict[str, str]:
    from ale_py import roms

    single = set(roms.get_all_rom_ids()) - _TWO_PLAYERS
    return {rom.title().replace("_", ""): rom for rom in single}


def _key(name: str) -> str:
    return name.replace("_", "").lower()
