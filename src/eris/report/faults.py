"""What went wrong in which round, read from the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eris.report.results import number

__all__ = ["FaultRecord", "LostShard", "faults_of"]


@dataclass(frozen=True, slots=True)
class LostShard:
    """A shard whose coordinates stayed where they were in that round."""

    round: int
    shard: int
    aggregator: int | None
    reason: str


@dataclass(frozen=True)
class FaultRecord:
    """Lost shards, and shards committed without all members that took part.

    A verdict names the contributors of each shard only: who took part in a round is whoever contributed to any shard
    of it, unless the plan beside the verdict says more.
    """

    verdicts: int = 0
    rounds: tuple[int, int] = (0, 0)  # the first and the last with a verdict
    shards: int = 0  # the most any round had
    lost: list[LostShard] = field(default_factory=list)
    incomplete: list[tuple[int, int, int]] = field(default_factory=list)  # round, shard, members missing
    late: dict[int, int] = field(default_factory=dict)  # peer → rounds in which it reported too late

    @property
    def any(self) -> bool:
        """Whether there is something to show."""
        return bool(self.lost or self.incomplete or self.late)

    @property
    def fruitless(self) -> int:
        """How many rounds lost every shard, so that nothing moved in them."""
        lost = Counter(entry.round for entry in self.lost)
        return sum(count >= self.shards for count in lost.values())

    @property
    def reasons(self) -> dict[str, int]:
        """How many shards were lost for which reason, the most frequent first."""
        return dict(Counter(entry.reason for entry in self.lost).most_common())


def faults_of(verdicts: Iterable[Mapping[str, Any]]) -> FaultRecord:
    """Gather what the verdicts say; a line may be a verdict, or hold one beside its plan."""
    lost: list[LostShard] = []
    incomplete: list[tuple[int, int, int]] = []
    late: Counter[int] = Counter()
    rounds: list[int] = []
    most = 0
    for line in verdicts:
        verdict = line["verdict"] if isinstance(line.get("verdict"), Mapping) else line
        entries = [entry for entry in _list(verdict, "shards") if isinstance(entry, Mapping)]
        position = int(number(verdict, "round") or 0)
        rounds.append(position)
        most = max(most, len(entries))
        present = _peers(line.get("plan"), "participants").union(*(_peers(entry, "contributors") for entry in entries))
        late.update(_peers(verdict, "late"))
        for entry in entries:
            shard = int(number(entry, "shard") or 0)
            missing = len(present - _peers(entry, "contributors"))
            if entry.get("lost"):
                aggregator = number(entry, "aggregator")
                owner = None if aggregator is None else int(aggregator)
                lost.append(LostShard(position, shard, owner, str(entry["lost"])))
            elif missing:
                incomplete.append((position, shard, missing))
    return FaultRecord(
        len(rounds), (min(rounds, default=0), max(rounds, default=0)), most, lost, incomplete, dict(late.most_common())
    )


def _list(data: object, key: str) -> list[Any]:
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, list) else []


def _peers(data: object, key: str) -> set[int]:
    return {peer for peer in _list(data, key) if isinstance(peer, int)}
