import pytest
import torch
from torch import nn

from eris.models.lenet import LeNet5


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (1, 29), (2, 14)])
def test_it_is_the_textbook_network_to_the_bit(channels, size):
    torch.manual_seed(1)
    network = LeNet5(channels=channels, size=size)
    textbook = _textbook(network)
    x = torch.randn(5, channels, size, size, requires_grad=True)
    for ours, theirs in zip(_logits_and_slopes(network, x), _logits_and_slopes(textbook, x), strict=True):
        assert torch.equal(ours, theirs)


def test_its_parameters_are_those_of_five_layers():
    network = LeNet5()
    names = [f"{layer}.{kind}" for layer in ("conv1", "conv2", "fc1", "fc2", "fc3") for kind in ("weight", "bias")]
    assert list(network.state_dict()) == names
    assert sum(tensor.numel() for tensor in network.state_dict().values()) == 61_706
    assert list(network.buffers()) == []


def _textbook(network: LeNet5) -> nn.Module:
    return nn.Sequential(
        *(network.conv1, nn.ReLU(), nn.AvgPool2d(2)),
        *(network.conv2, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()),
        *(network.fc1, nn.ReLU(), network.fc2, nn.ReLU(), network.fc3),
    )


def _logits_and_slopes(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    logits = network(x)
    return [logits, *torch.autograd.grad(logits.square().sum(), [x, *network.parameters()])]
