"""Random rollouts and critics for property tests."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from relval.relative import Delta, LinearDelta, Trajectories
from tests.relative.reference import Difference

discounts = st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0])
quarters = st.integers(-8, 8).map(lambda x: x / 4)


@st.composite
def trajectories(
    draw: st.DrawFn,
    endings: tuple[str, ...] = ("goes on", "goes on", "terminated", "truncated"),
    max_steps: int = 7,
    max_envs: int = 3,
) -> Trajectories:
    """Rollouts under either kind of auto-reset, ended in the ways that `endings` names.

    Same-step auto-reset appends the last states of truncated episodes behind the grid; next-step
    auto-reset keeps them in the next row, whose action is then ignored.
    """
    steps = draw(st.integers(1, max_steps))
    envs = draw(st.integers(1, max_envs))
    next_step = draw(st.booleans())
    rewards = torch.zeros(steps, envs, dtype=torch.float64)
    terminated = torch.zeros(steps, envs, dtype=torch.bool)
    truncated = torch.zeros(steps, envs, dtype=torch.bool)
    valid = torch.ones(steps, envs, dtype=torch.bool)
    successor = torch.arange(envs, (steps + 1) * envs).view(steps, envs)
    appended = (steps + 1) * envs
    for n in range(envs):
        ignored = next_step and draw(st.booleans())
        for t in range(steps):
            valid[t, n] = not ignored
            rewards[t, n] = draw(quarters)
            ending = "goes on" if ignored else draw(st.sampled_from(endings))
            terminated[t, n] = ending == "terminated"
            truncated[t, n] = ending == "truncated"
            if ending == "truncated" and not next_step:
                successor[t, n] = appended
                appended += 1
            ignored = next_step and ending != "goes on"
    return Trajectories(rewards, terminated, truncated, successor, valid)


unending = trajectories(endings=("goes on",))


def random_scores(traj: Trajectories, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(traj.num_states, dtype=torch.float64, generator=generator)


def odd_head(traj: Trajectories, seed: int = 0) -> Delta:
    """A non-linear antisymmetric critic: an odd function of the difference of embeddings."""
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(traj.num_states, 3, dtype=torch.float64, generator=generator)
    weight = torch.randn(3, dtype=torch.float64, generator=generator)

    def delta(a: Tensor, b: Tensor) -> Tensor:
        return torch.tanh(embedding[a] - embedding[b]) @ weight

    return delta


def critics(traj: Trajectories) -> list[Delta]:
    return [LinearDelta(random_scores(traj)), odd_head(traj)]


def pointwise(delta: Delta) -> Difference:
    """The critic as the reference calls it, with one pair of numbers at a time."""
    return lambda a, b: float(delta(torch.tensor(a), torch.tensor(b)))


def all_pairs(traj: Trajectories) -> tuple[Tensor, Tensor]:
    valid = traj.transitions
    i, j = torch.meshgrid(valid, valid, indexing="ij")
    return i, j


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Equal but for rounding: closer than a slip into float32 would leave them."""
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
