"""Encoders, policy heads and critic heads."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from relval._bounds import Widths

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


@dataclass(frozen=True)
class NetworkConfig:
    """What observations become before the heads see them."""

    hidden: Widths = (64, 64)
    """Widths of the layers for vectors, and for all else that is seen as one."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Between the layers for vector observations."""
    shared: bool = True
    """One encoder for policy and critic, as in the paper, or one for each."""


def initialised(layer: Layer, gain: float) -> Layer:
    """The layer with orthogonal weights of the given gain, and no bias."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def channels_last(observations: Tensor) -> Tensor:
    """Images laid out as convolutions want them: a third less time to learn from them, on a CPU."""
    if observations.ndim != 4:
        return observations
    return observations.contiguous(memory_format=torch.channels_last)


def rows(observations: Tensor, numbers: Tensor) -> Tensor:
    """`observations[numbers]`, copied whole; a CPU would copy images channels last byte by byte."""
    if observations.is_contiguous():
        return observations.index_select(0, numbers)
    return observations.movedim(1, -1).index_select(0, numbers).movedim(-1, 1)


class Encoder(nn.Module):
    """From observations `[B, ...]`, as stored, to features `[B, features]`."""

    def __init__(self, layers: nn.Sequential, scale: float, features: int) -> None:
        super().__init__()
        self.layers = layers
        self.scale = scale
        self.features = features
        self.bf16 = False
        """Whether to compute in bfloat16, with parameters and features in full precision."""

    def forward(self, observations: Tensor) -> Tensor:
        """Features of a batch of observations."""
        if not self.bf16:
            return self._through_layers(observations.to(self._first.weight.dtype))
        with torch.autocast(observations.device.type, torch.bfloat16):
            return self._through_layers(observations.to(torch.bfloat16)).float()

    def _through_layers(self, x: Tensor) -> Tensor:
        x = channels_last(x)
        first = self._first
        for layer in self.layers:
            # Without hooks: for a few observations they cost most.
            x = self._scaled(first, x) if layer is first else layer.forward(x)
        return x

    def _scaled(self, layer: nn.Linear | nn.Conv2d, x: Tensor) -> Tensor:
        """A layer on `x` times the scale, which its weights take: they are fewer than pixels."""
        weight = layer.weight if self.scale == 1 else layer.weight * self.scale
        if isinstance(layer, nn.Linear):
            return F.linear(x, weight, layer.bias)
        convolve = _in_blocks if x.is_cuda and layer.kernel_size[0] == 8 else F.conv2d
        return convolve(x, weight, layer.bias, layer.stride[0])

    def in_bf16(self) -> "Encoder":
        """A copy whose weights are bfloat16, for many calls between two steps of learning."""
        encoder = copy.deepcopy(self)
        with torch.no_grad():
            encoder._first.weight.mul_(self.scale)
        encoder.scale = 1.0
        return encoder.bfloat16()

    def on_arrays(self) -> "Callable[[np.ndarray], np.ndarray]":
        """The same function on NumPy arrays, for vector observations; its weights are views.

        For a few small observations PyTorch's cost per call is most of the time; this has a third
        of it. Results agree to rounding.
        """
        layers = [_on_arrays(layer) for layer in self.layers]
        dtype = self._first.weight.detach().numpy().dtype

        def encode(observations: np.ndarray) -> np.ndarray:
            x = observations.astype(dtype, copy=False)
            if self.scale != 1:
                x = x * dtype.type(self.scale)
            for layer in layers:
                x = layer(x)
            return x

        return encode

    @property
    def _first(self) -> nn.Linear | nn.Conv2d:
        return next(layer for layer in self.layers if isinstance(layer, nn.Linear | nn.Conv2d))


def _in_blocks(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """A convolution whose filters are two strides wide, with each stride a pixel of its own.

    The same sums; but few channels become many, which is what tensor cores are made for.
    """
    blocks, filters = F.pixel_unshuffle(x, stride), F.pixel_unshuffle(weight, stride)
    return F.conv2d(channels_last(blocks), channels_last(filters), bias)


def _on_arrays(layer: nn.Module) -> Callable[[np.ndarray], np.ndarray]:
    """One layer as a function of NumPy arrays."""
    match layer:
        case nn.Flatten():
            return lambda x: x.reshape(len(x), -1)
        case nn.Tanh():
            return np.tanh
        case nn.ReLU():
            return lambda x: np.maximum(x, 0)
        case nn.Linear():
            matrix, bias = layer.weight.detach().numpy().T, layer.bias.detach().numpy()
            return lambda x: x @ matrix + bias
    raise NotImplementedError(f"{type(layer).__name__} has no form on arrays")


def make_encoder(space: gym.Space[np.ndarray], config: NetworkConfig) -> Encoder:
    """The encoder that suits an observation space."""
    if not isinstance(space, gym.spaces.Box):
        raise ValueError(
            f"observations must form a Box, got {space}; flatten or one-hot encode them with a "
            "Gymnasium wrapper"
        )
    # Bytes are brought to [0, 1]; other numbers are left as they are.
    scale = 1 / max(1, int(space.high.max())) if space.dtype == np.uint8 else 1.0
    if space.shape == (4, 84, 84):
        return _nature_cnn(scale)
    if len(space.shape) == 3 and space.shape[1:] == (10, 10):
        return _minatar_cnn(space.shape[0], scale)
    return _mlp(math.prod(space.shape), scale, config)


def _nature_cnn(scale: float) -> Encoder:
    """The network of Mnih et al. (2015), on four grey frames."""
    root_2 = math.sqrt(2)
    layers = nn.Sequential(
        initialised(nn.Conv2d(4, 32, 8, stride=4), root_2),
        nn.ReLU(),
        initialised(nn.Conv2d(32, 64, 4, stride=2), root_2),
        nn.ReLU(),
        initialised(nn.Conv2d(64, 64, 3), root_2),
        nn.Flatten(),  # before the ReLU, whose gradient comes in this order
        nn.ReLU(),
        initialised(nn.Linear(64 * 7 * 7, 512), root_2),
        nn.ReLU(),
    )
    return Encoder(layers, scale, features=512)


def _minatar_cnn(channels: int, scale: float) -> Encoder:
    """The network of Young and Tian (2019), on binary planes."""
    layers = nn.Sequential(
        initialised(nn.Conv2d(channels, 16, 3), math.sqrt(2)),
        nn.ReLU(),
        nn.Flatten(),
        initialised(nn.Linear(16 * 8 * 8, 128), math.sqrt(2)),
        nn.ReLU(),
    )
    return Encoder(layers, scale, features=128)


def _mlp(inputs: int, scale: float, config: NetworkConfig) -> Encoder:
    """Layers on all numbers of an observation, whatever its shape."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width in config.hidden:
        layers.append(initialised(nn.Linear(inputs, width), math.sqrt(2)))
        layers.append(nn.Tanh() if config.activation == "tanh" else nn.ReLU())
        inputs = width
    return Encoder(nn.Sequential(*layers), scale, features=inputs)


