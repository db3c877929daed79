"""An exhibit about the targets' terminal cases (Sec. 3.3, App. A)."""

from functools import partial

import torch

from relval.experiments.figures import COLOURS, figure, to_svg
from relval.experiments.theory.exhibit import Check, Exhibit
from relval.experiments.theory.finite import FiniteProcess, expected_target
from relval.relative import one_step_targets

GAMMA = 0.9


def mixed_terminal_cases() -> Exhibit:
    """The expected one-step target of a state that terminates with some probability."""
    chances = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]
    targets = partial(one_step_targets, gamma=GAMMA)
    measured = [
        expected_target(_leaky_process(chance), 0, 1, steps=1, targets=targets)
        for chance in chances
    ]
    finely = torch.linspace(0, 1, 101, dtype=torch.float64).tolist()
    with figure() as fig:
        panel = fig.subplots()
        truths, predictions = zip(*map(_truth_and_prediction, finely), strict=True)
        panel.plot(finely, truths, color=COLOURS[2], label="true difference")
        panel.plot(finely, predictions, color=COLOURS[0], label="expected target, predicted")
        panel.plot(chances, measured, "o", color=COLOURS[1], label="expected target, enumerated")
        panel.set_xlabel("probability of termination")
        panel.set_ylabel("V(0) − V(1)")
        panel.legend()
    return Exhibit(
        title="The mixed terminal cases are exact only for sure termination",
        source="Eq. 20, App. A",
        story=(
            "State 0 terminates with probability p and otherwise stays; state 1 earns less and "
            "stays for ever. Where one successor is terminal, the target estimates its value, 0, "
            "by V(s) − r. That is right where termination is sure (p = 1) and where it never "
            "happens (p = 0); between, the expected target is off by γ p (V(s) − r)."
        ),
        checks=[
            Check(f"p = {chance}: expected target (true: {truth:.4g})", target, prediction)
            for chance, target in zip(chances, measured, strict=True)
            for truth, prediction in [_truth_and_prediction(chance)]
        ],
        picture=to_svg(fig, "True difference and expected target against p, apart between 0 and 1"),
    )


def _truth_and_prediction(chance: float) -> tuple[float, float]:
    """The true difference of both states, and the expected target as it should come out."""
    process = _leaky_process(chance)
    truth = (process.values[0] - process.values[1]).item()
    # The target puts V(s) − r in the place of the terminal value, 0.
    misplaced = process.values[0] - process.reward[0, 0]
    return truth, truth + (GAMMA * chance * misplaced).item()


def _leaky_process(chance: float) -> FiniteProcess:
    """Two states that stay where they are, the first with a chance of termination instead."""
    return FiniteProcess(
        transition=torch.tensor([[[1 - chance, 0.0]], [[0.0, 1.0]]], dtype=torch.float64),
        reward=torch.tensor([[1.0], [0.05]], dtype=torch.float64),
        logits=torch.zeros(2, 1, dtype=torch.float64),
        gamma=GAMMA,
    )
