import pytest
import torch
from torch import Tensor

import relval.relative as rv


def rollout() -> tuple[rv.Trajectories, Tensor]:
    """A rollout with terminations, truncations and ignored actions, and a score per state."""
    generator = torch.Generator().manual_seed(0)
    steps, envs = 32, 8
    rewards = torch.randn(steps, envs, generator=generator)
    kind = torch.rand(steps, envs, generator=generator)
    terminated, truncated = kind < 0.1, kind > 0.9
    valid = torch.rand(steps, envs, generator=generator) > 0.05
    successor = torch.arange(envs, (steps + 1) * envs).view(steps, envs)
    last_states = (steps + 1) * envs + torch.arange(int(truncated.sum()))
    successor[truncated] = last_states
    traj = rv.Trajectories(rewards, terminated, truncated, successor, valid)
    return traj, torch.randn(traj.num_states, generator=generator)


def everything(traj: rv.Trajectories, scores: Tensor) -> dict[str, Tensor]:
    def odd(a: Tensor, b: Tensor) -> Tensor:
        return (scores[a] - scores[b]).tanh()

    i = traj.transitions
    j = i.flip(0)
    new_scores = (scores[i] + 0.1).requires_grad_()
    loss = rv.all_pairs_loss(new_scores, scores, traj, i, n=5, gamma=0.99)
    old = odd(i, j)
    return {
        "start states": rv.start_states(traj),
        "one-step": rv.one_step_targets(odd, traj, i, j, gamma=0.99),
        "n-step": rv.n_step_targets(odd, traj, i, j, n=5, gamma=0.99),
        "lambda": rv.lambda_targets(odd, traj, i, j, lam=0.95, gamma=0.99),
        "telescoped": rv.telescoped_values(odd, traj),
        "direct": rv.direct_values(odd, traj),
        "ranked": rv.ranked_values(odd, traj),
        "gae": rv.gae(traj, scores, gamma=0.99, lam=0.95),
        "slope": rv.gauge_slope(traj, gamma=0.99, lam=0.95),
        "terminal": rv.terminal_offset(traj, scores, gamma=0.99, decay=0.9),
        "mean": rv.mean_offset(traj, scores, gamma=0.99, lam=0.95),
        "returns": rv.lambda_returns(traj, scores, gamma=0.99, lam=0.95),
        "minvar": rv.minvar_offset(traj, scores, gamma=0.99, lam=0.95),
        "constant": rv.constant_part(traj, traj.rewards, gamma=0.99, lam=0.95),
        "pair loss": rv.pair_loss(old + 1, old, old=old, clip=0.15),
        "all pairs": loss.detach(),
        "all pairs' gradient": torch.autograd.grad(loss, new_scores)[0],
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_numbers_of_the_cpu() -> None:
    traj, scores = rollout()
    fields = (traj.rewards, traj.terminated, traj.truncated, traj.successor, traj.valid)
    there = rv.Trajectories(*(field.cuda() for field in fields))
    expected, actual = everything(traj, scores), everything(there, scores.cuda())
    for name, tensor in expected.items():
        assert actual[name].device.type == "cuda", name
        torch.testing.assert_close(actual[name].cpu(), tensor, rtol=1e-5, atol=1e-5)
    partners = rv.sample_pairs(
        there, there.transitions, same_episode=0.5, generator=torch.Generator("cuda")
    )
    assert bool(there.valid.flatten()[partners].all())


def test_double_precision_is_kept() -> None:
    traj, scores = rollout()
    fields = (traj.terminated, traj.truncated, traj.successor, traj.valid)
    precise = rv.Trajectories(traj.rewards.double(), *fields)
    single, double = everything(traj, scores), everything(precise, scores.double())
    for name, tensor in double.items():
        if tensor.is_floating_point():
            assert tensor.dtype == torch.float64, name
            assert single[name].dtype == torch.float32, name
        torch.testing.assert_close(tensor.float(), single[name].float(), rtol=1e-4, atol=1e-5)