class Policy(nn.Module):
    """A head whose `outputs` describe a distribution over actions.

    Actions are a function of outputs and noise, so that the noise of a whole rollout can be drawn
    at once.
    """

    outputs: int
    """How many numbers describe one distribution."""
    noise_size: int
    """How many numbers one action is drawn with."""

    def forward(self, features: Tensor) -> Tensor:
        """The outputs for features, `[..., outputs]`."""
        raise NotImplementedError

    def noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Noise for actions, `[*shape, noise_size]`."""
        raise NotImplementedError

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The actions that the noise picks."""
        raise NotImplementedError

    def mode(self, outputs: Tensor) -> Tensor:
        """The likeliest actions."""
        raise NotImplementedError

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probability (density) of each action."""
        raise NotImplementedError

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropy of each distribution."""
        raise NotImplementedError

    def to_environment(self, actions: Tensor) -> np.ndarray:
        """The actions as an environment takes them."""
        return actions.cpu().numpy()


class CategoricalPolicy(Policy):
    """Discrete actions; the outputs are logits. Environments count actions from `start`."""

    def __init__(self, features: int, actions: int, start: int = 0) -> None:
        super().__init__()
        self.outputs = self.noise_size = actions
        self.start = start
        self.head = initialised(nn.Linear(features, actions), 0.01)

    def forward(self, features: Tensor) -> Tensor:
        """Logits, `[..., actions]`."""
        logits: Tensor = self.head(features)
        return logits

    def noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Standard Gumbel noise."""
        noise = torch.empty(*shape, self.noise_size, device=generator.device)
        return -noise.exponential_(generator=generator).log()

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The action whose perturbed logit is the largest."""
        return (outputs + noise).argmax(-1)

    def mode(self, outputs: Tensor) -> Tensor:
        """The action with the largest logit."""
        return outputs.argmax(-1)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probability of each action."""
        return outputs.log_softmax(-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropy in nats."""
        log_probabilities = outputs.log_softmax(-1)
        return -(log_probabilities.exp() * log_probabilities).sum(-1)

    def to_environment(self, actions: Tensor) -> np.ndarray:
        """The actions, counted as the environment counts them."""
        numbers = super().to_environment(actions)
        return numbers + self.start if self.start else numbers


