"""Named tensors ⇄ one flat float32 vector.

Every tensor of a model has a role:

- ``trainable``: moves by training; transforms, compression and the server optimizer act on it
- ``buffer``: a floating statistic such as BatchNorm's mean; plainly averaged, sent dense, bypasses every transform
- ``frozen``: equal everywhere, never sent
- ``local``: stays with its peer (integer counters always do); never sent

The flat vector holds the trainable tensors in the order of the spec, then the buffers. "Spec order" means this order.

>>> spec = ModelSpec.of({"weight": np.ones((2, 3), "float32"), "scale": np.float32(2.0), "steps": np.int64(5)},
...                     roles={"scale": "buffer"})
>>> spec.n, spec.n_trainable, spec.tensor("steps").role
(7, 6, 'local')
>>> vector = spec.flatten({"weight": np.ones((2, 3), "float32"), "scale": np.float32(2.0)})
>>> spec.unflatten(vector)["scale"].shape
()
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from eris.errors import ConfigError, SpecError

__all__ = ["ModelSpec", "Role", "TensorSpec", "Vector", "as_vector"]

Vector = NDArray[np.float32]
Role = Literal["trainable", "buffer", "frozen", "local"]

# float32 holds these without loss; a float64 tensor would be rounded silently, so it is refused instead.
_EXACT_IN_FLOAT32 = ("float32", "float16", "bfloat16")
_COUNTERS = "iub"  # numpy's kinds of integers and booleans


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named tensor: shape, dtype and role."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ModelSpec:
    """The tensors of a model in order, and where each lies in the flat vector."""

    tensors: tuple[TensorSpec, ...]
    base: str = ""  # a digest of the frozen tensors' values, if there are any and they are known

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise SpecError(
                f"tensor names repeat: {sorted({n for n in names if names.count(n) > 1})}", fix="name each tensor once"
            )
        for tensor in self.tensors:
            _check_tensor(tensor)

    @classmethod
    def of(cls, tensors: Mapping[str, Any], *, roles: Mapping[str, Role] | None = None) -> ModelSpec:
        """Describe `tensors`; a role is ``trainable`` unless given, integer and boolean tensors are ``local``."""
        roles = dict(roles or {})
        if unknown := sorted(set(roles) - set(tensors)):
            raise SpecError(
                f"roles are given for tensors that do not exist: {unknown}", fix=f"the tensors are {sorted(tensors)}"
            )
        described = []
        for name, value in tensors.items():
            array = np.asarray(value)
            role = roles.get(name, "local" if array.dtype.kind in _COUNTERS else "trainable")
            described.append(TensorSpec(name, array.shape, array.dtype.name, role))
        return cls(tuple(described))

    @classmethod
    def flat(cls, n: int) -> ModelSpec:
        """Describe a model that is just one vector of n trainable values."""
        return cls((TensorSpec("vector", (n,), "float32", "trainable"),))

    def tensor(self, name: str) -> TensorSpec:
        """Return the tensor of that name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise SpecError(f"no tensor is named {name!r}", fix=f"use one of {[t.name for t in self.tensors]}")

    @cached_property
    def vector_tensors(self) -> tuple[TensorSpec, ...]:
        """The tensors that lie in the flat vector, in its order: trainable ones, then buffers."""
        trainable = [t for t in self.tensors if t.role == "trainable"]
        return tuple(trainable + [t for t in self.tensors if t.role == "buffer"])

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Tensor name → its place in the flat vector."""
        places, start = {}, 0
        for tensor in self.vector_tensors:
            places[tensor.name] = slice(start, start + tensor.size)
            start += tensor.size
        return places

    @cached_property
    def n_trainable(self) -> int:
        """Number of trainable values: the first part of the vector."""
        return sum(t.size for t in self.tensors if t.role == "trainable")

    @cached_property
    def n_buffer(self) -> int:
        """Number of buffer values: the rest of the vector."""
        return sum(t.size for t in self.tensors if t.role == "buffer")

    @property
    def n(self) -> int:
        """Length of the flat vector."""
        return self.n_trainable + self.n_buffer

    @cached_property
    def trainable_sizes(self) -> tuple[int, ...]:
        """Sizes of the trainable tensors in vector order (what a tensor-aware shard plan needs)."""
        return tuple(t.size for t in self.vector_tensors if t.role == "trainable")

    @cached_property
    def digest(self) -> str:
        """A sha256 of names, shapes, dtypes, roles and the base: with equal digests, vectors mean the same."""
        listing: list[Any] = [[t.name, list(t.shape), t.dtype, t.role] for t in self.tensors]
        listing += [self.base] if self.base else []
        return hashlib.sha256(json.dumps(listing, separators=(",", ":")).encode()).hexdigest()

    def flatten(self, tensors: Mapping[str, Any], *, out: Vector | None = None) -> Vector:
        """Copy the trainable and buffer tensors into one float32 vector."""
        if missing := sorted(set(self.slices) - set(tensors)):
            raise SpecError(f"tensors are missing: {missing}", fix="give every trainable and buffer tensor of the spec")
        arrays = {t.name: self._checked(t, tensors[t.name]) for t in self.vector_tensors}
        vector = np.empty(self.n, np.float32) if out is None else as_vector(out, self.n, what="out")
        for name, place in self.slices.items():
            vector[place] = arrays[name].reshape(-1)
        return vector

    def unflatten(self, vector: Vector) -> dict[str, NDArray[Any]]:
        """Return the tensors as views into `vector`, with their shapes (scalars keep shape ``()``)."""
        vector = as_vector(vector, self.n)
        return {t.name: vector[self.slices[t.name]].reshape(t.shape) for t in self.vector_tensors}

    def require_same(self, digest: str, *, where: str, base: str | None = None) -> None:
        """Refuse a peer, file or message made for another spec; say so if only the base differs.

        `digest` and `base` are those of the other side, which errors call `where`.
        """
        if digest == self.digest:
            return
        if base is not None and replace(self, base=base).digest == digest:
            raise SpecError(
                f"{where} has another base model: its frozen tensors have the digest {base[:12] or '(none)'}…, "
                f"those here have {self.base[:12] or '(none)'}…",
                fix="load the same pretrained weights in the same precision on every peer: they are never sent, "
                "and adapters of different bases cannot be averaged",
            )
        raise SpecError(
            f"{where} has model spec {digest[:12]}…, but the one here is {self.digest[:12]}…",
            fix="use the same model, tensor names, shapes, dtypes and roles on every peer",
        )

    def require_noise_is_possible(self) -> None:
        """Refuse noise on a model whose buffers would be sent without it."""
        if self.n_buffer:
            names = [t.name for t in self.tensors if t.role == "buffer"]
            raise ConfigError(
                f"noise is on, but {len(names)} buffers ({', '.join(names[:3])}, …) are sent without noise",
                fix="give them the role 'frozen' or 'local', or use a model without running statistics",
            )

    def _checked(self, tensor: TensorSpec, value: Any) -> NDArray[Any]:
        array = np.asarray(value)
        if array.shape != tensor.shape:
            raise SpecError(f"tensor {tensor.name!r} has shape {array.shape}, but the spec says {tensor.shape}")
        if array.dtype.name not in _EXACT_IN_FLOAT32:
            raise SpecError(
                f"tensor {tensor.name!r} has dtype {array.dtype.name}", fix="cast it to float32 before flattening"
            )
        return array


def _check_tensor(tensor: TensorSpec) -> None:
    if tensor.role not in get_args(Role):
        raise SpecError(f"tensor {tensor.name!r} has role {tensor.role!r}", fix=f"use one of {get_args(Role)}")
    if tensor.role in ("trainable", "buffer") and tensor.dtype not in _EXACT_IN_FLOAT32:
        raise SpecError(
            f"tensor {tensor.name!r} is {tensor.role} but has dtype {tensor.dtype}",
            fix=f"cast it to one of {_EXACT_IN_FLOAT32}, or give it the role 'frozen' or 'local'",
        )


def as_vector(value: Any, n: int, *, what: str = "vector") -> Vector:
    """Return `value` itself if it is a contiguous float32 vector of length n; refuse anything else.

    Errors call it `what`.
    """
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.ndim != 1:
        shape = getattr(value, "shape", None)
        raise SpecError(
            f"{what} is {type(value).__name__} {getattr(value, 'dtype', '')}{shape}", fix="use a 1-d float32 array"
        )
    if value.size != n:
        raise SpecError(f"{what} has {value.size} values, but the spec has {n}")
    if not value.flags.c_contiguous:
        raise SpecError(f"{what} is not contiguous", fix="pass numpy.ascontiguousarray(...)")
    return value
