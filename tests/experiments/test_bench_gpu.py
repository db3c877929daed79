import pytest
import torch

from relval.experiments.bench import gpu
from relval.ppo import Collector
from relval.runs import configure


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="needs a GPU"):
        gpu.run()


def test_a_plain_loop_is_measured() -> None:
    config = configure("Pong", "relative", ppo={"steps": 8, "minibatch": 8}, envs={"num_envs": 2})
    plain = gpu._Plain(config)
    assert type(plain.collector) is Collector
    speed, update = gpu._measure(plain, updates=2)
    assert plain.step == 5 * 16
    assert plain.envs.closed
    assert 0 < update < 32 / speed
