"""The summary of a run, in one object."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from eris.compose import Composition
from eris.config import MOST_AGGREGATORS, Config
from eris.local.devices import device_note
from eris.privacy.ring_noise import RingNoise, Sum, Worth
from eris.process_facts import versions
from eris.protocol.best_round import Choice
from eris.simulate.run_folder import RunFolder

__all__ = ["failed_summary", "notes_of", "summarise"]

NOISE_NOTE = "noise reproducible: no privacy claim"
_LOWER = "lower local.lr"
_QUIETER = "lower privacy.noise_multiplier or raise privacy.epsilon, or lower local.lr"
COHORT_NOTE = "trained in vectorised cohorts: equal to real peers up to rounding, not to the bit"


def summarise(
    composition: Composition,
    rounds: Sequence[Mapping[str, Any]],
    *,
    digest: str,
    seconds: float,
    exposure: Mapping[str, Any],
    peak_memory: int,
    versions: Mapping[str, str],
    choice: Choice | None = None,
    verdicts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the contents of summary.json.

    Args:
        composition: the method as it ran.
        rounds: the lines of metrics.jsonl.
        digest: of the model that is the result.
        seconds: how long the run took.
        exposure: the ledger's summary.
        peak_memory: bytes, of all processes together.
        versions: of what matters for reproducing the run.
        choice: what the members' figures decided, where they share any.
        verdicts: the lines of verdicts.jsonl, for the sums that noise was in.
    """
    config, best = composition.config, _best(rounds)
    return {
        "method": composition.method.name,
        "rounds": len(rounds),
        "finished": len(rounds) >= config.rounds or (choice is not None and choice.stopped),
        "seed": config.seed,
        "members": config.members,
        "aggregators": composition.recipe.policy.shards,
        "parameters": composition.recipe.spec.n,
        "transforms": composition.recipe.describe(),
        "final_accuracy": _last(rounds, "accuracy"),
        "final_loss": _last(rounds, "loss"),
        "best_accuracy": best.get("accuracy") if best else None,
        "best_round": best.get("round") if best else None,
        "bytes": {
            "up_per_member_round": _mean(rounds, "bytes_up"),
            "down_per_member_round": _mean(rounds, "bytes_down"),
            "total": sum(line["bytes_total"] for line in rounds),
        },
        "distribution_seconds": _average([line["distribution_seconds"] for line in rounds]),
        "virtual_round_seconds": _average([line["virtual_round_seconds"] for line in rounds]),
        "exposure": {key: exposure[key] for key in ("largest_share_per_round", "union_over_rounds") if key in exposure},
        "lost_shards": sum(line["lost_shards"] for line in rounds),
        "seconds": seconds,
        "peak_memory_bytes": peak_memory,  # all processes together; what they share counts in each
        "versions": dict(versions),
        "privacy": _privacy(composition, len(rounds), verdicts),
        "cohort": config.local.cohort,
        **({} if choice is None else {"choice": asdict(choice)}),
        "notes": [*notes_of(composition), *_what_went_wrong(composition, rounds), *([str(choice)] if choice else [])],
        "model_digest": digest,
    }


def failed_summary(composition: Composition, folder: RunFolder, error: BaseException) -> dict[str, Any]:
    """Return the summary of a method that failed, up to where it failed: it has a reason and no model."""
    rounds, why = folder.rounds(), str(error) or type(error).__name__
    verdicts = folder.verdicts() if composition.recipe.noise is not None else ()
    nothing: dict[str, Any] = {"digest": "", "seconds": 0.0, "exposure": {}, "peak_memory": 0}
    summary = summarise(composition, rounds, **nothing, versions=versions(), verdicts=verdicts)
    notes = [f"{composition.method.name} failed after {len(rounds)} rounds: {why}", *notes_of(composition)]
    return {**summary, "finished": False, "failed": why, "notes": notes}


def notes_of(composition: Composition) -> tuple[str, ...]:
    """Return the notes that must appear wherever the run is shown."""
    notes: tuple[str, ...] = (NOISE_NOTE,) if composition.noise is not None else ()
    if (note := device_note(composition.config.local.device)) is not None:
        notes += (note,)
    members, shards = composition.config.members, composition.recipe.policy.shards
    if members > MOST_AGGREGATORS == shards:
        notes += (
            f"{shards} of {members:,} members aggregate, which is the default; `aggregators` sets another number",
        )
    return (*notes, COHORT_NOTE) if composition.config.local.cohort > 1 else notes


def _what_went_wrong(composition: Composition, rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return warnings about a finished run whose result must not be trusted."""
    name, shards = composition.method.name, composition.recipe.policy.shards
    broken = [line for line in rounds if line.get("not_finite")]
    still = [line for line in rounds if shards and line["lost_shards"] == shards]
    losses = [line["loss"] for line in rounds if "loss" in line]
    helps = _LOWER if composition.noise is None else _QUIETER  # under noise the rate alone is not to blame
    if still:
        lost = f"{name}: all {shards} shards were lost" if shards > 1 else f"{name}: the one shard was lost"
        why = _why_lost(composition.config, any(line.get("not_finite") for line in still), helps)
        return [f"{lost} in {len(still)} of {len(rounds)} rounds, and the model stood still: {why}"]
    if broken:
        return [f"{name}: updates were not finite in {len(broken)} of {len(rounds)} rounds: {helps}"]
    if losses and losses[-1] is None:
        return [f"{name}: the loss of the last evaluation is not a finite number: {helps}"]
    return []


def _why_lost(config: Config, broken: bool, helps: str) -> str:
    """Return the most likely cause of a round without a result, and what helps (`helps`, if values were `broken`)."""
    if broken:
        return f"updates were not finite; {helps}"
    if config.network.deadline:
        return "too few members trained and sent by network.deadline; raise it, or lower network.compute"
    if config.faults.aggregator_dropout or config.faults.link_failure:
        return "the simulated faults left too few contributions"
    return "fewer than server.min_contributors reached them"


def _privacy(composition: Composition, rounds: int, verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return what the noise would be worth if it were secret, for a member that took part in every round.

    `verdicts` say which sums were published, where noise is added to these.
    """
    noise = composition.noise
    if noise is None:
        return None
    delta = composition.config.privacy.delta
    spent, of_one = noise.spent(rounds, delta), noise.spent(1, delta)
    said = {
        **asdict(spent),
        "noise_multiplier": noise.multiplier,
        "clip": noise.bound,
        "text": str(spent),
        "per_round": {**asdict(of_one), "text": str(of_one)},
    }
    if not isinstance(noise, RingNoise) or not verdicts:
        return said
    sums, recipe = [Sum.of_line(line) for line in verdicts], composition.recipe
    masked, values = recipe.unmaskers > 0, recipe.kept(0).values
    worth = Worth.of(noise, sums, rounds=rounds, delta=delta, masked=masked, values=values)
    return {**said, **worth.to_dict(), "text": f"{spent}; {worth}"}


def _best(rounds: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the round with the least validation loss, or test loss where nothing was held out."""

    def loss(line: Mapping[str, Any]) -> float:
        value = line.get("validation_loss", line.get("loss"))
        return math.inf if value is None else float(value)

    evaluated = [line for line in rounds if loss(line) < math.inf]
    return min(evaluated, key=loss) if evaluated else None


def _last(rounds: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return a figure of the last round that was evaluated; None also if it is not a number."""
    return next((line[key] for line in reversed(rounds) if key in line), None)


def _mean(rounds: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return _average([line[key]["member"] for line in rounds])


def _average(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
