"""An update that arrives in blocks: each is checked and split into trainable values and buffers as it passes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eris.aggregate.staging import all_finite
from eris.errors import TaskError
from eris.local.spec import ModelSpec, Vector

__all__ = ["BlockUpdate"]


class BlockUpdate:
    """Reads the blocks of an update once, keeping none; the buffers, which are few, are available after the last block.

    >>> update = BlockUpdate(iter([np.float32([1, 2]), np.float32([3])]), ModelSpec.flat(3))
    >>> [(place.start, place.stop, values.tolist()) for place, values in update]
    [(0, 2, [1.0, 2.0]), (2, 3, [3.0])]
    """

    def __init__(self, blocks: Iterator[Vector], spec: ModelSpec) -> None:
        self._blocks, self._spec = blocks, spec
        self.buffers = np.empty(spec.n_buffer, np.float32)

    def __iter__(self) -> Iterator[tuple[slice, Vector]]:
        """Yield the trainable values, each stretch with its place in the vector."""
        start, trainable = 0, self._spec.n_trainable
        for block in self._blocks:
            stop = start + _checked(block).size
            if stop > self._spec.n:
                raise TaskError(f"the update has more than {self._spec.n} values", fix="yield every value once")
            inside = block[: max(0, trainable - start)]
            if inside.size:
                yield slice(start, start + inside.size), inside
            self.buffers[max(0, start - trainable) : max(0, stop - trainable)] = block[inside.size :]
            start = stop
        if start != self._spec.n:
            raise TaskError(f"the update has {start} values, not {self._spec.n}", fix="yield every value once")


def _checked(block: Vector) -> Vector:
    if not isinstance(block, np.ndarray) or block.dtype != np.float32 or block.ndim != 1:
        raise TaskError(f"a block of the update is {getattr(block, 'dtype', type(block))}", fix="yield float32 vectors")
    if not all_finite(block):
        raise TaskError("the update is not finite", fix="look for a diverging loss")
    return block
