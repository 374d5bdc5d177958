import pytest
import torch

from eris.models.lenet import _halve


@pytest.mark.parametrize("side", [2, 5, 10, 28])
def test_halving_is_average_pooling(side):
    x = torch.randn(3, 2, side, side)
    torch.testing.assert_close(_halve(x), torch.nn.functional.avg_pool2d(x, 2))
