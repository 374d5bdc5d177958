"""Train a torch model that is too long for memory: all parameters, one step of plain SGD a round, in blocks.

The network's weights are views of the peer's own model, which is in a mapped file and is only read. Gradients are
added up in another mapped file, tensor by tensor as the backward pass finds them, over one part of the batch after
another. A process's own memory then holds the activations of one part and the gradient of one tensor; only while the
first weights are made does it hold a whole model, whose memory goes back to the system afterwards.

Peers on one machine can take turns (`turn` names a file they lock), so that only one of them computes at a time, and
only one gradient is on disk.
"""

from __future__ import annotations

import ctypes
import fcntl
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from eris.errors import ConfigError
from eris.local.spec import ModelSpec, Vector, as_vector
from eris.local.task import BlockResult, LocalResult, Memory
from eris.local.torch_examples import Batch, Examples, count_of, tensors_at
from eris.local.torch_examples import mapped as changed
from eris.local.torch_losses import Classification
from eris.local.torch_module import one_thread, spec_of, tensors_of
from eris.local.torch_objective import Objective
from eris.local.torch_work import LocalWork
from eris.seeds import Seed, public_root
from eris.storage.mapped import mapped, release

__all__ = ["LongTorchTask"]

Indices = NDArray[np.int64]

_BLOCK = 1 << 22  # values of the update made at a time
_LOCK = threading.RLock()  # torch has one random generator in a process


