"""Adam over all parameters as one long vector, at a fraction of what it costs layer by layer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Function = Callable[..., Any]
Compiler = Callable[[Function], Function]
"""From a function of tensors to a faster one."""


def as_it_is(function: Function) -> Function:
    """The same function."""
    return function


def make_optimizer(
    module: nn.Module, *, rate: float, eps: float, compiled: Compiler = as_it_is
) -> torch.optim.Adam:
    """Adam over all parameters of a module, laid out in one tensor.

    The parameters become views of it. Filters are laid out channels last, as convolutions want
    them.

    Args:
      module: Whose parameters.
      rate: The learning rate.
      eps: Adam's ε.
      compiled: Makes a function of tensors faster, on a GPU.
    """
    parameters = list(module.parameters())
    flat = nn.Parameter(torch.cat([_as_laid_out(parameter.detach()) for parameter in parameters]))
    for parameter, piece in zip(parameters, _pieces(flat.detach(), parameters), strict=True):
        parameter.data = piece
    if flat.is_cuda:
        return RecordableAdam(flat, rate=rate, eps=eps, compiled=compiled)
    return torch.optim.Adam([flat], lr=rate, eps=eps, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Another learning rate from now on; in place, where steps are recorded."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class RecordableAdam(torch.optim.Adam):
    """Adam of one parameter, where all that changes is a tensor, so that steps can be replayed."""

    def __init__(
        self, flat: nn.Parameter, *, rate: float, eps: float, compiled: Compiler = as_it_is
    ) -> None:
        rates = torch.tensor(rate, device=flat.device)
        super().__init__([flat], lr=rates, eps=eps, capturable=True)
        self._advance = compiled(_adam)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """A step along the gradient."""
        (group,) = self.param_groups
        (flat,) = group["params"]
        state = self.state[flat]
        if not state:
            state["step"] = torch.zeros((), device=flat.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(flat), torch.zeros_like(flat)
        moments = state["exp_avg"], state["exp_avg_sq"], state["step"]
        self._advance(flat, flat.grad, *moments, group["lr"], *group["betas"], group["eps"])


def _adam(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    step: Tensor,
    rate: Tensor,
    beta: float,
    beta_square: float,
    eps: float,
) -> None:
    """Kingma and Ba (2015), Algorithm 1, in place."""
    step.add_(1)
    mean.lerp_(gradient, 1 - beta)
    square.mul_(beta_square).addcmul_(gradient, gradient, value=1 - beta_square)
    spread = (square / (1 - beta_square**step)).sqrt() + eps
    parameter.sub_(rate / (1 - beta**step) * mean / spread)


def shortened(gradients: Sequence[Tensor], longest: float | None) -> tuple[Tensor, Tensor]:
    """The gradient of all parameters as one vector, cut to a length, and its length before."""
    flat = torch.cat([_as_laid_out(gradient) for gradient in gradients])
    norm: Tensor = flat.norm()
    if longest is not None:
        flat = flat * (longest / (norm + 1e-6)).clamp(max=1.0)
    return flat, norm


def descend(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], gradient: Tensor
) -> None:
    """A step of the optimiser, which may hold the parameters or the vector that they lie in."""
    whole, *others = optimizer.param_groups[0]["params"]
    if not others and whole.shape == gradient.shape:
        whole.grad = gradient
    else:
        for parameter, piece in zip(parameters, _pieces(gradient, parameters), strict=True):
            parameter.grad = piece
    optimizer.step()


def _as_laid_out(parameter: Tensor) -> Tensor:
    """A parameter or its gradient as a vector; filters channels last."""
    return (parameter.permute(0, 2, 3, 1) if parameter.ndim == 4 else parameter).flatten()


def _pieces(flat: Tensor, parameters: Sequence[Tensor]) -> Iterator[Tensor]:
    """Views of a vector in the shapes of parameters, laid out as `_as_laid_out` does."""
    for piece, parameter in zip(
        flat.split([parameter.numel() for parameter in parameters]), parameters, strict=True
    ):
        if parameter.ndim == 4:
            filters, channels, height, width = parameter.shape
            yield piece.view(filters, height, width, channels).permute(0, 3, 1, 2)
        else:
            yield piece.view(parameter.shape)
