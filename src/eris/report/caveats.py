"""What the figures do and do not mean, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eris.report.figures import MethodFigures, label_of
from eris.report.results import MethodResult

__all__ = ["caveats", "notes_of", "warnings_of"]

_SHARDED = (
    "Sharded aggregation removes the one party that sees whole updates, and does not change what is learned. "
    "It is not differential privacy: each aggregator still sees its own shard of every member's update in the clear, "
    "colluding aggregators can pool their shards, and what is published says as much about the group as it "
    "would under FedAvg. A partial view can be enough to reconstruct very small batches."
)
_CENTRAL = "With FedAvg the server sees the whole update of every member in every round."
_COMPRESSED = (
    "Compression shrinks what is sent. It lowers what an observer sees in one round, but it is no privacy guarantee: "
    "with shifted compression the references an observer can follow add up over rounds."
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
            rounds = f"{method.faults.fruitless} of {method.rounds} rounds"
            found.append(f"{method.label} lost every shard in {rounds}: its model did not change in them.")
        losses = [loss for loss in method.curve.loss if loss is not None]
        if method.finished and len(losses) > 1 and losses[-1] > losses[0]:
            found.append(f"{method.label} did not converge: its loss rose from {losses[0]:.3g} to {losses[-1]:.3g}.")
    return found


def caveats(results: Sequence[MethodResult], methods: Sequence[MethodFigures]) -> list[str]:
    """Return the statements that apply to these methods."""
    scalars, counts = _side_scalars(results), _values_seen(results)
    names = [method.name.lower() for method in methods]
    sharded = any(
        name.startswith("eris") and method.aggregators != 1 for name, method in zip(names, methods, strict=True)
    )
    statements = [
        (_SHARDED, sharded),
        (_CENTRAL, "fedavg" in names),
        (_COMPRESSED, any("dsc" in name or name in ("soteriafl", "priprune") for name in names)),
        (_OVER_ROUNDS, sharded),
        (_THEOREM.format(", ".join(counts)), bool(counts)),
        (_SIDE_SCALARS.format(" and ".join(scalars)), bool(scalars)),
        (_REPRODUCIBLE, any(result.summary.get("reproducible", True) for result in results)),
        (_ESTIMATED, any(method.distribution_seconds is not None for method in methods)),
        (_ONE_SEED, len(methods) > 1),
    ]
    return [statement for statement, applies in statements if applies]


def _values_seen(results: Sequence[MethodResult]) -> list[str]:
    """Return, for each method, how many values of one member one observer got in all rounds."""
    found = [(label_of(result.name), result.exposure.get("values_over_rounds")) for result in results]
    return [f"{label} {count:,} · C_max" for label, count in found if isinstance(count, int) and count]


def _side_scalars(results: Sequence[MethodResult]) -> list[str]:
    given = [result.exposure.get("side_scalars") for result in results]
    return list(dict.fromkeys(str(name) for names in given if isinstance(names, list) for name in names))
