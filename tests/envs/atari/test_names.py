import pytest

from relval.envs.atari import PAPER_GAMES, find, games
from relval.envs.atari.names import game, rom


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Pong", "Pong"),
        ("pong", "Pong"),
        ("ALE/Pong-v5", "Pong"),
        ("MsPacman", "MsPacman"),
        ("ms_pacman", "MsPacman"),
        ("mspacman", "MsPacman"),
        ("ALE/MsPacman-v5", "MsPacman"),
        ("ALE/UpNDown-v5", "UpNDown"),
    ],
)
def test_a_game_goes_by_several_names(name: str, meant: str) -> None:
    assert find(name) == game(name) == meant


def test_every_game_has_a_cartridge_and_is_found_by_all_its_names() -> None:
    assert games() == sorted(set(games()))
    for known in games():
        cartridge = rom(known)
        for name in (known, known.lower(), cartridge, f"ALE/{known}-v5"):
            assert game(name) == known


def test_the_papers_49_games_are_there() -> None:
    assert len(set(PAPER_GAMES)) == 49
    assert set(PAPER_GAMES) <= set(games())


@pytest.mark.parametrize("name", ["Combat", "Joust", "MazeCraze", "Warlords", "joust"])
def test_cartridges_for_two_players_are_not_there(name: str) -> None:
    assert name not in games()
    assert find(name) is None
    with pytest.raises(ValueError, match="no Atari game"):
        game(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [("Breakot", "Breakout"), ("spaceinvader", "SpaceInvaders"), ("Montezuma", "MontezumaRevenge")],
)
def test_an_unknown_name_is_an_error_that_says_which_are_near(name: str, near: str) -> None:
    assert find(name) is None
    with pytest.raises(ValueError, match=f"no Atari game '{name}'.*{near}"):
        game(name)


def test_a_name_like_no_other_is_an_error_as_well() -> None:
    with pytest.raises(ValueError, match=r"no Atari game 'CartPole-v1'.*lists them all"):
        game("CartPole-v1")
