import copy
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from relval.networks import (
    CategoricalPolicy,
    GaussianPolicy,
    NetworkConfig,
    OddHead,
    make_encoder,
    make_policy,
    rows,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator())


def image_space(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


def test_categorical_log_probabilities_and_entropy_are_those_of_torch() -> None:
    policy = CategoricalPolicy(4, 5)
    logits = 3 * random(50, 5)
    truth = torch.distributions.Categorical(logits=logits)
    actions = truth.sample()
    torch.testing.assert_close(policy.log_prob(logits, actions), truth.log_prob(actions))
    torch.testing.assert_close(policy.entropy(logits), truth.entropy())
    torch.testing.assert_close(policy.mode(logits), truth.mode)


def test_gumbel_noise_draws_actions_with_their_probabilities() -> None:
    policy = CategoricalPolicy(4, 4)
    logits = torch.tensor([0.0, 1.0, -2.0, 0.5])
    count = 40_000
    noise = policy.noise(count, generator=generator())
    assert noise.shape == (count, 4)
    drawn = policy.sample(logits.expand(count, 4), noise).bincount(minlength=4)
    expected = count * logits.softmax(-1)
    chi_square = ((drawn - expected).square() / expected).sum()
    assert chi_square < 16.3  # the 99.9 % quantile at three degrees of freedom


def test_gumbel_noise_differs_from_step_to_step_and_from_env_to_env() -> None:
    noise = CategoricalPolicy(4, 3).noise(7, 5, generator=generator())
    assert noise.shape == (7, 5, 3)
    assert len(noise.unique()) == noise.numel()


def test_gaussian_log_densities_and_entropy_are_those_of_torch() -> None:
    policy = GaussianPolicy(4, gym.spaces.Box(-1, 1, (3,), np.float32))
    nn.init.uniform_(policy.log_std, -1, 1)
    outputs = policy(random(50, 4) * 20)
    truth = torch.distributions.Normal(outputs[:, :3], policy.log_std.exp())
    actions = truth.sample()
    torch.testing.assert_close(policy.log_prob(outputs, actions), truth.log_prob(actions).sum(-1))
    torch.testing.assert_close(policy.entropy(outputs), truth.entropy().sum(-1))
    torch.testing.assert_close(policy.mode(outputs), truth.mean)


def test_gaussian_actions_have_the_mean_and_the_spread_of_the_outputs() -> None:
    policy = GaussianPolicy(4, gym.spaces.Box(-1, 1, (2,), np.float32))
    outputs = torch.tensor([1.0, -2.0, 0.5, -1.0])
    noise = policy.noise(40_000, generator=generator())
    drawn = policy.sample(outputs.expand(40_000, 4), noise)
    torch.testing.assert_close(drawn.mean(0), outputs[:2], rtol=0, atol=0.05)
    torch.testing.assert_close(drawn.std(0), outputs[2:].exp(), rtol=0.03, atol=0)


def test_the_spread_of_a_gaussian_policy_learns() -> None:
    policy = GaussianPolicy(4, gym.spaces.Box(-1, 1, (2,), np.float32))
    policy.entropy(policy(random(3, 4))).sum().backward()
    assert policy.log_std.grad is not None
    assert policy.log_std.grad.tolist() == [3.0, 3.0]


def test_continuous_actions_are_clipped_and_shaped_for_the_environment() -> None:
    low, high = np.array([[-1.0], [0.0]]), np.array([[1.0], [0.5]])
    policy = GaussianPolicy(4, gym.spaces.Box(low, high, dtype=np.float64))
    actions = torch.tensor([[-3.0, -3.0], [3.0, 3.0], [0.25, 0.25]])
    expected = [[[-1.0], [0.0]], [[1.0], [0.5]], [[0.25], [0.25]]]
    np.testing.assert_array_equal(policy.to_environment(actions), expected)


def test_discrete_actions_reach_the_environment_unchanged() -> None:
    space: gym.Space[Any] = gym.spaces.Discrete(3)
    policy = make_policy(4, space)
    assert policy.to_environment(torch.tensor([2, 0, 1])).tolist() == [2, 0, 1]


def test_discrete_actions_lie_in_a_space_that_does_not_start_at_zero() -> None:
    space: gym.Space[Any] = gym.spaces.Discrete(3, start=5)
    policy = make_policy(4, space)
    chosen = policy.to_environment(torch.tensor([0, 1, 2]))
    assert all(action in space for action in chosen)


def test_other_action_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="Discrete or Box"):
        make_policy(4, gym.spaces.MultiBinary(3))


