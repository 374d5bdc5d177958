"""Choose where a process trains: on the processor or on an accelerator.

Aggregation and the server step give the same bits everywhere. Training gives the same bits for one kind of device, one
torch build and one number of threads; another device rounds in another order. So each machine chooses its own
`local.device`, while all peers must agree on `local.precision`, which changes results by more than rounding.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from eris.errors import ConfigError

__all__ = ["BITS", "WORKER", "device_note", "device_of", "devices_there", "make_repeatable", "place"]

BITS = "aggregation is the same everywhere, training for one kind of device, torch build and thread count"
WORKER = "ERIS_WORKER"  # environment variable in which an engine numbers the worker processes of a machine


def place(wanted: str, worker: int, there: Sequence[str]) -> str:
    """Return a worker's device: the one named, or the next in turn of those available.

    Args:
        wanted: a device, a kind of device (cuda), or auto.
        worker: its number.
        there: the machine's devices.

    >>> [place("auto", worker, ["cuda:0", "cuda:1", "cpu"]) for worker in range(3)]
    ['cuda:0', 'cuda:1', 'cuda:0']
    >>> place("cuda:1", 0, ["cuda:0", "cuda:1", "cpu"]), place("auto", 5, ["cpu"]), place("cpu", 1, ["cuda:0", "cpu"])
    ('cuda:1', 'cpu', 'cpu')
    """
    accelerators = [device for device in there if device != "cpu"]
    if wanted == "auto":
        able = accelerators or ["cpu"]
    else:
        able = [device for device in there if wanted in (device, device.partition(":")[0])]
    if not able:
        raise ConfigError(
            f"local.device is {wanted!r}, but this machine only has {', '.join(there)}",
            fix=f"use auto or {' or '.join(there)}",
            key="local.device",
        )
    return able[worker % len(able)]


def device_note(wanted: str) -> str | None:
    """Return what a summary says about the device; None for the processor.

    >>> device_note("cuda")
    'trained with local.device = cuda: the same bits only on the same kind of device'
    """
    if wanted == "cpu":
        return None
    return f"trained with local.device = {wanted}: the same bits only on the same kind of device"


def devices_there() -> list[str]:
    """Return the devices that torch can train on here, accelerators first."""
    import torch

    found = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "cpu"]


def make_repeatable(device: str) -> None:
    """Make a device compute the same bits every time, in true float32; the processor does so anyway."""
    if not device.startswith("cuda"):
        return
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def device_of(wanted: str) -> str:
    """Return the device of this process; torch looks for accelerators only if one is wanted."""
    if wanted == "cpu":
        return wanted
    return place(wanted, int(os.environ.get(WORKER, "0")), devices_there())
