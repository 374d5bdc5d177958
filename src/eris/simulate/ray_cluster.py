"""Connect to a Ray cluster: an existing one, probed first, or a fresh one on this machine.

Ray waits long and silently for a cluster that does not answer. So a separate process, which can be given up, tries the
address first; and without an address nothing is searched for, because a dead cluster may have left files on the disk.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from eris.errors import ConfigError, MissingExtra

__all__ = ["connected", "imported_ray", "workers_of"]

PATIENCE = 30.0  # seconds in which a cluster must accept a connection
_KEY = "network.ray"
_PORT = 6379  # where `ray start --head` listens
_PROBE = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
ray.shutdown()
"""


def imported_ray() -> Any:
    """Return the library."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "engine = 'ray'") from error
    return ray


def connected(ray: Any, address: str, workers: int, folder: str) -> None:
    """Join the cluster at `address`; if empty, start one here, with `workers` processors (0: all).

    `ray` is the library; `folder`, if any, is sent to every node that works for this run.
    """
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if folder:
        if not Path(folder).is_dir():
            raise ConfigError(f"there is no folder {folder}", fix="give one that exists", key="network.ray_folder")
        options["runtime_env"] = {"working_dir": str(Path(folder).resolve())}
    if address:
        _try(address)
        ray.init(address=address, **options)
    else:
        count = workers or os.cpu_count() or 1
        ray.init(address="local", num_cpus=count, include_dashboard=False, **options)


def workers_of(ray: Any, workers: int, gpus: float) -> int:
    """Return how many workers to start: as many as asked for or, if 0, as many as the cluster has room for.

    Each takes a processor and `gpus` of a GPU.
    """
    there = ray.available_resources()
    room, of = int(there.get("CPU", 0)), "processors"
    if gpus and int(there.get("GPU", 0) / gpus + 1e-9) < room:
        room, of = int(there.get("GPU", 0) / gpus + 1e-9), f"shares of {gpus:g} GPU"
    if room < max(workers, 1):
        raise ConfigError(
            f"the Ray cluster has {room} {of} free, but {max(workers, 1)} workers need one each",
            fix="use fewer workers, add nodes, or wait until some are free (`ray status` shows who has them)",
            key="workers",
        )
    return workers or room


def _try(address: str) -> None:
    """Refuse an address where no cluster of this Ray version accepts a connection, quickly and with the reason."""
    if address != "auto":
        _require_somebody(address)
    command = [sys.executable, "-c", _PROBE, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as probe:
        try:
            said, _ = probe.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            probe.kill()
            said, _ = probe.communicate()
            raise _explained(
                said, address, f"the cluster at {address} did not accept a connection within {PATIENCE:.0f} s"
            ) from None
    if probe.returncode:
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "it ended without a message")
        raise _explained(said, address, f"no cluster at {address}: {last.strip()}")


def _explained(said: str, address: str, otherwise: str) -> ConfigError:
    """Return an error that explains what Ray `said`, or one that says `otherwise`."""
    if "uthentication token" in said:
        return _refused(
            f"the cluster at {address} does not accept this machine's token",
            "set RAY_AUTH_MODE=token, and copy ~/.ray/auth_token from the head's machine",
        )
    if (start := said.lower().rfind("version mismatch")) >= 0:
        told = " ".join(line.strip() for line in said[start:].splitlines()[:5])
        return _refused(told, "install the same Ray and Python on both sides")
    if "ould not find any running Ray instance" in said:
        return _refused("no Ray cluster runs on this machine", "start one with `ray start --head`, or name its address")
    fix = "check with `ray status` on that machine that a Ray head runs there; for a local Ray leave network.ray out"
    return _refused(otherwise, fix)


def _require_somebody(address: str) -> None:
    """Refuse an address at which nobody listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise _refused(f"{address!r} is not an address", f"write host:port (Ray's default port is {_PORT}), or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE / 3).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "no answer"
        raise _refused(
            f"nothing listens at {address}: {why}",
            "start Ray there with `ray start --head`, open the port, or leave network.ray out for a local Ray",
        ) from None


def _refused(what: str, fix: str) -> ConfigError:
    return ConfigError(what, fix=fix, key=_KEY)
