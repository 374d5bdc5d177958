"""What pictures have in common: neighbours are alike."""

from __future__ import annotations

from torch import Tensor

__all__ = ["total_variation"]

_TINY = 1e-12  # keeps the slope finite where neighbours are equal


def total_variation(pictures: Tensor) -> Tensor:
    """Return the mean absolute difference of neighbours, down and across, rounded off at zero."""
    down, across = pictures.diff(dim=-2), pictures.diff(dim=-1)
    return (down.square() + _TINY).sqrt().mean() + (across.square() + _TINY).sqrt().mean()
