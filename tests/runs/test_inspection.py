"""The page about what a critic sees: its numbers against explicit loops, itself in a browser."""

import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from PIL import Image
from torch import Tensor

from relval import envs
from relval._page import prose
from relval.critics import CRITICS
from relval.relative import minvar_offset, ranked_values, telescoped_values
from relval.runs import Run, record, train
from relval.runs.inspection import Recording, inspect, play
from relval.runs.inspection.recording import GAMES
from tests.browser import Page, browser
from tests.relative import reference
from tests.runs.conftest import Finished
from tests.runs.helpers import small

STEPS = 120
EACH = [*((name, None) for name in CRITICS), ("relative", "mlp")]


def data_of(path: Path) -> dict[str, Any]:
    """What the page's script reads."""
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def differences_of(data: dict[str, Any]) -> np.ndarray:
    """The whole matrix, from its upper triangle."""
    count = len(data["frames"])
    whole = np.zeros((count, count))
    upper = np.frombuffer(base64.b64decode(data["differences"]["upper"]), "<i2")
    whole[np.triu_indices(count, 1)] = upper * data["differences"]["unit"]
    return whole - whole.T


def features_of(run: Run, recording: Recording) -> Tensor:
    """What the critic sees of each state."""
    features: Tensor = run.policy.agent.critic_encoder(recording.rollout.states)
    return features.detach()


def scores_of(run: Run, recording: Recording) -> list[float]:
    """The critic's score or value of each state, from observations."""
    critic: Any = run.policy.agent.critic
    head = critic.value if hasattr(critic, "value") else critic.head
    scores: list[float] = head(features_of(run, recording)).flatten().tolist()
    return scores


def delta_of(run: Run, recording: Recording) -> Callable[[int, int], float]:
    """The critic's differences, from observations, one pair at a time."""
    if getattr(run.config.critic, "head", None) == "mlp":
        features, critic = features_of(run, recording), cast(Any, run.policy.agent.critic)
        return lambda i, j: float(critic.head(features[None, i] - features[None, j]).detach())
    scores = scores_of(run, recording)
    return lambda i, j: scores[i] - scores[j]


@pytest.mark.parametrize(("critic", "head"), EACH)
def test_numbers_are_those_of_loops_over_single_states(
    critic: str, head: str | None, tmp_path: Path
) -> None:
    """On Atari's cousin, whose episodes here are short enough for several starts and ends."""
    options = {} if head is None else {"head": head}
    if critic == "relative":
        options["anchor"] = "rank"
    config = small("MinAtar/Breakout", critic, updates=4, critic_options=options)
    run = train(config, tmp_path, quiet=True)
    recording = inspect(run, tmp_path / "page.html", steps=STEPS, seed=3)
    data, traj = data_of(tmp_path / "page.html"), recording.rollout.traj
    delta = delta_of(run, recording)
    shown = range(0, traj.states.numel(), traj.envs)
    assert traj.terminated[:, 0].any()

    by_hand = [[delta(i, j) for j in shown] for i in shown]
    unit = data["differences"]["unit"]
    assert unit < 1e-4 * np.abs(by_hand).max()
    np.testing.assert_allclose(differences_of(data), by_hand, atol=unit + 1e-6)

    anchored = (
        reference.ranked_values(delta, traj)
        if critic == "relative"
        else dict(enumerate(scores_of(run, recording)))
    )
    for name, values in (
        ("anchored", anchored),
        ("unanchored", reference.telescoped_values(delta, traj)),
    ):
        close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(data["values"][name], [values[s] for s in shown], **close)
        everywhere = [values[s] for s in range(traj.num_states)]
        advantages = reference.gae(traj, everywhere, run.config.ppo.gamma, run.config.ppo.lam)
        expected = [advantages[s] for s in shown[:-1]]
        np.testing.assert_allclose(data["advantages"][name], expected, **close)
    assert data["rewards"] == traj.rewards[:, 0].tolist()

    ranked = [(start["value"], start["times"]) for start in data["ranking"]]
    assert ranked == sorted(ranked, key=lambda start: -start[0])
    starts = sorted((anchored[s] for s in reference.start_states(traj)), reverse=True)
    listed = [value for value, times in ranked for _ in range(times)]
    np.testing.assert_allclose(listed, starts, rtol=1e-4, atol=1e-5)
    begun = {0, *(traj.terminated[:, 0].nonzero().flatten() + 1).tolist()}
    assert {step for start in data["ranking"] for step in start["steps"]} == begun


