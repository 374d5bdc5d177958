"""Every number the report shows, in one plain value for each method.

Table, headline and plots read these and nothing else, and the page embeds them: so whatever is shown can be checked
against the files of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eris.errors import ErisError
from eris.methods import METHODS
from eris.report.faults import FaultRecord, faults_of
from eris.report.results import MethodResult, number

__all__ = ["MethodFigures", "RoundCurve", "figures_of", "label_of"]


@dataclass(frozen=True)
class RoundCurve:
    """What was measured round by round; a value that a round did not give is None."""

    round: list[int] = field(default_factory=list)
    accuracy: list[float | None] = field(default_factory=list)
    loss: list[float | None] = field(default_factory=list)
    validation_loss: list[float | None] = field(default_factory=list)
    gradient_norm_squared: list[float | None] = field(default_factory=list)
    uploaded: list[float | None] = field(default_factory=list)  # bytes a member has sent up to and with this round


@dataclass(frozen=True)
class MethodFigures:
    """One method in numbers: units are bytes, seconds and shares of one."""

    name: str
    label: str
    finished: bool
    rounds: int  # done
    rounds_planned: int | None
    seed: int | None
    parameters: int | None
    transforms: str
    members: int | None
    aggregators: int | None
    final_accuracy: float | None
    best_accuracy: float | None
    best_round: int | None
    upload: float | None  # of a member in a round
    download: float | None
    largest_share: float | None  # of an update, that any one observer saw in a round
    union_share: float | None  # of the coordinates, that any one observer saw over all rounds
    allowed_share: float | None  # of an update, by the floor of the peer whose run it is
    published_share: float | None  # of an update, that the published means gave to everybody
    distribution_seconds: float | None
    link_rate: float | None  # bytes a second, if all links have the same
    seconds: float | None
    peak_memory_bytes: float | None
    model_digest: str
    curve: RoundCurve
    bytes_per_role: dict[str, dict[str, float]]  # "up" and "down" → role → mean of a peer and round
    stage_seconds: dict[str, float]  # stage → sum over the run
    per_class: list[float | None]  # accuracy of each class in the last round that gives it
    faults: FaultRecord
    failed: str = ""  # why the method could not go on


def label_of(name: str) -> str:
    """Return a method's name as papers spell it; other names stay as they are.

    >>> label_of("eris+dsc"), label_of("mine")
    ('ERIS+DSC', 'mine')
    """
    try:
        known = METHODS.get(name.lower())
    except ErisError:  # a package that no longer loads must not prevent the report
        known = None
    return known.label if known and known.label else name


def figures_of(result: MethodResult) -> MethodFigures:
    """Gather one method's numbers: from the summary where it has them, else from the rounds that are done."""
    summary, curve = result.summary, _curve(result.rounds)
    planned = _whole(result.config, "rounds")
    done = len(curve.round) or _whole(summary, "rounds") or 0
    return MethodFigures(
        name=result.name,
        label=label_of(result.name),
        finished=_finished(summary, done, planned),
        rounds=done,
        rounds_planned=planned or _whole(summary, "rounds"),
        seed=_first_whole(summary, result.config, "seed"),
        parameters=_whole(summary, "parameters"),
        transforms=str(summary.get("transforms") or ""),
        members=_first_whole(summary, result.config, "members"),
        aggregators=_first_whole(summary, result.config, "aggregators"),
        final_accuracy=_or(number(summary, "final_accuracy"), _last(curve.accuracy)),
        best_accuracy=number(summary, "best_accuracy"),
        best_round=_whole(summary, "best_round"),
        upload=_or(number(summary, "bytes.up_per_member_round"), _mean_of(result.rounds, "bytes_up.member")),
        download=_or(number(summary, "bytes.down_per_member_round"), _mean_of(result.rounds, "bytes_down.member")),
        largest_share=number(summary, "exposure.largest_share_per_round") if done else None,  # nobody looked yet
        union_share=number(summary, "exposure.union_over_rounds") if done else None,
        allowed_share=number(summary, "exposure.allowed_share"),
        published_share=number(result.exposure, "published_share_per_round"),
        distribution_seconds=number(summary, "distribution_seconds"),
        link_rate=_link_rate(result.config),
        seconds=number(summary, "seconds"),
        peak_memory_bytes=number(summary, "peak_memory_bytes"),
        model_digest=str(summary.get("model_digest") or ""),
        curve=curve,
        bytes_per_role={way: _means_under(result.rounds, f"bytes_{way}") for way in ("up", "down")},
        stage_seconds=_stages(_sums_under(result.rounds, "seconds")),
        per_class=_per_class(result.rounds),
        faults=faults_of(result.verdicts),
        failed=str(summary.get("failed") or ""),
    )


def _finished(summary: Mapping[str, Any], done: int, planned: int | None) -> bool:
    if not summary or summary.get("finished") is False:
        return False
    choice = summary.get("choice")
    return planned is None or done >= planned or (isinstance(choice, Mapping) and choice.get("stopped") is True)


def _link_rate(config: Mapping[str, Any]) -> float | None:
    up, down = number(config, "network.up"), number(config, "network.down")
    return up if up == down and not number(config, "faults.slow_members") else None


def _curve(rounds: tuple[Mapping[str, Any], ...]) -> RoundCurve:
    curve, uploaded = RoundCurve(), 0.0
    for line in rounds:
        sent = number(line, "bytes_up.member")
        uploaded += sent or 0.0
        curve.round.append(int(line["round"]))
        curve.accuracy.append(number(line, "accuracy"))
        curve.loss.append(number(line, "loss"))
        curve.validation_loss.append(number(line, "validation_loss"))
        curve.gradient_norm_squared.append(number(line, "gradient_norm_squared"))
        curve.uploaded.append(None if sent is None and uploaded == 0 else uploaded)
    return curve


def _per_class(rounds: tuple[Mapping[str, Any], ...]) -> list[float | None]:
    for line in reversed(rounds):
        values = line.get("per_class")
        if isinstance(values, Mapping):  # class → accuracy
            values = list(values.values())
        if isinstance(values, list) and values:
            return [number({"value": value}, "value") for value in values]
    return []


def _numbers_under(rounds: tuple[Mapping[str, Any], ...], key: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for line in rounds:
        part = line.get(key)
        for name in part if isinstance(part, Mapping) else ():
            value = number(part, name)
            if value is not None:
                found.setdefault(str(name), []).append(value)
    return found


def _means_under(rounds: tuple[Mapping[str, Any], ...], key: str) -> dict[str, float]:
    return {name: math.fsum(values) / len(values) for name, values in _numbers_under(rounds, key).items()}


def _sums_under(rounds: tuple[Mapping[str, Any], ...], key: str) -> dict[str, float]:
    return {name: math.fsum(values) for name, values in _numbers_under(rounds, key).items()}


def _stages(seconds: dict[str, float]) -> dict[str, float]:
    """Return the stages without their sum, which a peer writes down beside them."""
    stages = {name: took for name, took in seconds.items() if name != "round"}
    return stages or seconds


def _mean_of(rounds: tuple[Mapping[str, Any], ...], path: str) -> float | None:
    values = [value for line in rounds if (value := number(line, path)) is not None]
    return math.fsum(values) / len(values) if values else None


def _or(value: float | None, other: float | None) -> float | None:
    return other if value is None else value


def _last(values: list[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _whole(data: Mapping[str, Any], path: str) -> int | None:
    value = number(data, path)
    return None if value is None else int(value)


def _first_whole(first: Mapping[str, Any], second: Mapping[str, Any], path: str) -> int | None:
    value = _whole(first, path)
    return _whole(second, path) if value is None else value
