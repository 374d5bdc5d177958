"""Convert Flower's records to named arrays, figures and a member's stored bytes, and back."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.errors import TaskError
from eris.local.spec import Role, Vector

__all__ = [
    "Arrays", "checked", "count_of", "figures_of", "no_float64", "only_arrays", "read_state", "roles", "write_state",
]  # fmt: skip

Arrays = dict[str, NDArray[Any]]

_LOCAL, _COUNTED = "eris.local", "eris.counted"  # records that are kept beside those of the app


def roles(arrays: Arrays) -> dict[str, Role]:
    """Return the roles of arrays that are not trained, found by torch's names or, if there are none, by torch's order.

    A normalisation layer has its mean, its variance and a counter one after another.

    >>> zeros = np.zeros(4, np.float32)
    >>> roles({"0": zeros, "1": zeros, "2": zeros, "3": zeros, "4": np.int64(0)})
    {'2': 'buffer', '3': 'buffer'}
    """
    names = list(arrays)
    roles: dict[str, Role] = {name: "buffer" for name in names if name.endswith(("running_mean", "running_var"))}
    if all(name.isdigit() for name in names):
        for place in range(2, len(names)):
            counter, pair = arrays[names[place]], [arrays[name] for name in names[place - 2 : place]]
            one_layer = pair[0].ndim == 1 and pair[0].shape == pair[1].shape
            if counter.dtype.kind in "iu" and counter.ndim == 0 and one_layer:
                roles |= dict.fromkeys(names[place - 2 : place], "buffer")
    return roles


def only_arrays(content: Any, where: str) -> Arrays:
    """Return the arrays of the one ArrayRecord there is."""
    records = content.array_records
    if len(records) != 1:
        named = f" ({', '.join(records)})" if records else ""
        raise TaskError(
            f"{where} has {len(records)} ArrayRecords{named}, but eris averages exactly one",
            fix="put what is averaged into one, and keep the rest in context.state",
        )
    (record,) = records.values()
    return no_float64({name: array.numpy() for name, array in record.items()}, where)


def no_float64(arrays: Arrays, where: str) -> Arrays:
    """Return the arrays, if rounding them to float32 loses nothing."""
    for name, array in arrays.items():
        if array.dtype.kind not in "iub" and array.dtype.name not in ("float32", "float16"):
            raise TaskError(
                f"array {name!r} of {where} is {array.dtype.name}, but updates are float32",
                fix="make the model float32 in the app: eris does not round silently",
            )
    return arrays


def checked(arrays: Arrays, like: Arrays, where: str) -> Arrays:
    """Return arrays in the model's order; refuse other names or shapes.

    `like` has the model's arrays; errors say that the others come from `where`.
    """
    if set(arrays) != set(like):
        other = sorted(set(arrays) ^ set(like))
        raise TaskError(
            f"{where} does not have the model's arrays: only one side has {', '.join(other[:3])}",
            fix="return all arrays that you received, under the same names",
        )
    for name, array in arrays.items():
        if array.shape != like[name].shape:
            raise TaskError(
                f"array {name!r} of {where} has shape {array.shape}, but the model's is {like[name].shape}",
                fix="keep its shape: a model keeps its shapes for the whole run",
            )
    return {name: arrays[name] for name in like}


def count_of(content: Any, classic: str) -> int:
    """Return the number of examples that an answer reports."""
    for name, record in content.metric_records.items():
        for key in ("num_examples",) if name.startswith(classic) else ("num-examples",):
            if key in record:
                return int(record[key])
    raise TaskError(
        "the answer does not give the number of examples",
        fix='add "num-examples": len(…) to its MetricRecord: it is the member\'s weight',
    )


def figures_of(content: Any) -> dict[str, float]:
    """Return all single numbers of an answer except the count."""
    found: dict[str, float] = {}
    for name, record in (*content.metric_records.items(), *content.config_records.items()):
        if not name.endswith("res.status"):
            found |= {key: float(value) for key, value in record.items() if isinstance(value, int | float)}
    return {key: value for key, value in found.items() if key not in ("num-examples", "num_examples")}


def read_state(room: Vector) -> tuple[Any, Arrays, int]:
    """Return a member's stored context.state, its own counters, and how many examples it had."""
    from flwr.app import RecordDict
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict as Written

    (length,) = struct.unpack_from("<Q", room.data.cast("B"))
    if not length:
        return RecordDict(), {}, 0
    state = recorddict_from_proto(Written.FromString(room.view(np.uint8)[8 : 8 + length].tobytes()))
    kept = {name: array.numpy() for name, array in state.pop(_LOCAL).items()}
    return state, kept, int(state.pop(_COUNTED)["examples"])


def write_state(room: Vector, state: Any, kept: Arrays, count: int) -> None:
    """Write a member's context.state, counters and number of examples into its memory, as bytes.

    Args:
        room: the member's memory.
        kept: arrays that stay with the member.
        count: of its examples.
    """
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
    from flwr.common.serde import recorddict_to_proto

    own = {_LOCAL: ArrayRecord({name: Array(np.asarray(array)) for name, array in kept.items()})}
    whole = RecordDict({**state, **own, _COUNTED: MetricRecord({"examples": count})})
    data = recorddict_to_proto(whole).SerializeToString(deterministic=True)
    if len(data) + 8 > room.nbytes:
        raise TaskError(
            f"context.state takes {len(data):,} bytes, but a member has room for {room.nbytes - 8:,}",
            fix=f"keep less there, or write [tool.eris] state-bytes = {2 * len(data)} in the app's pyproject.toml",
        )
    places = room.view(np.uint8)
    places[:] = 0
    places[:8] = np.frombuffer(struct.pack("<Q", len(data)), np.uint8)
    places[8 : 8 + len(data)] = np.frombuffer(data, np.uint8)
