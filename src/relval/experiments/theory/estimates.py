"""Exhibits about relative advantages and the gradients made from them (Sec. 3.2, App. C)."""

import torch
from torch import Tensor

from relval.experiments.figures import COLOURS, figure, to_svg
from relval.experiments.theory.exhibit import ROUNDING, Check, Exhibit, Table
from relval.experiments.theory.finite import (
    Enumeration,
    terminating_process,
    unending_process,
)
from relval.relative import (
    LinearDelta,
    Trajectories,
    gae,
    mean_offset,
    minvar_offset,
    telescoped_values,
    terminal_offset,
    trajectory_constant,
)

GAMMA, LAM = 0.9, 0.8
STEPS, START = 5, 0


def appendix_table() -> Exhibit:
    """The paper's Table 2, recomputed beside its printed digits."""
    printed = {
        "δ": [1.70, 1.60, 1.50, 1.40, 1.30, 1.20],
        "δ̃": [1.90, 1.80, 1.70, 1.60, 1.50, 1.40],
        "A": [4.73, 4.21, 3.63, 2.96, 2.16, 1.20],
        "Ã": [5.35, 4.79, 4.15, 3.41, 2.51, 1.40],
        "Ã − A": [0.61, 0.58, 0.52, 0.45, 0.34, 0.20],
        "B": [0.61, 0.58, 0.52, 0.45, 0.34, 0.20],
    }
    traj = _unending_rollout(torch.ones(6, dtype=torch.float64))
    values = torch.arange(2.0, 9.0, dtype=torch.float64)
    relative = telescoped_values(LinearDelta(values), traj)

    def advantages(values: Tensor, lam: float) -> Tensor:
        return gae(traj, values, gamma=GAMMA, lam=lam).squeeze(1)

    computed = {
        "δ": advantages(values, 0.0),
        "δ̃": advantages(relative, 0.0),
        "A": advantages(values, LAM),
        "Ã": advantages(relative, LAM),
        "Ã − A": advantages(relative, LAM) - advantages(values, LAM),
        "B": trajectory_constant(values[0], 6, gamma=GAMMA, lam=LAM),
    }
    checks, rows = [], []
    for name, row in computed.items():
        distance = (row - torch.tensor(printed[name], dtype=row.dtype)).abs().max()
        checks.append(
            Check(f"{name}: largest distance to print", distance.item(), 0.005 + ROUNDING, "≤")
        )
        rows.append((f"{name}, computed", [f"{x:.4f}" for x in row.tolist()]))
        rows.append((f"{name}, printed", [f"{x:.2f}" for x in printed[name]]))
    return Exhibit(
        title="The appendix's example, recomputed",
        source="Table 2",
        story=(
            "Six rewards of 1 along states worth 2, 3, …, 8, with γ = 0.9, λ = 0.8 and C = 2. "
            "Every printed digit is right. (The text around the table speaks of seven steps, and "
            "Lemma 3.2 sums one term too many.)"
        ),
        checks=checks,
        table=Table([f"t = {t}" for t in range(6)], rows),
    )


def trajectory_constants() -> Exhibit:
    """B_t over a rollout of the paper's length, for several C: its variance figure."""
    steps, gamma, lam = 128, 0.99, 0.95
    generator = torch.Generator().manual_seed(0)
    traj = _unending_rollout(torch.randn(steps, dtype=torch.float64, generator=generator))
    values = torch.randn(steps + 1, dtype=torch.float64, generator=generator).cumsum(0)
    true_gae = gae(traj, values, gamma=gamma, lam=lam)
    checks = []
    with figure() as fig:
        panel = fig.subplots()
        for c in torch.tensor([20.0, 10.0, 1.0, -10.0, -20.0], dtype=torch.float64):
            excess = (gae(traj, values - c, gamma=gamma, lam=lam) - true_gae).squeeze(1)
            predicted = trajectory_constant(c, steps, gamma=gamma, lam=lam)
            distance = (excess - predicted).abs().max()
            checks += [
                Check(f"C = {c:g}: excess at t = 0", excess[0].item(), predicted[0].item()),
                Check(f"C = {c:g}: largest distance to B", distance.item(), 0.0),
            ]
            panel.plot(excess, label=f"C = {c:g}")
        panel.set_xlabel("t")
        panel.set_ylabel("R-GAE − GAE")
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Exhibit(
        title="A wrong constant inflates advantages",
        source="Lemma 3.2",
        story=(
            "Values that are too low by C raise each advantage of a rollout that does not "
            "terminate by B_t = (1 − γ) C Σ (γλ)^l: nearly constant at first, and little at the "
            "rollout's end. Here γ = 0.99, λ = 0.95 and 128 steps, as in the paper's experiments."
        ),
        checks=checks,
        picture=to_svg(fig, "B over 128 steps, one curve for each constant C"),
    )