class LongTorchTask:
    """An `eris.BlockTask` for torch: trains a network of any length on each member's samples.

    Args:
        factory: builds the network.
        train: the training split.
        members: for each member, the places of its samples in the training split.
        test: the test split.
        work: what a member does in a round; only one plain step is possible.
        objective: loss and metrics; by default those of classification.
        folder: for the gradient's file; by default the system's folder for temporary files.
        turn: a file that the peers of one machine lock in turn.
    """

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        train: Examples,
        members: Sequence[Indices],
        *,
        test: Examples | None = None,
        work: LocalWork | None = None,
        objective: Objective | None = None,
        folder: Path | None = None,
        turn: Path | None = None,
    ) -> None:
        self._factory, self._train, self._test, self._places = factory, train, test, list(members)
        self.work = work or LocalWork()
        self._objective: Objective = objective or Classification()
        self._folder, self._turn_file = folder, turn
        with self._turn():
            self._module = self._built(public_root(0))
            self.spec: ModelSpec = spec_of(self._module)
            _require_plain(self.work, self.spec)
            tensors = tensors_of(self._module)
            trained = [tensor.name for tensor in self.spec.vector_tensors]
            self._parameters = {name: tensors[name] for name in trained}
            for parameter in self._parameters.values():
                _empty(parameter)
            _give_back()

    @property
    def members(self) -> int:
        """Number of members with data."""
        return len(self._places)

    def samples(self, member: int) -> int:
        """Return how many training samples a member has."""
        return len(self._places[member])

    def initial_blocks(self, seed: Seed) -> Iterator[Vector]:
        """Make the initial weights from this seed and yield them tensor by tensor."""
        with self._turn():
            tensors = tensors_of(self._built(seed))
            for name in self._parameters:
                yield tensors[name].detach().reshape(-1).numpy()
                _empty(tensors[name])
            _give_back()

    def initial(self, seed: Seed) -> Vector:
        """Return the same in one piece."""
        return np.concatenate([block.copy() for block in self.initial_blocks(seed)])

    def memory(self, member: int) -> Memory:
        """Keep nothing."""
        del member
        return {}

    def train_blocks(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> BlockResult:
        """Take one step; this peer's turn ends once the last block of the update has been fetched."""
        del memory
        seed = seed.require_private("the choice of batches").child("train", round)
        places = self._places[member]
        if self.work.batch != "full" and self.work.batch < len(places):
            places = places[seed.child("epoch", 0).permutation(len(places))[: self.work.batch]]
        stack = ExitStack()
        stack.enter_context(self._turn())
        gradient = mapped(4 * self.spec.n, self._folder).view(np.float32)
        try:
            loss = self._differentiate(as_vector(model, self.spec.n), places, gradient)
        except BaseException:
            stack.close()
            raise
        return BlockResult(self._blocks(gradient, stack), len(self._places[member]), loss=loss)

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Return the same in one piece."""
        return self.train_blocks(member, model, memory, round=round, seed=seed).whole()

    def score(self, member: int, model: Vector, memory: Memory) -> dict[str, tuple[float, float]]:
        """Return the summed loss on the test split, which all members share, and its size."""
        del member, memory
        count = 0.0 if self._test is None else float(len(self._test))
        return {name: (mean * count, count) for name, mean in self.evaluate(model).items()}

    def evaluate(self, model: Vector) -> dict[str, float]:
        """Return the loss on the test split, part by part."""
        if self._test is None:
            return {}
        count, total = len(self._test), 0.0
        with self._turn(), self._lent(as_vector(model, self.spec.n)), torch.no_grad():
            for share, batch in self._parts(self._test, np.arange(count)):
                total += share * self._objective.loss(self._module, *batch).item()
        return {"loss": total}

    def _differentiate(self, model: Vector, places: Indices, gradient: Vector) -> float:
        """Add the gradient of the mean loss to `gradient` (initially zero), and return the loss."""
        total = 0.0
        with self._lent(model), one_thread():
            for share, batch in self._parts(self._train, places):
                with self._collected(gradient, share):
                    loss = self._objective.loss(self._module, *batch)
                    loss.backward()  # type: ignore[no-untyped-call]
                total += share * loss.item()
        return total

    def _parts(self, examples: Examples, places: Indices) -> Iterator[tuple[float, Batch]]:
        batch = tensors_at(examples, places)
        count, size = count_of(batch), self.work.micro_batch or count_of(batch)
        for start in range(0, count, size):
            inputs, targets = (changed(each, operator.itemgetter(slice(start, start + size))) for each in batch)
            yield (min(start + size, count) - start) / count, (inputs, targets)

    @contextmanager
    def _lent(self, model: Vector) -> Iterator[None]:
        """Make the network's weights views of a model, which is only read."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            for name, parameter in self._parameters.items():
                parameter.data = torch.from_numpy(model[self.spec.slices[name]]).view(parameter.shape)
        try:
            yield
        finally:
            release(model)
            for parameter in self._parameters.values():
                _empty(parameter)
            _give_back()

    @contextmanager
    def _collected(self, gradient: Vector, share: float) -> Iterator[None]:
        """Add each tensor's gradient to its place as soon as it is computed, then free it."""

        def collector(place: slice) -> Callable[[Tensor], None]:
            def collect(parameter: Tensor) -> None:
                assert parameter.grad is not None
                torch.from_numpy(gradient[place]).add_(parameter.grad.reshape(-1), alpha=share)
                parameter.grad = None
                release(gradient[place])

            return collect

        hooks = [
            parameter.register_post_accumulate_grad_hook(collector(self.spec.slices[name]))  # type: ignore[no-untyped-call]
            for name, parameter in self._parameters.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _blocks(self, gradient: Vector, turn: ExitStack) -> Iterator[Vector]:
        with turn:
            for start in range(0, self.spec.n, _BLOCK):
                block = gradient[start : start + _BLOCK]
                yield block * np.float32(self.work.lr)
                release(block)

    def _turn(self) -> AbstractContextManager[None]:
        return nullcontext() if self._turn_file is None else _locked(self._turn_file)

    def _built(self, seed: Seed) -> nn.Module:
        with _LOCK:
            before = torch.get_rng_state()
            torch.default_generator.manual_seed(int.from_bytes(seed.child("weights").key[:8], "little"))
            try:
                return self._factory().float().eval()
            finally:
                torch.set_rng_state(before)


def _require_plain(work: LocalWork, spec: ModelSpec) -> None:
    """Refuse settings that would need further vectors of the model's length."""
    if work.optimizer != "sgd" or work.momentum:
        vectors = 1 if work.optimizer == "sgd" else 2
        what = "momentum" if work.optimizer == "sgd" else work.optimizer
        raise ConfigError(
            f"{what} would keep {vectors * 4 * spec.n / 1e9:.1f} GB per member for a model of {spec.n:,} values",
            fix="use local.optimizer = 'sgd' with local.momentum = 0",
            key="local.optimizer",
        )
    if (work.steps or 1, work.epochs, work.send) != (1, 1, "delta"):
        raise ConfigError(
            "a model in blocks takes one step per round and sends start − end",
            fix="use local.steps = 1, local.epochs = 1, local.send = 'delta'",
            key="local.steps",
        )
    if spec.n_buffer:
        raise ConfigError("a model in blocks cannot have running statistics", fix="freeze them, or use another model")


def _empty(parameter: Tensor) -> None:
    """Free a tensor's memory; it keeps its shape."""
    parameter.data = torch.zeros(1).expand(parameter.shape)


def _give_back() -> None:
    """Return freed memory to the system: the C library would keep a model's worth of tensors of a few megabytes."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # only glibc has it
        library.malloc_trim(0)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