@pytest.mark.parametrize("anchor", ["zero", "minvar"])
def test_values_have_the_anchor_that_advantages_had_in_training(
    anchor: str, tmp_path: Path
) -> None:
    config = small("MinAtar/Breakout", updates=2, critic_options={"anchor": anchor})
    recording = inspect(train(config, tmp_path, quiet=True), tmp_path / "page.html", steps=STEPS)
    traj, delta = recording.rollout.traj, recording.delta
    with torch.no_grad():
        values = ranked_values(delta, traj)
        values += minvar_offset(traj, values, gamma=config.ppo.gamma, lam=config.ppo.lam)
        expected = telescoped_values(delta, traj) if anchor == "zero" else values
    torch.testing.assert_close(recording.values["anchored"], expected)


def test_an_anchor_moves_whole_episodes(breakout: Run, tmp_path: Path) -> None:
    inspect(breakout, tmp_path / "page.html", steps=STEPS)
    data = data_of(tmp_path / "page.html")
    moved = np.subtract(data["values"]["anchored"], data["values"]["unanchored"])
    starts = [0, *(t + 1 for t, end in enumerate(data["ends"]) if end)]
    assert len(starts) > 2
    for episode in np.split(moved, starts[1:]):
        np.testing.assert_allclose(episode, episode[0], atol=1e-4)


def test_values_are_as_exact_as_the_critics(cartpole: Run, tmp_path: Path) -> None:
    recording = inspect(cartpole, tmp_path / "page.html", steps=STEPS)
    for name, values in data_of(tmp_path / "page.html")["values"].items():
        expected = recording.values[name][recording.shown].numpy()
        np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_every_state_is_shown_by_its_own_picture(breakout: Run, tmp_path: Path) -> None:
    recording = inspect(breakout, tmp_path / "page.html", steps=STEPS)
    data = data_of(tmp_path / "page.html")
    assert len(data["frames"]) == STEPS + 1
    made = envs.make("MinAtar/Breakout", envs.EnvConfig(num_envs=1), render=True)

    def assert_shown(number: int, frame: str) -> None:
        observation = recording.rollout.states[number].numpy()
        made._observations = lambda: observation[None]  # type: ignore[attr-defined]
        with Image.open(io.BytesIO(base64.b64decode(frame))) as picture:
            np.testing.assert_array_equal(np.asarray(picture), envs.pictures(made)[0])

    for number, frame in zip(recording.shown.tolist(), data["frames"], strict=True):
        assert_shown(number, frame)
    for alike, start in zip(recording.ranking, data["ranking"], strict=True):
        for number in alike:
            assert_shown(number, start["frame"])