def variance_inflation() -> Exhibit:
    """The variance of one step's gradient against C, enumerated and as the lemma has it."""
    enumeration = unending_process().enumerate(START, STEPS)
    values = enumeration.process.values[enumeration.states]
    true_gae = gae(enumeration.traj, values, gamma=GAMMA, lam=LAM)
    constants = torch.linspace(-12.0, 12.0, 25, dtype=torch.float64)
    checks = []
    with figure() as fig:
        panel = fig.subplots()
        for colour, t in zip(COLOURS, (0, STEPS - 2), strict=False):
            score = enumeration.log_gradients[t].flatten(1)
            square = score.square().sum(1)
            measured, predicted = [], []
            for c in constants:
                relative = gae(enumeration.traj, values - c, gamma=GAMMA, lam=LAM)
                b = trajectory_constant(c, STEPS, gamma=GAMMA, lam=LAM)[t]
                noise = enumeration.expectation(square) * b.square()
                correlation = 2 * enumeration.expectation(square * true_gae[t]) * b
                base = enumeration.variance(score * true_gae[t][:, None])
                measured.append(enumeration.variance(score * relative[t][:, None]).item())
                predicted.append((base + noise + correlation).item())
            panel.plot(constants, predicted, color=colour, label=f"t = {t}, lemma")
            panel.plot(constants, measured, "o", color=colour, ms=4, label=f"t = {t}, enumerated")
            for which in (0, len(constants) // 2, -1):
                label = f"t = {t}, C = {constants[which]:g}: variance"
                checks.append(Check(label, measured[which], predicted[which]))
        panel.set_xlabel("C")
        panel.set_ylabel("variance of the gradient")
        panel.legend()
    return Exhibit(
        title="A wrong constant costs variance, quadratically",
        source="Lemma C.1",
        story=(
            "The variance of ∇ log π(a_t | s_t) Ã_t over all trajectories of a process of two "
            "states and two actions that does not terminate, against the lemma's three terms."
        ),
        checks=checks,
        picture=to_svg(fig, "Variance of the gradient, a parabola in the constant C"),
    )


def unbiased_without_termination() -> Exhibit:
    """The expected gradient from R-GAE where nothing terminates: the true one, whatever C."""
    enumeration = unending_process().enumerate(START, STEPS)
    truth = enumeration.process.policy_gradient(START, STEPS)
    checks = _gradient_checks(enumeration, truth, biased=truth)
    return Exhibit(
        title="Without termination, R-GAE is unbiased",
        source="Corollary 3.3",
        story=(
            "The expected policy gradient over all trajectories of five steps. Adding B_t, a "
            "constant of the trajectory, changes no expectation: R-GAE with the zero anchor gives "
            "the gradient that follows from the true advantages, component by component."
        ),
        checks=checks,
    )


def biased_with_termination() -> Exhibit:
    """The same where episodes may terminate: a bias in proportion to C."""
    enumeration = terminating_process().enumerate(START, STEPS)
    process = enumeration.process
    truth = process.policy_gradient(START, STEPS)
    values = process.values[enumeration.states]
    constants = torch.linspace(-6.0, 6.0, 13, dtype=torch.float64)
    per_unit = enumeration.gradient(_excess_with_termination(enumeration.traj))
    with figure() as fig:
        panel = fig.subplots()
        estimates = [
            enumeration.gradient(gae(enumeration.traj, values - c, gamma=GAMMA, lam=LAM))[0, 0]
            for c in constants
        ]
        panel.axhline(truth[0, 0].item(), color=COLOURS[2], label="true gradient")
        panel.plot(
            constants, truth[0, 0] + constants * per_unit[0, 0], label="predicted", color=COLOURS[0]
        )
        panel.plot(constants, estimates, "o", label="R-GAE, enumerated", color=COLOURS[1], ms=4)
        panel.axvline(process.values[START].item(), color=COLOURS[3], ls=":", label="zero anchor")
        panel.set_xlabel("C, by which values are too low")
        panel.set_ylabel("gradient by one logit")
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Exhibit(
        title="With termination, a wrong anchor biases the gradient",
        source="beyond Corollary 3.3",
        story=(
            "A terminal state is worth 0, not −C, so a segment that terminates at step L gains "
            "(1 − γ) C Σ_{l<L−t} (γλ)^l + C (γλ)^(L−t) in place of B_t. That depends on when the "
            "episode ends, so on the actions, and R-GAE is biased unless its anchor is right. The "
            "process is the one above, but its second action ends three episodes in ten."
        ),
        checks=_gradient_checks(
            enumeration, truth, biased=truth + process.values[START] * per_unit
        ),
        picture=to_svg(fig, "Gradient estimate against C: a line that meets the truth at C = 0"),
    )


def anchors_of_random_ends() -> Exhibit:
    """The constants that anchors find for true values, where each step may be the last."""
    steps = 10
    flips = torch.arange(2**steps)
    over = (flips >> torch.arange(steps)[:, None]) % 2 == 1
    traj = Trajectories(torch.ones(over.shape, dtype=torch.float64), over)
    value = 1 / (1 - GAMMA / 2)
    values = torch.full((traj.num_states,), value, dtype=torch.float64)

    def predicted(decay: float) -> float:
        """Of `terminal`: d steps from the end were (1 − γ^d) / (1 − γ), in T − d + 1 places."""
        weights = [(steps - d + 1) * (decay / 2) ** (d - 1) for d in range(1, steps + 1)]
        lacking = [(1 - GAMMA**d) / (1 - GAMMA) - value for d in range(1, steps + 1)]
        return sum(w * x for w, x in zip(weights, lacking, strict=True)) / sum(weights)

    checks = [
        Check("mean", mean_offset(traj, values, gamma=GAMMA, lam=LAM).item(), 0.0),
        *(
            Check(
                f"terminal, decay {decay:g}",
                terminal_offset(traj, values, gamma=GAMMA, decay=decay).item(),
                predicted(decay),
            )
            for decay in (LAM, 1.0)
        ),
        Check("minvar", minvar_offset(traj, values, gamma=GAMMA, lam=LAM).item(), -0.1, "≤"),
    ]
    return Exhibit(
        title="Where ends are random, only centred advantages tell the constant",
        source="beyond the paper",
        story=(
            "Each step gives 1 and is the last with probability ½; all rollouts of ten steps. The "
            f"values are the true ones, {value:.4g}, so the constant to be found is 0. Paths that "
            "have ended are those that had bad luck: `terminal` knows no others, and `minvar` "
            "heeds them most, so both take values to be too high."
        ),
        checks=checks,
    )


def _gradient_checks(enumeration: Enumeration, truth: Tensor, biased: Tensor) -> list[Check]:
    """GAE against the true gradient, R-GAE under the zero anchor against its prediction."""
    traj, values = enumeration.traj, enumeration.process.values[enumeration.states]
    relative = telescoped_values(LinearDelta(values), traj)
    checks = []
    for name, estimated, predicted in (("GAE", values, truth), ("R-GAE", relative, biased)):
        gradient = enumeration.gradient(gae(traj, estimated, gamma=GAMMA, lam=LAM))
        for state in range(len(gradient)):
            label = f"{name}: gradient by the first logit of state {state}"
            checks.append(Check(label, gradient[state, 0].item(), predicted[state, 0].item()))
    return checks


def _excess_with_termination(traj: Trajectories) -> Tensor:
    """R-GAE − GAE for C = 1 on trajectories that may terminate, from the closed form, `[T, N]`."""
    ahead = traj.remaining.view(traj.steps, traj.envs).double() - 1  # L − t
    decay = GAMMA * LAM
    before_the_last = (1 - GAMMA) * (1 - decay**ahead) / (1 - decay)
    last = decay**ahead
    last = torch.where(traj.terminated.any(0), last, (1 - GAMMA) * last)
    return torch.where(traj.valid, before_the_last + last, 0)


def _unending_rollout(rewards: Tensor) -> Trajectories:
    rewards = rewards[:, None]
    return Trajectories(rewards, torch.zeros_like(rewards, dtype=torch.bool))