@pytest.mark.parametrize(
    ("shape", "features", "convolutions"),
    [((4, 84, 84), 512, 3), ((6, 10, 10), 128, 1), ((7,), 32, 0), ((3, 5), 32, 0)],
)
def test_the_shape_of_observations_chooses_the_encoder(
    shape: tuple[int, ...], features: int, convolutions: int
) -> None:
    encoder = make_encoder(image_space(*shape), NetworkConfig(hidden=(16, 32)))
    assert encoder.features == features
    assert sum(isinstance(layer, nn.Conv2d) for layer in encoder.layers) == convolutions
    assert encoder(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, features)


@pytest.mark.parametrize("shape", [(4, 84, 84), (6, 10, 10), (7,), (96, 96, 3)])
@pytest.mark.parametrize(
    ("high", "dtype", "scale"),
    [(255, np.uint8, 1 / 255), (1, np.uint8, 1.0), (2, np.float32, 1.0)],
)
def test_bytes_are_brought_to_the_unit_interval_and_nothing_else_is(
    shape: tuple[int, ...], high: int, dtype: Any, scale: float
) -> None:
    space = gym.spaces.Box(0, high, shape, dtype)
    encoder = make_encoder(space, NetworkConfig())
    observations = torch.from_numpy(np.stack([space.sample() for _ in range(3)]))
    expected = encoder.layers(observations.float() * scale)
    torch.testing.assert_close(encoder(observations), expected)


@pytest.mark.parametrize("shape", [(4, 84, 84), (6, 10, 10), (7,)])
def test_a_copy_in_bf16_has_the_features_of_an_encoder_that_casts_as_it_goes(
    shape: tuple[int, ...],
) -> None:
    encoder = make_encoder(image_space(*shape), NetworkConfig())
    observations = torch.from_numpy(np.stack([image_space(*shape).sample() for _ in range(3)]))
    encoder.bf16 = True
    before = copy.deepcopy(encoder.state_dict())
    with torch.no_grad():
        features = encoder.in_bf16()(observations)
        assert torch.equal(features, encoder(observations))
        encoder.bf16 = False
        exact = encoder(observations)
    assert features.dtype == torch.float32
    assert 0 < (features - exact).abs().max() < 0.02 * exact.abs().max()
    assert all(torch.equal(before[name], now) for name, now in encoder.state_dict().items())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_rows_are_those_asked_for_in_the_layout_that_they_had(layout: torch.memory_format) -> None:
    images = random(5, 3, 4, 4).contiguous(memory_format=layout)
    numbers = torch.tensor([3, 0, 0])
    found = rows(images, numbers)
    assert torch.equal(found, images[numbers])
    assert found.is_contiguous(memory_format=layout)


@pytest.mark.parametrize(("activation", "kind"), [("tanh", nn.Tanh), ("relu", nn.ReLU)])
def test_the_activation_is_the_one_asked_for(activation: Any, kind: type[nn.Module]) -> None:
    space = gym.spaces.Box(-1, 1, (3,), np.float32)
    encoder = make_encoder(space, NetworkConfig(hidden=(8, 8), activation=activation))
    assert sum(isinstance(layer, kind) for layer in encoder.layers) == 2


def test_observations_in_double_precision_can_be_encoded() -> None:
    """MuJoCo's are; the weights are in single precision."""
    space = gym.spaces.Box(-1, 1, (3,), np.float64)
    encoder = make_encoder(space, NetworkConfig(hidden=(8,)))
    assert encoder(torch.zeros(2, 3, dtype=torch.float64)).shape == (2, 8)


def test_observations_that_form_no_box_are_refused() -> None:
    space: gym.Space[Any] = gym.spaces.Discrete(3)
    with pytest.raises(ValueError, match="must form a Box"):
        make_encoder(space, NetworkConfig())


def test_the_odd_head_is_odd() -> None:
    head = OddHead(6)
    difference = random(20, 6)
    assert torch.equal(head(-difference), -head(difference))
    assert not head(torch.zeros(1, 6)).any()
    assert not torch.allclose(head(2 * difference), 2 * head(difference))


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-1, 1, (5,), np.float32),
        gym.spaces.Box(-1, 1, (5,), np.float64),
        gym.spaces.Box(0, 255, (5,), np.uint8),
    ],
    ids=str,
)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_encoder_on_arrays_is_the_same_function_and_follows_its_weights(
    space: gym.spaces.Box, activation: Literal["tanh", "relu"]
) -> None:
    encoder = make_encoder(space, NetworkConfig(activation=activation))
    on_arrays = encoder.on_arrays()
    batch = np.stack([space.sample() for _ in range(8)])
    for _ in range(2):
        expected = encoder(torch.from_numpy(batch)).detach().numpy()
        np.testing.assert_allclose(on_arrays(batch), expected, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(0.01)