def test_only_pictures_that_are_shown_are_drawn(
    cartpole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    render: Callable[[CartPoleEnv], Any] = CartPoleEnv.render

    def counted(env: CartPoleEnv) -> Any:
        drawn.append(env)
        return render(env)

    monkeypatch.setattr(CartPoleEnv, "render", counted)
    recording = play(cartpole, steps=STEPS, seed=0)
    assert len(recording.ranking) > GAMES
    assert len(drawn) == len(recording.frames) < 2 * STEPS


@pytest.mark.parametrize("name", ["CartPole-v1", "MinAtar/Breakout"])
def test_pictures_of_some_environments_are_those_among_all(name: str) -> None:
    made = envs.make(name, envs.EnvConfig(num_envs=4), render=True)
    made.reset(seed=1)
    for _ in range(5):
        made.step(made.action_space.sample())
    every = envs.pictures(made)
    assert len({picture.tobytes() for picture in every}) > 1
    for n, picture in zip([3, 1], envs.pictures(made, [3, 1]), strict=True):
        np.testing.assert_array_equal(picture, every[n])
    made.close()


def test_a_cut_episode_is_no_end(pendulum: Run, tmp_path: Path) -> None:
    """Pendulum is cut off after 200 steps; what it is worth then lies behind the states shown."""
    recording = inspect(pendulum, tmp_path / "page.html", steps=201)
    data = data_of(tmp_path / "page.html")
    assert [t for t, end in enumerate(data["ends"]) if end] == [199]
    assert data["ends"][199] == 2
    assert data["values"]["unanchored"][200] == 0
    traj, values = recording.rollout.traj, recording.values["anchored"]
    last = int(traj.successor[199, 0])
    assert last >= traj.states.numel()
    bootstrapped = traj.rewards[199, 0] + pendulum.config.ppo.gamma * values[last]
    by_hand = float(bootstrapped - values[199 * traj.envs])
    assert data["advantages"]["anchored"][199] == pytest.approx(by_hand, rel=1e-4)
    assert len(recording.actions) == 201
    assert all(-2 <= float(action) <= 2 for action in recording.actions)


def test_a_seed_decides_the_page_and_nothing_is_learned(pendulum: Run, tmp_path: Path) -> None:
    statistics = json.dumps(pendulum.policy.normaliser.capture())
    assert pendulum.config.envs.normalise_rewards
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        inspect(pendulum, tmp_path / name, steps=20, seed=seed)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "again").read_bytes()
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()
    assert json.dumps(pendulum.policy.normaliser.capture()) == statistics


def test_500_steps_of_pong_are_a_small_page(tmp_path: Path) -> None:
    run = train(small("Pong", updates=1), tmp_path / "run", quiet=True)
    recording = inspect(run, tmp_path / "page.html")
    assert len(data_of(tmp_path / "page.html")["frames"]) == 501
    assert (tmp_path / "page.html").stat().st_size < 10e6
    with Image.open(io.BytesIO(recording.frames[0])) as picture:
        assert picture.size == (160, 210)
    assert set(recording.actions) <= {"NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE"}
    assert recording.points == recording.rollout.traj.rewards[:, 0].sum()


@pytest.mark.parametrize("steps", [0, 2001])
def test_no_steps_or_too_many_are_refused(steps: int, cartpole: Run) -> None:
    with pytest.raises(ValueError, match=r"steps must be from 1 to 2,000"):
        play(cartpole, steps=steps, seed=0)


class Blind(gym.Env[np.ndarray, Any]):
    """An environment without pictures."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, **options: Any) -> None:
        self.render_mode = options.get("render_mode")

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Undrawn(Blind):
    """An environment whose pictures need a package that is not there."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def render(self) -> Any:
        raise gym.error.DependencyNotInstalled("pygame is not installed")


class FatalError(Exception):
    """As MuJoCo has it, where no OpenGL can be had."""

    __module__ = "mujoco"


class Screenless(Undrawn):
    """An environment whose pictures need a screen."""

    def render(self) -> Any:
        raise FatalError("an OpenGL platform library has not been loaded")


class Unlinked(Undrawn):
    """An environment whose pictures need a library of the system's."""

    def render(self) -> Any:
        exec("None.glGetError", {"__name__": "OpenGL.raw.GL"})


class Broken(Undrawn):
    """An environment with an error of its own."""

    def render(self) -> Any:
        raise AttributeError("no attribute 'colour'")


