"""The summary of a run for one peer, in one object."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from eris.events import RunEnded
from eris.peer.node import Node
from eris.privacy.ring_noise import RingNoise, Sum, Worth
from eris.process_facts import peak_memory, versions

__all__ = ["summarise_peer"]


Lines = Sequence[Mapping[str, Any]]


def summarise_peer(node: Node, end: RunEnded, *, rounds: Lines, verdicts: Lines, own_task: str = "") -> dict[str, Any]:
    """Return summary.json of a node that has left. Keys that a simulated run has too mean the same there.

    Args:
        rounds: the lines of metrics.jsonl.
        verdicts: the lines of verdicts.jsonl.
        own_task: where the task was imported from; empty: the configuration describes it.
    """
    config = node.federation.config
    return {
        "method": config.methods[0],
        "peer": node.settings.name,
        "federation": node.federation.digest,
        "ended": end.how,
        "state": end.state.value,
        "rounds": end.rounds,
        "finished": end.finished,
        "seed": config.seed,
        **_trained(node, own_task),
        "members": config.members,
        "aggregators": node.recipe.policy.shards,
        "parameters": node.recipe.spec.n,
        "transforms": node.recipe.describe(),
        "final_accuracy": _last(rounds, "accuracy"),
        "final_loss": _last(rounds, "loss"),
        "bytes": {
            "up_per_member_round": _average([line["bytes_up"]["member"] for line in rounds]),
            "down_per_member_round": _average([line["bytes_down"]["member"] for line in rounds]),
            "total": sum(line["bytes_total"] for line in rounds),
        },
        "links": {
            "dialled": [account.to_dict() for account in node.links.clients.accounts(node.federation.peers)],
            "accepted": [account.to_dict() for account in node.links.server.accounts()],
        },
        "control": asdict(node.line.control.traffic),
        "exposure": {
            "largest_share_per_round": max((line["largest_share"] for line in rounds), default=None),
            "allowed_share": node.settings.floor.share(node.recipe, 0),  # by this member's floor
        },
        "lost_shards": sum(line["lost_shards"] for line in rounds),
        "seconds": end.seconds,
        "peak_memory_bytes": peak_memory(),
        "pid": os.getpid(),
        "versions": versions(),
        "privacy": _privacy(node, verdicts),
        "reproducible": node.reproducible,  # whether this peer's randomness follows from the seed
        **({} if (choice := node.member.replica.choice()) is None else {"choice": asdict(choice)}),
        "notes": list(node.events.notes),
        "model_digest": end.model_digest,
    }


def _trained(node: Node, own_task: str) -> dict[str, str]:
    """Return the model and data that this peer used; with a task of its own, not those of the configuration."""
    config = node.federation.config
    if own_task:
        return {"model": own_task, "data": f"its own data ({node.training.task.samples(node.number):,} samples)"}
    # synthetic data for tests bring their own model
    model = config.data.name if config.data.name.startswith("synthetic-") else config.model.name
    return {"model": model, "data": config.data.name}


def _privacy(node: Node, verdicts: Lines) -> dict[str, Any] | None:
    """Return what the noise is worth to this member, over every round in which it may have sent something."""
    noise, number, open_plan = node.composition.noise, node.number, node.member.plan
    if noise is None:
        return None
    sent = sum(number in line["plan"]["participants"] for line in verdicts)
    sent += max(0, node.member.round - len(verdicts))  # lines that a damaged disk lost count in full
    sent += open_plan is not None and number in open_plan.participants
    sent = max(sent, len(node.member.releases))  # a round played again with another update counts again
    delta = node.federation.config.privacy.delta
    spent = noise.spent(sent, delta)
    said = {**asdict(spent), "noise_multiplier": noise.multiplier, "clip": noise.bound, "text": str(spent)}
    sums = [Sum.of_line(line) for line in verdicts if number in line["plan"]["participants"]]
    if not isinstance(noise, RingNoise) or not sums:
        return said
    masked, values = node.recipe.unmaskers > 0, node.recipe.kept(0).values
    worth = Worth.of(noise, sums, rounds=sent, delta=delta, masked=masked, values=values)
    return {**said, **worth.to_dict(), "text": f"{spent}; {worth}"}


def _last(rounds: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return next((line[key] for line in reversed(rounds) if line.get(key) is not None), None)


def _average(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
