"""Gradients of single samples, taken together: those of each sample alone, whatever the network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from eris.local.torch_losses import Classification
from eris.local.torch_module import FlatModule
from eris.local.torch_single_gradients import one_sample, single_gradients


class Convolved(nn.Module):
    def __init__(self, *, norm=False, looking=False):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4) if norm else nn.ReLU(), nn.Flatten())
        self.head, self._looking = nn.Linear(4 * 36, 3), looking

    def forward(self, pictures):
        if self._looking and pictures.sum().item() > 1e9:  # vmap cannot follow
            return self.head(self.body(-pictures))
        return self.head(self.body(pictures))


@pytest.mark.parametrize("options", [{}, {"norm": True}, {"looking": True}], ids=["plain", "batch norm", "looking"])
def test_single_gradients_are_those_of_samples_alone(options):
    torch.manual_seed(3)
    flat = FlatModule(Convolved(**options))
    flat.module.eval()
    batch = (torch.randn(7, 1, 8, 8), torch.arange(7) % 3)
    found = torch.cat(list(single_gradients(flat, Classification(), batch)))
    assert found.shape == (7, flat.spec.n_trainable)
    for place, row in enumerate(found):
        flat.differentiate(Classification(), *one_sample(batch, place))
        torch.testing.assert_close(row, flat.flat_gradient[: flat.spec.n_trainable], rtol=1e-5, atol=1e-7)
