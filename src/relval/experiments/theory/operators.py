"""Exhibits about the pairwise Bellman operators and the gauge (Sec. 3.1, App. B)."""

from dataclasses import replace

import torch
from torch import Tensor

from relval.experiments.figures import COLOURS, figure, to_svg
from relval.experiments.theory.exhibit import Check, Exhibit
from relval.experiments.theory.finite import (
    FiniteProcess,
    terminating_process,
    unending_process,
)
from relval.relative import DiscountedPairwiseBellman, PairwiseBellman


def contraction() -> Exhibit:
    """The errors of both operators, from a random start down to the fixed point."""
    transition, reward = _reversible_chain(states=12)
    eigenvalues = torch.linalg.eigvals(transition).abs().sort(descending=True).values.tolist()
    # An antisymmetric error has no constant part, the only one that a chain does not mix away.
    cases = (
        ("Δ", PairwiseBellman, eigenvalues[1]),
        ("Δ_γ", DiscountedPairwiseBellman, eigenvalues[0]),
    )
    checks = []
    with figure(height=3.2) as fig:
        panels = fig.subplots(1, 2, sharey=True)
        for panel, (name, operator_type, eigenvalue) in zip(panels, cases, strict=True):
            for colour, gamma in zip(COLOURS, (0.5, 0.9, 0.99), strict=False):
                operator = operator_type(transition, reward, gamma)
                truth = operator.differences(operator.values())
                errors = _errors(operator, truth, applications=120)
                rates = errors[1:] / errors[:-1]
                resolved = rates[errors[1:] > 1e-8 * errors[0]]
                distance = (operator.fixed_point() - truth).abs().max()
                case = f"{name}, γ = {gamma}"
                checks += [
                    Check(f"{case}: worst rate", resolved.max().item(), gamma, "≤"),
                    Check(
                        f"{case}: final rate",
                        resolved[-1].item(),
                        gamma * eigenvalue,
                        tolerance=1e-3,
                    ),
                    Check(f"{case}: fixed point's error", distance.item(), 0.0),
                ]
                bound = errors[0] * gamma ** torch.arange(len(errors))
                panel.semilogy(errors, color=colour, label=f"γ = {gamma}")
                panel.semilogy(bound, color=colour, linestyle=":", linewidth=1.2)
            panel.set_title("Δ" if name == "Δ" else r"Δ$_γ$")
            panel.set_xlabel("applications of the operator")
            panel.set_ylim(1e-9, 1e2)
        panels[0].set_ylabel("largest error")
        panels[0].legend()
    return Exhibit(
        title="Both operators contract to the true differences",
        source="Theorem 3.1, Eq. 8 and 14",
        story=(
            "The pairwise operator, applied over and over to a random antisymmetric start, and "
            "that of Δ_γ to any random start, on a random chain of twelve states. Each "
            "application shrinks the largest error by γ or more (dotted: exactly γ), until the "
            "true differences are left. Antisymmetry does better than the theorem says: an error "
            "common to all pairs cannot arise, so the final rate is γ |λ₂|, with λ₂ the chain's "
            "second eigenvalue. The operator of Δ_γ ends at the rate γ."
        ),
        checks=checks,
        picture=to_svg(fig, "Errors of both operators falling at rate gamma or better"),
    )


def gauge() -> Exhibit:
    """Values, differences and advantages under r + (1 − γ) c, without and with termination."""
    checks = []
    process = unending_process()
    for c in (1.0, 10.0, 1000.0):
        shaped = _raise_reward(process, c)
        shift = shaped.values - process.values
        change = (_differences(shaped) - _differences(process)).abs().max()
        advantage_change = (shaped.advantages - process.advantages).abs().max()
        checks += [
            Check(f"c = {c:g}: rise of every value", shift.min().item(), c),
            Check(f"c = {c:g}: largest change of a difference", change.item(), 0.0),
            Check(f"c = {c:g}: largest change of an advantage", advantage_change.item(), 0.0),
        ]
    process = terminating_process()
    shaped = _raise_reward(process, 1.0)
    change = _differences(shaped)[0, 1] - _differences(process)[0, 1]
    lifetimes = _discounted_lifetimes(process)
    checks.append(
        Check(
            "with termination, c = 1: change of V(0) − V(1)",
            change.item(),
            (1 - process.gamma) * (lifetimes[0] - lifetimes[1]).item(),
        )
    )
    return Exhibit(
        title="Differences and advantages have no gauge, if nothing terminates",
        source="Lemma B.1",
        story=(
            "A reward raised by (1 − γ) c raises every value by c, and changes no difference and "
            "no advantage. The lemma presumes that the process goes on for ever. Where episodes "
            "terminate, the bonus pays for staying alive, and differences change by (1 − γ) c "
            "times the difference of the discounted lifetimes."
        ),
        checks=checks,
    )


def _reversible_chain(states: int) -> tuple[Tensor, Tensor]:
    """A random walk on two loosely joined halves of a graph, and random rewards.

    Its eigenvalues are real, and the second, which tells how slowly the halves mix, stands apart.
    """
    generator = torch.Generator().manual_seed(1)
    weights = 0.5 + torch.rand(states, states, dtype=torch.float64, generator=generator)
    half = torch.arange(states) < states // 2
    weights[half[:, None] != half] *= 0.15
    weights = weights + weights.T
    transition = weights / weights.sum(1, keepdim=True)
    return transition, torch.randn(states, dtype=torch.float64, generator=generator)


def _errors(operator: PairwiseBellman, truth: Tensor, applications: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    delta = 10 * torch.randn(truth.shape, dtype=truth.dtype, generator=generator)
    if not isinstance(operator, DiscountedPairwiseBellman):
        delta = (delta - delta.T) / 2
    errors = [(delta - truth).abs().max()]
    for _ in range(applications):
        delta = operator(delta)
        errors.append((delta - truth).abs().max())
    return torch.stack(errors)


def _raise_reward(process: FiniteProcess, c: float) -> FiniteProcess:
    return replace(process, reward=process.reward + (1 - process.gamma) * c)


def _differences(process: FiniteProcess) -> Tensor:
    return process.values[:, None] - process.values[None, :]


def _discounted_lifetimes(process: FiniteProcess) -> Tensor:
    """Σ_t γ^t P(alive after t steps), by the survival probabilities themselves."""
    alive = torch.ones_like(process.values)
    lifetimes = torch.zeros_like(process.values)
    for step in range(1000):
        lifetimes += process.gamma**step * alive
        alive = process.state_transition @ alive
    return lifetimes
