"""What the figures do and do not mean, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eris.report.figures import MethodFigures, label_of
from eris.report.results import MethodResult
from eris.report.units import format_counted

__all__ = ["caveats", "notes_of", "warnings_of"]

_SHARDED = (
    "Sharded aggregation removes the one party that sees whole updates, and does not change the model. It is no "
    "privacy guarantee: each aggregator sees its own shard of every member's update in the clear, and one shard tells "
    "about membership what the whole update tells (AUC 0.98 from one of eight, 0.99 from all; docs/audit.md). "
    "Aggregators that collude can pool their shards, what is published says as much about the group as it would under "
    "FedAvg, and a part of an update can be enough to reconstruct small batches."
)
_MASKED = (
    "With masked shards an aggregator sees sums over many members and nobody's own values. Masks leave what the "
    "published mean says about the group (a membership AUC of 0.78 with eight members; docs/audit.md). An aggregator "
    "and its unmasker together see their shard of every member's update, which tells about membership what the whole "
    "update tells, and two sums that differ by one member can expose that member. Nobody can be named for sending "
    "nonsense, and robust rules (median, trimmed mean) are refused."
)
_CENTRAL = "With FedAvg the server sees the whole update of every member in every round."
_COMPRESSED = (
    "Compression shrinks what is sent and hides little: 2.5 % of an update told the audit about membership what all of "
    "it tells (AUC 0.98 and 0.99; docs/audit.md). With shifted compression the references an observer can follow add "
    "up over rounds."
)
_SIDE_SCALARS = (
    "Besides the values, an observer learns {} of the members whose values it sees; shares do not count these."
)
_OVER_ROUNDS = (
    "The share seen over all rounds counts coordinates seen at least once. With a fixed shard plan it stays at one "
    "shard; with a plan that is redrawn or rotated one aggregator sees more of the model over time."
)
_THEOREM = (
    "The paper's Theorem 3.2 bounds what one observer learns of a member, in nats, by the number of values it got "
    "times C_max, what one value can reveal: {}. Read it as a count. It adds up coordinates as if they were "
    "independent given the data, leaves out what is published to everybody, and C_max is infinite where members train "
    "on full batches. What can be learned has to be measured: eris audit."
)
_REPRODUCIBLE = (
    "All randomness of this run, including any noise, follows from its seed, so that its bits can be compared. Such "
    "noise is reproducible, hence no privacy claim is made for it."
)
_ESTIMATED = (
    "The distribution time is an estimate: the bytes of a round over the links of the configuration. No network "
    "was used, and waiting, retries and latency are not in it. Seconds for each stage are what the machine of the run "
    "took to simulate all members, alongside whatever else it was doing."
)
_ONE_SEED = (
    "Only one seed was run, so this run cannot say whether a small difference between methods would hold for another."
)


def notes_of(results: Sequence[MethodResult]) -> list[tuple[str, str]]:
    """Return what the run itself noted, as pairs of (method names, note), each note once."""
    said: dict[str, list[str]] = {}
    for result in results:
        notes = result.summary.get("notes")
        for note in notes if isinstance(notes, list) else ():
            said.setdefault(str(note), []).append(result.name)
        if text := _noise_worth(result):
            said.setdefault(text, []).append(result.name)
        for problem in result.problems:
            said.setdefault(problem, []).append(result.name)
    return [("" if len(names) == len(results) else ", ".join(names), note) for note, names in said.items()]


def _noise_worth(result: MethodResult) -> str:
    """Say what the noise would be worth if it were secret: ε with its δ, its unit and the rounds it is for."""
    privacy = result.summary.get("privacy")
    text = privacy.get("text") if isinstance(privacy, Mapping) else None
    return f"If its noise were secret: {text}" if isinstance(text, str) else ""


def warnings_of(methods: Sequence[MethodFigures]) -> list[str]:
    """Return what a reader must not overlook: rounds in which nothing moved, and a loss that ended above its start."""
    found = []
    for method in methods:
        if method.faults.fruitless:
            rounds = f"{method.faults.fruitless} of {format_counted(method.rounds, 'round')}"
            found.append(f"{method.label} lost every shard in {rounds}: its model did not change in them.")
        losses = [loss for loss in method.curve.loss if loss is not None]
        if method.finished and len(losses) > 1 and losses[-1] > losses[0]:
            found.append(f"{method.label} did not converge: its loss rose from {losses[0]:.3g} to {losses[-1]:.3g}.")
    return found


def caveats(results: Sequence[MethodResult], methods: Sequence[MethodFigures]) -> list[str]:
    """Return the statements that apply to these methods."""
    scalars, counts = _side_scalars(results), _values_seen(results)
    names = [method.name.lower() for method in methods]
    masked = [_is_masked(result) for result in results]
    plain = any(
        name.startswith("eris") and method.aggregators != 1 and not hidden
        for name, method, hidden in zip(names, methods, masked, strict=True)
    )
    statements = [
        (_SHARDED, plain),
        (_MASKED, any(masked)),
        (_CENTRAL, "fedavg" in names),
        (_COMPRESSED, any("dsc" in name or name in ("soteriafl", "priprune") for name in names)),
        (_OVER_ROUNDS, plain),
        (_THEOREM.format(", ".join(counts)), bool(counts)),
        (_SIDE_SCALARS.format(" and ".join(scalars)), bool(scalars)),
        (_REPRODUCIBLE, any(result.summary.get("reproducible", True) for result in results)),
        (_ESTIMATED, any(method.distribution_seconds is not None for method in methods)),
        (_ONE_SEED, len(methods) > 1),
    ]
    return [statement for statement, applies in statements if applies]


def _is_masked(result: MethodResult) -> bool:
    """Return whether a run's shards were masked, by its settings or, where those are missing, by the method's name."""
    privacy = result.config.get("privacy")
    by_settings = isinstance(privacy, Mapping) and privacy.get("masking") == "pairs"
    return by_settings or "masked" in result.name.lower().split("+")


def _values_seen(results: Sequence[MethodResult]) -> list[str]:
    """Return, for each method, how many values of one member one observer got in all rounds."""
    found = [(label_of(result.name), result.exposure.get("values_over_rounds")) for result in results]
    return [f"{label} {count:,} · C_max" for label, count in found if isinstance(count, int) and count]


def _side_scalars(results: Sequence[MethodResult]) -> list[str]:
    given = [result.exposure.get("side_scalars") for result in results]
    return list(dict.fromkeys(str(name) for names in given if isinstance(names, list) for name in names))
