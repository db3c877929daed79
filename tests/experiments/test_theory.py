from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from relval.experiments import theory
from relval.experiments.theory import estimates
from relval.experiments.theory.exhibit import Check, Exhibit
from relval.experiments.theory.finite import terminating_process, unending_process
from relval.relative import gae


@pytest.fixture(scope="module")
def exhibits() -> list[Exhibit]:
    return list(theory.exhibits())


def test_every_number_agrees_with_the_theory(exhibits: list[Exhibit]) -> None:
    off = [check for exhibit in exhibits for check in exhibit.checks if not check.holds]
    assert off == []
    assert all(exhibit.checks for exhibit in exhibits)


def test_termination_really_biases_the_gradient() -> None:
    checks = estimates.biased_with_termination().checks
    by_label = {check.label: check.measured for check in checks}
    label = "gradient by the first logit of state 0"
    assert abs(by_label[f"GAE: {label}"] - by_label[f"R-GAE: {label}"]) > 0.1


@pytest.mark.parametrize("process", [unending_process(), terminating_process()])
def test_enumeration_is_complete(process: theory.finite.FiniteProcess) -> None:
    enumeration = process.enumerate(start=0, steps=4)
    assert enumeration.probability.sum().item() == pytest.approx(1)
    # With true values every trajectory's discounted return, bootstrapped, averages to V(start).
    advantages = gae(
        enumeration.traj, process.values[enumeration.states], gamma=process.gamma, lam=1.0
    )
    assert enumeration.expectation(advantages[0]).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        (Check("", 1.0, 1.0 + 1e-12), True),
        (Check("", 1.0, 1.1), False),
        (Check("", 0.8, 0.9, "≤"), True),
        (Check("", 1.0, 0.9, "≤"), False),
        (Check("", float("nan"), 0.9), False),
        (Check("", float("nan"), 0.9, "≤"), False),
    ],
)
def test_a_check_holds_only_where_numbers_agree(check: Check, holds: bool) -> None:
    assert check.holds is holds


class PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value for name, value in attrs if name in ("src", "href", "xlink:href") and value
        ]


def test_the_page_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert theory.show(tmp_path / "new" / "folder")
    page = tmp_path / "new" / "folder" / "index.html"
    assert str(page) in capsys.readouterr().out
    reader = PageReader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert "<code>minvar</code>" in page.read_text(encoding="utf-8")
    assert reader.tags.count("svg") == 5
    assert reader.tags.count("section") == len(list(theory.exhibits()))
    assert all(link.startswith(("#", "data:")) for link in reader.links)


def test_a_number_that_is_off_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_term_too_many(c: torch.Tensor, steps: int, *, gamma: float, lam: float) -> torch.Tensor:
        powers = (gamma * lam) ** torch.arange(steps + 1, dtype=torch.float64)
        return (1 - gamma) * c * powers.cumsum(0).flip(0)[:steps]

    monkeypatch.setattr(estimates, "trajectory_constant", one_term_too_many)
    assert not theory.show(tmp_path)
    assert "OFF" in capsys.readouterr().out
    assert "✗ off" in (tmp_path / "index.html").read_text(encoding="utf-8")
