"""What a peer says when it asks to be taken in, read strictly: everybody's roster and book will have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eris.errors import SpecError
from eris.local.spec import ModelSpec, TensorSpec
from eris.protocol.member import NO_REFERENCE
from eris.protocol.strict import a_list, a_number, a_text, a_truth, read

__all__ = ["Wish"]

_HIGHEST_PORT = 65535
_LONGEST_HOST = 255


@dataclass(frozen=True, slots=True)
class Wish:
    """A request to join, or to come back."""

    federation: str  # digest of FEDERATION.toml
    spec: ModelSpec
    weight: float
    organisation: str
    address: tuple[str, int] | None
    initial: str  # digest of x⁰
    fresh: bool  # it was started, and has heard of no round since: all it knows is what it kept
    chain: str  # digest of the last verdict it followed
    private_round: int
    reference_epoch: int
    checkpoints: tuple[int, ...] = ()  # rounds it could go back to

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Wish:
        """Read what came from outside; refuse what is not a request to join."""
        fields = {
            "federation": a_text,
            "spec": _a_spec,
            "weight": _a_weight,
            "organisation": a_text,
            "address": _an_address,
            "initial": a_text,
            "fresh": a_truth,
            "chain": a_text,
            "private_round": a_number,
            "reference_epoch": _an_epoch,
            "checkpoints": a_list(a_number),
        }
        return cls(**read("request to join", data, fields))


def _a_spec(value: object) -> ModelSpec:
    rows = a_list(a_list(lambda item: item))(value)
    try:
        return ModelSpec(tuple(_a_tensor(*row) for row in rows))
    except SpecError as error:
        raise ValueError(str(error)) from None


def _a_tensor(name: object, shape: object, dtype: object, role: object) -> TensorSpec:
    return TensorSpec(a_text(name), a_list(a_number)(shape), a_text(dtype), a_text(role))  # type: ignore[arg-type]


def _a_weight(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(value)
    return float(value)  # its range is the roster's matter


def _an_address(value: object) -> tuple[str, int] | None:
    if value is None:
        return None
    host, port = a_list(lambda item: item)(value)
    if not 1 <= len(a_text(host)) <= _LONGEST_HOST or not 1 <= a_number(port) <= _HIGHEST_PORT:
        raise ValueError(value)
    return a_text(host), a_number(port)


def _an_epoch(value: object) -> int:
    return NO_REFERENCE if value == NO_REFERENCE else a_number(value)
