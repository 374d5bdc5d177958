"""What a peer's stay in a run came to, in one object."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from eris.peer.node import Node

__all__ = ["NOISE_NOTE", "Stay", "summarise_stay"]

NOISE_NOTE = "noise reproducible: no privacy claim"


@dataclass(frozen=True)
class Stay:
    """A node that has left, and what was written down about it."""

    node: Node
    ended: str
    rounds: Sequence[Mapping[str, Any]]  # the lines of metrics.jsonl
    verdicts: Sequence[Mapping[str, Any]]  # the lines of verdicts.jsonl
    seconds: float
    reproducible: bool


def summarise_stay(stay: Stay) -> dict[str, Any]:
    """Return summary.json; keys that a simulated run has too mean the same there."""
    node, rounds = stay.node, stay.rounds
    config = node.federation.config
    return {
        "method": config.methods[0],
        "peer": node.settings.name,
        "federation": node.federation.digest,
        "ended": stay.ended,
        "rounds": node.member.round,
        "finished": node.member.round >= config.rounds,
        "seed": config.seed,
        "members": config.members,
        "aggregators": node.recipe.policy.shards,
        "parameters": node.recipe.spec.n,
        "transforms": node.recipe.chain.describe(),
        "final_accuracy": _last(rounds, "accuracy"),
        "final_loss": _last(rounds, "loss"),
        "bytes": {
            "up_per_member_round": _average([line["bytes_up"]["member"] for line in rounds]),
            "down_per_member_round": _average([line["bytes_down"]["member"] for line in rounds]),
            "total": sum(line["bytes_total"] for line in rounds),
        },
        "links": {
            "dialled": [account.to_dict() for account in node.dialled()],
            "accepted": [account.to_dict() for account in node.accepted()],
        },
        "control": asdict(node.control),
        "exposure": {"largest_share_per_round": max((line["largest_share"] for line in rounds), default=None)},
        "lost_shards": sum(line["lost_shards"] for line in rounds),
        "seconds": stay.seconds,
        "peak_memory_bytes": _peak_memory(),
        "pid": os.getpid(),
        "versions": _versions(),
        "privacy": _privacy(stay),
        "reproducible": stay.reproducible,  # whether this peer's randomness follows from the seed
        "notes": [NOISE_NOTE] if stay.reproducible and node.noise is not None else [],
        "model_digest": node.model_digest(),
    }


def _privacy(stay: Stay) -> dict[str, Any] | None:
    """Return what the noise is worth to this member, for every round it may have sent something in."""
    noise, number, open_plan = stay.node.noise, stay.node.number, stay.node.member.plan
    if noise is None:
        return None
    sent = sum(number in line["plan"]["participants"] for line in stay.verdicts)
    sent += max(0, stay.node.member.round - len(stay.verdicts))  # lines that a damaged disk lost count in full
    sent += open_plan is not None and number in open_plan.participants
    spent = noise.spent(sent, stay.node.federation.config.privacy.delta)
    return {**asdict(spent), "noise_multiplier": noise.multiplier, "clip": noise.bound, "text": str(spent)}


def _last(rounds: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return next((line[key] for line in reversed(rounds) if line.get(key) is not None), None)


def _average(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _versions() -> dict[str, str]:
    found = {}
    for package in ("eris-fl", "numpy", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _peak_memory() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
