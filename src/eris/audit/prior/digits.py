"""A small generator of handwritten digits: a class and 16 numbers become a picture.

It is the second half of a variational autoencoder that was told the class. It is trained here in minutes, on digits
that no attack is measured on.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.networks import Weights

__all__ = ["DigitAutoencoder", "DigitGenerator"]

_LATENTS, _CLASSES = 16, 10


class _Decoder(nn.Module):
    """From latents and class to a picture of 28 × 28."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_LATENTS + _CLASSES, 64 * 7 * 7)
        self.second = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1)
        self.third = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.last = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return the logits of the pixels."""
        x = torch.cat([latents, functional.one_hot(labels, _CLASSES).to(latents.dtype)], 1)
        x = torch.relu(self.first(x)).view(-1, 64, 7, 7)
        return self.last(torch.relu(self.third(torch.relu(self.second(x)))))  # type: ignore[no-any-return]


class DigitAutoencoder(nn.Module):
    """What is trained: pictures to latents with a spread, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = _Decoder()
        self.look = nn.Sequential(
            nn.Conv2d(1, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.guess = nn.Linear(64 * 7 * 7 + _CLASSES, 2 * _LATENTS)

    def loss(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """Return the negative evidence bound of a batch, for one picture."""
        seen = torch.cat([self.look(pictures), functional.one_hot(labels, _CLASSES).float()], 1)
        mean, spread = self.guess(seen).chunk(2, 1)
        latents = mean + torch.randn_like(mean) * (spread / 2).exp()
        missed = functional.binary_cross_entropy_with_logits(self.decoder(latents, labels), pictures, reduction="sum")
        surprise = 0.5 * (mean.square() + spread.exp() - spread - 1).sum()
        return (missed + surprise) / len(pictures)  # type: ignore[no-any-return]


class DigitGenerator:
    """The trained half, as GGL uses it."""

    latents = _LATENTS

    def __init__(self, weights: Weights) -> None:
        self._decoder = _Decoder().eval().requires_grad_(False)
        self._decoder.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights.items()})

    def __call__(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return a digit in [0, 1] for each row of latents and its class."""
        return torch.sigmoid(self._decoder(latents.float(), labels))
