"""How noisy gradients are: the policy's under each anchor, the critic's with each kind of pairs.

All is measured with the parameters of one trained run, on rollouts that it collects, so that
nothing differs but what is compared.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from relval.critics.base import estimated_constant
from relval.critics.relative import Anchor, RelativeCritic
from relval.experiments.results import write_csv
from relval.ppo import Agent, Collected
from relval.runs import Run, files
from relval.runs import checkpoint as checkpoints
from relval.runs.trainer import Trainer

PAIRS = ("random", "biased", "all")
_ENCODED = 128
"""States that a minibatch encodes, whatever its pairs."""


@dataclass(frozen=True)
class Noise:
    """How far single gradients are from their mean."""

    env: str
    gradient: str
    """The policy's or the critic's."""
    setting: str
    """The anchor, or the kind of pairs."""
    noise_to_signal: float
    """The variance of a gradient, summed over parameters, by the square of the mean's length."""
    constant_mean: float | None = None
    """Of B_t, estimated: the mean over rollouts."""
    constant_spread: float | None = None
    """The same of its spread."""


def measure(run: Run, *, rollouts: int = 50) -> list[Noise]:
    """The noise of the gradients of a trained run.

    That of the policy's is from rollout to rollout, with all transitions in one gradient and
    advantages normalised; that of the critic's from minibatch to minibatch, each with as many
    states encoded.

    Args:
      run: With the relative critic and a linear head.
      rollouts: How many to collect.
    """
    if getattr(run.config.critic, "head", None) != "linear":
        raise ValueError(
            f"{run.folder} was not trained with the relative critic and a linear head, whose "
            "anchors and pairs are compared here"
        )
    if run.config.preferences.comparisons:
        raise ValueError(f"{run.folder} was not trained on the rewards that are collected here")
    if rollouts < 2:
        raise ValueError(f"rollouts must be at least 2, or there is no variance, got {rollouts}")
    agent, collected = _collect(run, rollouts)
    return [
        *(_under_anchor(run, agent, collected, anchor) for anchor in get_args(Anchor)),
        *(_with_pairs(run, agent, collected, pairs) for pairs in PAIRS),
    ]


def write(rows: Iterable[Noise], path: Path) -> None:
    """Writes what was measured, as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, Noise, rows)


def show(rows: Iterable[Noise]) -> None:
    """Prints what was measured."""
    print(f"{'':<20}{'gradient':<10}{'setting':<10}{'noise / signal':>15}{'B_t':>18}")
    for row in rows:
        constant = (
            ""
            if row.constant_mean is None
            else f"{row.constant_mean:.3f} ± {row.constant_spread:.3f}"
        )
        print(
            f"{row.env:<20}{row.gradient:<10}{row.setting:<10}{row.noise_to_signal:>15.3g}"
            f"{constant:>18}"
        )


def _collect(run: Run, rollouts: int) -> tuple[Agent, list[Collected]]:
    newest = checkpoints.load_newest(run.folder / files.CHECKPOINTS)
    if newest is None:
        raise FileNotFoundError(f"{run.folder} has no checkpoint to measure")
    trainer = Trainer(replace(run.config, device="cpu"))
    trainer.restore(newest)
    collector: Any = trainer.collector
    steps, generator = run.config.ppo.steps, trainer.generator
    collected = [collector.collect(trainer.agent, steps, generator) for _ in range(rollouts)]
    trainer.envs.close()
    return trainer.agent, collected


def _under_anchor(run: Run, agent: Agent, collected: Sequence[Collected], anchor: str) -> Noise:
    critic = _otherwise(agent, run.config.critic, anchor=anchor)
    gamma, lam = run.config.ppo.gamma, run.config.ppo.lam
    gradients, constants = [], []
    for rollout in collected:
        advantages = critic.prepare(rollout, gamma=gamma, lam=lam).advantages
        constants.append(estimated_constant(rollout.traj, advantages, gamma=gamma, lam=lam))
        i = rollout.traj.transitions
        outputs = agent.policy(agent.encoder(rollout.observations[i]))
        log_prob = agent.policy.log_prob(outputs, rollout.actions[i])
        loss = -(log_prob * critic.scale(advantages[i])).mean()
        gradients.append(_gradient(loss, [agent.encoder, agent.policy]))
    mean, spread = (
        float(torch.stack([each[f"trajectory_constant_{name}"] for each in constants]).mean())
        for name in ("mean", "spread")
    )
    return Noise(run.config.env, "policy", anchor, noise_to_signal(gradients), mean, spread)


def _with_pairs(run: Run, agent: Agent, collected: Sequence[Collected], pairs: str) -> Noise:
    critic = _otherwise(agent, run.config.critic, pairs=pairs, clip=None)
    size = _ENCODED if pairs == "all" else _ENCODED // 2
    gamma, lam = run.config.ppo.gamma, run.config.ppo.lam

    def gradients() -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        for rollout in collected:
            prepared = critic.prepare(rollout, gamma=gamma, lam=lam)
            for minibatch in critic.minibatches(rollout, prepared, size, generator):
                features = agent.critic_encoder(rollout.observations[minibatch.encode])
                loss = critic.evaluate(prepared, minibatch, features).loss
                yield _gradient(loss, [agent.critic_encoder, critic])

    return Noise(run.config.env, "critic", pairs, noise_to_signal(gradients()))


def _otherwise(agent: Agent, config: Any, **changes: Any) -> RelativeCritic:
    """The agent's critic, with the same parameters, told something else.

    It is also told what all anchors and all kinds of pairs can be used with.
    """
    told = replace(config, **{"partners": "batch", "mask_terminal": True, **changes})
    critic = RelativeCritic(told, agent.critic_encoder.features, 0)
    trained: Any = agent.critic
    critic.head.load_state_dict(trained.head.state_dict())
    return critic


def _gradient(loss: Tensor, modules: Iterable[nn.Module]) -> Tensor:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients])


def noise_to_signal(gradients: Iterable[Tensor]) -> float:
    """The variance of gradients, summed over parameters, by the square of their mean's length.

    The latter is estimated without the mean's own noise; infinite where nothing is left of it.
    """
    count, total, squares = 0, torch.zeros(()), 0.0
    for gradient in gradients:
        count += 1
        total = total + gradient.double()
        squares += float(gradient.double().square().sum())
    length = float((total / count).square().sum())
    variance = (squares - count * length) / (count - 1)
    signal = length - variance / count
    return variance / signal if signal > 0 else float("inf")