@pytest.fixture
def unseen(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """A run in an environment that cannot be looked at."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    gym.register("Blind-v0", entry_point=request.param, disable_env_checker=True)
    yield train(small("Blind-v0", preset="classic", updates=1), tmp_path / "run", quiet=True)
    del gym.registry["Blind-v0"]


@pytest.mark.parametrize(
    ("unseen", "message"),
    [
        (Blind, r"draws no pictures.*got \[\]; `relval eval` plays it"),
        (Undrawn, r'need the package `pygame`: run `pip install "relval\[video\]"`$'),
        (Screenless, "unset: an OpenGL platform library .* set MUJOCO_GL=egl or "),
        (Unlinked, "need OpenGL.* 'glGetError'.* install the system's library"),
    ],
    indirect=["unseen"],
)
def test_without_pictures_there_is_a_page_that_says_why_and_no_video(
    unseen: Run, message: str, relval: Callable[..., Finished], tmp_path: Path
) -> None:
    told = relval("inspect", unseen.folder, "--steps", STEPS)
    assert told.status == 0, told.err
    _, reason = told.out.splitlines()
    assert re.search(message, reason)
    page = unseen.folder / "inspect.html"
    assert prose(reason.removeprefix("without pictures: ")) in page.read_text(encoding="utf-8")
    data = data_of(page)
    assert data["frames"] == [""] * (STEPS + 1)
    assert len(data["values"]["anchored"]) == STEPS + 1
    with pytest.raises(envs.NoPicturesError, match=message):
        record(unseen, tmp_path / "video.gif")


@pytest.mark.parametrize("unseen", [Broken], indirect=True)
def test_an_environments_own_error_is_not_taken_for_a_lack_of_pictures(
    unseen: Run, tmp_path: Path
) -> None:
    with pytest.raises(AttributeError, match=r"^no attribute 'colour'$"):
        inspect(unseen, tmp_path / "page.html")


def test_the_command_writes_into_the_runs_folder(
    relval: Callable[..., Finished], cartpole: Run, tmp_path: Path
) -> None:
    inspected = relval("inspect", cartpole.folder, "--steps", 30)
    assert inspected.status == 0, inspected.err
    assert re.match(rf"31 states, 0\.\d MB: {cartpole.folder}/inspect.html", inspected.out)
    elsewhere = tmp_path / "new" / "page.html"
    assert relval("inspect", cartpole.folder, "--steps", 30, "--out", elsewhere).status == 0
    assert elsewhere.read_bytes() == (cartpole.folder / "inspect.html").read_bytes()


# In a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started.page()


@pytest.fixture(scope="module")
def inspected(breakout: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspected") / "page.html"
    inspect(breakout, path, steps=STEPS)
    return path


def shown(value: float) -> float:
    """As the page rounds numbers by themselves."""
    return float(f"{value:.3g}")


def unit_of(text: str) -> float:
    """One of a number's last decimal."""
    return float(10.0 ** -len(text.partition(".")[2]))


def assert_written(text: str, value: float, spread: float) -> None:
    """A number as the page writes it among others: to four digits of their spread."""
    unit = unit_of(text)
    assert unit == 1 or spread / 10_001 < unit < spread / 999
    assert float(text) == pytest.approx(value, abs=0.5001 * unit)


def moved(source: Path, target: Path, *, constant: float, scale: float) -> dict[str, Any]:
    """The same page about values of another size and further from zero."""
    data = data_of(source)
    for values in data["values"].values():
        values[:] = [constant + scale * value for value in values]
    for start in data["ranking"]:
        start["value"] = constant + scale * start["value"]
    data["differences"]["unit"] *= scale
    before, rest = source.read_text(encoding="utf-8").split('id="data">')
    after = rest.partition("</script>")[2]
    text = f'{before}id="data">{json.dumps(data)}</script>{after}'
    target.write_text(text, encoding="utf-8")
    return data


def text_of(page: Page, name: str) -> str:
    text: str = page.run(f"document.getElementById('{name}').innerText")
    return text


def frame_in(page: Page, name: str) -> str:
    source: str = page.run(f"document.getElementById('{name}').src")
    return source.removeprefix("data:image/webp;base64,")


def box_of(page: Page, selector: str) -> tuple[float, float, float, float]:
    element = f"document.querySelector('{selector}')"
    page.run(f"{element}.scrollIntoView({{block: 'center'}})")
    box = page.run(f"(b => [b.left, b.top, b.width, b.height])({element}.getBoundingClientRect())")
    left, top, width, height = box
    return left, top, width, height


def click(page: Page, x: float, y: float) -> None:
    page.mouse("mouseMoved", x, y)
    for kind in ("mousePressed", "mouseReleased"):
        page.mouse(kind, x, y, pressed=True)


def scrub(page: Page, step: int) -> None:
    page.run(
        f"(s => {{ s.value = {step}; s.dispatchEvent(new Event('input')); }})"
        "(document.getElementById('scrub'))"
    )


def test_a_step_is_shown_with_its_picture_and_numbers(inspected: Path, page: Page) -> None:
    data = data_of(inspected)
    page.show(1280, 900)
    page.open(inspected)
    assert text_of(page, "now-step") == f"0 of {STEPS}"
    for step in (7, 93):
        scrub(page, step)
        assert text_of(page, "now-step") == f"{step} of {STEPS}"
        assert frame_in(page, "frame") == data["frames"][step]
        assert page.run("document.getElementById('frame').decode().then(() => true)")
        values = data["values"]["anchored"]
        assert_written(text_of(page, "now-value"), values[step], np.ptp(values))
        advantage = shown(data["advantages"]["anchored"][step])
        assert float(text_of(page, "now-advantage")) == advantage
        assert float(text_of(page, "now-reward")) == data["rewards"][step]
        assert text_of(page, "now-action") == data["actions"][step]
    ended = next(t for t, end in enumerate(data["ends"]) if end)
    scrub(page, ended)
    assert text_of(page, "now-then") == "the episode ends"
    before = text_of(page, "now-episode")
    page.run("document.getElementById('on').click()")
    assert (before[0], text_of(page, "now-episode")[0]) == ("1", "2")
    scrub(page, STEPS)
    assert text_of(page, "now-advantage") == "none"
    press(page, "ArrowLeft")
    assert text_of(page, "now-step") == f"{STEPS - 1} of {STEPS}"
    assert page.complaints == []
    assert page.requests == []


@pytest.mark.parametrize("unseen", [Undrawn], indirect=True)
def test_a_page_without_pictures_shows_the_rest(unseen: Run, page: Page, tmp_path: Path) -> None:
    inspect(unseen, tmp_path / "page.html", steps=STEPS)
    page.show(1280, 900)
    page.open(tmp_path / "page.html")
    scrub(page, 7)
    assert text_of(page, "now-step") == f"7 of {STEPS}"
    assert "relval[video]" in text_of(page, "unseen")
    assert "`" not in text_of(page, "unseen")
    assert page.run("[...document.querySelectorAll('img')].every(i => i.clientWidth === 0)")
    for selector in ("#curves svg", "#matrix svg"):
        assert box_of(page, selector)[3] > 100
    assert page.complaints == []
    assert page.requests == []


def test_a_game_is_played_to_its_end(inspected: Path, page: Page) -> None:
    page.open(inspected)
    scrub(page, STEPS - 3)
    page.run("document.getElementById('play').click()")
    assert text_of(page, "play") == "pause"
    page.run(
        "new Promise(done => { const look = () => document.getElementById('play').textContent "
        "=== 'play' ? done() : setTimeout(look, 20); look(); })"
    )
    assert text_of(page, "now-step") == f"{STEPS} of {STEPS}"


def test_pointing_at_a_curve_goes_to_its_step(inspected: Path, page: Page) -> None:
    page.show(1280, 900)
    page.open(inspected)
    left, top, width, height = box_of(page, "#curves svg")
    page.mouse("mouseMoved", left + 46 + 0.25 * (width - 56), top + height / 2)
    assert text_of(page, "now-step") == f"{STEPS // 4} of {STEPS}"


def test_a_click_keeps_a_step_until_the_next(inspected: Path, page: Page) -> None:
    page.show(1280, 900)
    page.open(inspected)
    left, top, width, height = box_of(page, "#curves svg")
    middle = top + height / 2

    def x(share: float) -> float:
        return left + 46 + share * (width - 56)

    click(page, x(0.5), middle)
    page.mouse("mouseMoved", x(0.75), middle)
    assert text_of(page, "now-step") == f"{3 * STEPS // 4} of {STEPS}"
    for beside in ((left + 20, middle), (x(0.75), top + height - 10), (left - 50, middle)):
        page.mouse("mouseMoved", x(0.25), middle)
        assert text_of(page, "now-step") == f"{STEPS // 4} of {STEPS}"
        page.mouse("mouseMoved", *beside)
        assert text_of(page, "now-step") == f"{STEPS // 2} of {STEPS}"
    click(page, left + 20, middle)
    page.mouse("mouseMoved", left - 50, middle)
    page.run("document.getElementById('on').click()")
    assert text_of(page, "now-step") == f"{STEPS // 2 + 1} of {STEPS}"


def test_a_click_keeps_a_pair_until_the_next(inspected: Path, page: Page) -> None:
    page.show(1280, 900)
    page.open(inspected)
    left, top, width, height = box_of(page, "#matrix image")
    click(page, left + 0.75 * width, top + 0.25 * height)
    kept = text_of(page, "difference")
    assert f"state {(STEPS + 1) // 4} is" in kept
    for beside in ((left - 20, top + 0.5 * height), (left + width + 100, top + 0.5 * height)):
        page.mouse("mouseMoved", left + 0.1 * width, top + 0.5 * height)
        assert text_of(page, "difference") != kept
        page.mouse("mouseMoved", *beside)
        assert text_of(page, "difference") == kept


@pytest.mark.parametrize(("i", "j"), [(15, 100), (100, 15), (40, 40)])
def test_pointing_at_a_cell_shows_both_states(i: int, j: int, inspected: Path, page: Page) -> None:
    data = data_of(inspected)
    page.show(1280, 900)
    page.open(inspected)
    left, top, width, height = box_of(page, "#matrix image")
    page.mouse(
        "mouseMoved",
        left + (j + 0.5) / (STEPS + 1) * width,
        top + (i + 0.5) / (STEPS + 1) * height,
    )
    assert frame_in(page, "first") == data["frames"][i]
    assert frame_in(page, "second") == data["frames"][j]
    difference = text_of(page, "difference")
    differences = differences_of(data)
    expected = differences[i, j]
    assert_written(difference.split("\n")[0].removeprefix("Δ = "), expected, differences.max())
    verdict = "as good as" if i == j else "better than" if expected > 0 else "worse than"
    assert f"state {i} is {verdict} state {j}" in difference
    assert text_of(page, "first-name").startswith(f"i = {i},")
    assert text_of(page, "second-name").startswith(f"j = {j},")
    first, second = box_of(page, "#first"), box_of(page, "#second")
    assert first[1] == second[1]
    assert first[0] + first[2] < second[0]


def test_a_picture_of_differences_has_its_colours(inspected: Path, page: Page) -> None:
    """Equal states are as white as the page, better ones orange, worse ones blue."""
    differences = differences_of(data_of(inspected))
    page.show(1280, 900)
    page.open(inspected)
    i, j = np.unravel_index(differences.argmax(), differences.shape)
    pixels = page.run(
        "(async () => { const image = new Image(); "
        "image.src = document.querySelector('#matrix image').getAttribute('href'); "
        "await image.decode(); const canvas = document.createElement('canvas'); "
        f"canvas.width = canvas.height = {STEPS + 1}; const c = canvas.getContext('2d'); "
        f"c.drawImage(image, 0, 0); const all = c.getImageData(0, 0, {STEPS + 1}, {STEPS + 1}); "
        f"return [[{i}, {j}], [{j}, {i}], [{i}, {i}]].map(([row, column]) => "
        f"[...all.data.slice(4 * (row * {STEPS + 1} + column)).slice(0, 3)]); }})()"
    )
    assert pixels == [[217, 100, 28], [13, 116, 177], [255, 255, 255]]


def test_the_anchor_is_switched_in_curves_and_numbers(inspected: Path, page: Page) -> None:
    data = data_of(inspected)
    page.show(1280, 900)
    page.open(inspected)
    scrub(page, 100)
    seen = []
    for anchor in ("anchored", "unanchored", "anchored"):
        page.run(f"document.querySelector('[value={anchor}]').click()")
        values = data["values"][anchor]
        assert_written(text_of(page, "now-value"), values[100], np.ptp(values))
        assert float(text_of(page, "now-advantage")) == shown(data["advantages"][anchor][100])
        assert data["gauges"][anchor] in text_of(page, "meaning")
        curves = "[...document.querySelectorAll('#curves path')].map(p => p.getAttribute('d'))"
        seen.append(page.run(curves))
    assert seen[0] == seen[2]
    assert seen[0] != seen[1]
    assert len(seen[0]) == 1 + sum(end > 0 for end in data["ends"]) + 4


def test_start_states_are_listed_best_first_and_lead_to_their_steps(
    inspected: Path, page: Page
) -> None:
    ranking = data_of(inspected)["ranking"]
    page.open(inspected)
    listed = page.run("[...document.querySelectorAll('#ranking li')].map(li => li.innerText)")
    for entry, start in zip(listed, ranking, strict=True):
        value = entry.split()[1]
        assert float(value) == pytest.approx(start["value"], abs=0.5001 * unit_of(value))
    own = [start["steps"] for start in ranking if start["steps"]]
    page.run("scrollTo(0, document.body.scrollHeight)")
    page.run("[...document.querySelectorAll('#ranking button')].pop().click()")
    assert text_of(page, "now-step") == f"{own[-1][0]} of {STEPS}"
    frame = "document.getElementById('frame').getBoundingClientRect()"
    assert page.run(f"{frame}.top >= 0 && {frame}.bottom <= innerHeight")


@pytest.mark.parametrize(
    ("constant", "scale"), [(0, 1), (25, 0.1), (1_000, 1), (-70_000, 500), (0, 1e-4), (3, 0)]
)
def test_values_are_told_apart_wherever_they_lie(
    constant: float, scale: float, cartpole: Run, page: Page, tmp_path: Path
) -> None:
    near, far = tmp_path / "near.html", tmp_path / "far.html"
    inspect(cartpole, near, steps=STEPS)
    data = moved(near, far, constant=constant, scale=scale)
    page.open(far)

    ranked = np.array([start["value"] for start in data["ranking"]])
    assert len(ranked) > GAMES
    listed = page.run("[...document.querySelectorAll('#ranking b')].map(b => b.innerText)")
    texts = [entry.split()[1] for entry in listed]
    np.testing.assert_allclose([float(text) for text in texts], ranked, atol=unit_of(texts[0]))
    least = max(np.ptp(ranked) / 10_000, abs(ranked).max() / 1e6)
    for k in (-np.diff(ranked) > least).nonzero()[0]:
        assert texts[k] != texts[k + 1]
    assert all(len(text.strip("-0.").replace(".", "")) <= 7 for text in texts)

    value = text_of(page, "now-value")
    assert float(value) == pytest.approx(data["values"]["anchored"][0], abs=unit_of(value))
    spoken = page.run("document.getElementById('scrub').getAttribute('aria-valuetext')")
    assert spoken == f"step 0, value {value}"
    if scale:
        differences = differences_of(data)
        written = text_of(page, "difference").split("\n")[0].removeprefix("Δ = ")
        assert_written(written, differences[0, abs(differences[0]).argmax()], differences.max())
    marks = page.run(
        "[...document.querySelectorAll('#curves text[text-anchor=end]')]"
        ".filter(t => t.getAttribute('y') < 215).map(t => t.textContent)"
    )
    assert len(set(marks)) == len(marks) > 1
    assert page.complaints == []


def press(page: Page, key: str, **modifiers: int) -> None:
    code = {"ArrowLeft": 37, "ArrowRight": 39}[key]
    for kind in ("keyDown", "keyUp"):
        page("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **modifiers)


@pytest.mark.parametrize("focused", ["#on", "#play", "#ranking button", "#scrub"])
def test_arrow_keys_go_one_step_wherever_the_focus_is(
    focused: str, inspected: Path, page: Page
) -> None:
    page.open(inspected)
    scrub(page, 50)
    page.run(f"document.querySelector('{focused}').focus()")
    for key, step in (("ArrowRight", 51), ("ArrowRight", 52), ("ArrowLeft", 51)):
        press(page, key)
        assert text_of(page, "now-step") == f"{step} of {STEPS}"


def test_arrow_keys_of_other_inputs_and_of_the_browser_are_left_alone(
    inspected: Path, page: Page
) -> None:
    page.open(inspected)
    scrub(page, 50)
    press(page, "ArrowRight", modifiers=2)  # with Ctrl
    page.run("document.querySelector('[value=anchored]').focus()")
    press(page, "ArrowRight")
    assert page.run("document.querySelector(':checked').value") == "unanchored"
    before = page.run("+document.getElementById('j').value")
    page.run("document.getElementById('j').focus()")
    press(page, "ArrowLeft")
    assert page.run("+document.getElementById('j').value") == before - 1
    assert text_of(page, "now-step") == f"50 of {STEPS}"


def test_a_page_tells_its_parts_and_keys(inspected: Path, page: Page) -> None:
    page.open(inspected)
    assert page.run("document.querySelectorAll('main').length") == 1
    assert page.run("document.querySelector('main ~ footer') !== null")
    assert page.run("document.querySelectorAll('main h1, main h2').length") == 3
    assert "use ←\u00a0→" in page.run("document.querySelector('main p').innerText")
    page.run("document.getElementById('play').click()")
    assert text_of(page, "play") == "pause"
    assert not page.run("document.getElementById('play').hasAttribute('aria-pressed')")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
def test_a_page_fits_the_screen_and_the_light(
    width: int, phone: bool, dark: bool, inspected: Path, page: Page, tmp_path: Path
) -> None:
    page.show(width, 844, dark=dark, phone=phone)
    page.open(inspected)
    assert page.run("document.documentElement.scrollWidth") <= width
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    for selector in ("#frame", "#curves svg", "#matrix svg", "#first", "#second"):
        left, _, wide, high = box_of(page, selector)
        assert left >= 0
        assert 100 < wide <= width - left
        assert high > 100
    assert page.complaints == []


def test_a_finger_points_too(inspected: Path, page: Page) -> None:
    page.show(390, 844, phone=True)
    page.open(inspected)
    left, top, width, height = box_of(page, "#matrix image")
    touch = [{"x": left + 0.75 * width, "y": top + 0.25 * height}]
    page("Input.dispatchTouchEvent", type="touchStart", touchPoints=touch)
    page("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert text_of(page, "first-name").startswith(f"i = {(STEPS + 1) // 4},")
    assert text_of(page, "second-name").startswith(f"j = {3 * (STEPS + 1) // 4},")


def test_a_swipe_scrolls_and_keeps_the_pair(inspected: Path, page: Page) -> None:
    page.show(390, 844, phone=True)
    page.open(inspected)
    left, top, width, height = box_of(page, "#matrix image")
    kept, scrolled = text_of(page, "difference"), page.run("scrollY")
    for k in range(10):
        touch = [{"x": left + 0.5 * width, "y": top + 0.3 * height + 15 * k}]
        kind = "touchMove" if k else "touchStart"
        page("Input.dispatchTouchEvent", type=kind, touchPoints=touch)
    page("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert page.run("new Promise(requestAnimationFrame).then(() => scrollY)") < scrolled
    assert text_of(page, "difference") == kept