class GaussianPolicy(Policy):
    """Continuous actions, independent and with a spread that does not depend on the state.

    The outputs are means, then log standard deviations. Environments get actions clipped to their
    bounds; learning sees them as they were drawn.
    """

    def __init__(self, features: int, space: gym.spaces.Box) -> None:
        super().__init__()
        self.noise_size = math.prod(space.shape)
        self.outputs = 2 * self.noise_size
        self.shape, self.low, self.high = space.shape, space.low, space.high
        self.head = initialised(nn.Linear(features, self.noise_size), 0.01)
        self.log_std = nn.Parameter(torch.zeros(self.noise_size))

    def forward(self, features: Tensor) -> Tensor:
        """Means and log standard deviations, `[..., 2 * dimensions]`."""
        mean = self.head(features)
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)

    def noise(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Standard normal noise."""
        return torch.randn(*shape, self.noise_size, generator=generator, device=generator.device)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Mean plus noise, scaled."""
        mean, log_std = outputs.chunk(2, -1)
        return mean + log_std.exp() * noise

    def mode(self, outputs: Tensor) -> Tensor:
        """The mean."""
        return outputs.chunk(2, -1)[0]

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-density, summed over dimensions."""
        mean, log_std = outputs.chunk(2, -1)
        z = (actions - mean) / log_std.exp()
        return -(0.5 * z.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Differential entropy in nats."""
        return (outputs.chunk(2, -1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def to_environment(self, actions: Tensor) -> np.ndarray:
        """The actions, clipped to the space's bounds."""
        unbounded = actions.cpu().numpy().reshape(*actions.shape[:-1], *self.shape)
        clipped: np.ndarray = np.clip(unbounded, self.low, self.high)
        return clipped


def make_policy(features: int, space: gym.Space[np.ndarray]) -> Policy:
    """The policy head that suits an action space."""
    if isinstance(space, gym.spaces.Discrete):
        return CategoricalPolicy(features, int(space.n), int(space.start))
    if isinstance(space, gym.spaces.Box):
        return GaussianPolicy(features, space)
    raise ValueError(f"actions must form a Discrete or Box space, got {space}")


def value_head(features: int) -> nn.Linear:
    """One value per state."""
    return initialised(nn.Linear(features, 1), 1.0)


def score_head(features: int) -> nn.Linear:
    """One score per state, of which only differences count, so without a bias (Sec. 5.1)."""
    return initialised(nn.Linear(features, 1, bias=False), 1.0)


class OddHead(nn.Module):
    """An odd function of a difference of features: bias-free layers with tanh (Sec. 5.1)."""

    def __init__(self, features: int, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            initialised(nn.Linear(features, hidden, bias=False), 1.0),
            nn.Tanh(),
            initialised(nn.Linear(hidden, 1, bias=False), 1.0),
        )

    def forward(self, difference: Tensor) -> Tensor:
        """Φ(f(a) − f(b)), `[...]`."""
        result: Tensor = self.layers(difference).squeeze(-1)
        return result


def advantage_head(features: int, actions: int) -> nn.Linear:
    """One raw advantage per action, before centring (DAE)."""
    return initialised(nn.Linear(features, actions), 0.1)
