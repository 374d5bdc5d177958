import pytest
import torch
from torch import nn

from eris.models.lenet import LeNet5


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (1, 29), (2, 14)])
def test_the_moved_filters_are_a_convolution_and_average_pooling(channels, size):
    torch.manual_seed(1)
    network = LeNet5(channels=channels, size=size).double()
    textbook = _of_torch_layers(network)
    x = torch.randn(5, channels, size, size, dtype=torch.float64, requires_grad=True)
    for ours, theirs in zip(_logits_and_slopes(network, x), _logits_and_slopes(textbook, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_the_helper_tensors_are_no_part_of_the_model():
    network = LeNet5()
    assert sum(tensor.numel() for tensor in network.state_dict().values()) == 61_706
    assert [name for name in network.state_dict() if name.startswith("_")] == []


def _of_torch_layers(network: LeNet5) -> nn.Module:
    return nn.Sequential(
        *(network.conv1, nn.ReLU(), nn.AvgPool2d(2)),
        *(network.conv2, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()),
        *(network.fc1, nn.ReLU(), network.fc2, nn.ReLU(), network.fc3),
    )


def _logits_and_slopes(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    logits = network(x)
    return [logits, *torch.autograd.grad(logits.square().sum(), [x, *network.parameters()])]
