"""The exposure ledger: what share of a member's update each observer learned, including from broadcasts.

An observer is a peer that aggregates (or the server). It sees a member's values on the shards that it owns. A published
mean reveals nobody in particular, unless only one member is in it (no other contributed to the shard or, under
independent masks, no other kept the coordinate). Then everybody sees that member's own value, so it counts for every
observer, in the round and in the union. Secret masks hide whose value it is; it is counted all the same.

The ledger gives two figures. The **largest share of a round** is the most that any observer learned of any member's
update. The **union over rounds** is the share of coordinates of which an observer has ever seen a value: with a fixed
plan it stays what it was in the first round (without compression), with a redrawn one it grows to everything.

Beside them stands the number that the paper's Theorem 3.2 multiplies by C_max: how many **values** the best placed
observer got of one member in all rounds together, T·p·n/A if all is even. In federations of up to a hundred members all
three are also given for each pair of member and observer; beyond that, the number of values is an upper bound (the most
that any observer got in each round, added up for each member). Members who never took part have no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import writing
from eris.errors import CheckpointError
from eris.events import Event, RoundStarted, Sent, ShardPublished, VerdictWritten
from eris.protocol.recipe import Recipe
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout
from eris.transforms.quantize import Quantizer

__all__ = ["BitRows", "ExposureLedger"]

_MOST_MEMBERS = 100  # up to so many, each pair of member and observer is listed
_ALL = -1  # in place of an observer: under a fixed plan one row says what each of them saw

Bits = NDArray[np.uint8]
Counts = NDArray[np.int64]


class BitRows:
    """Rows of bits in a file: a coordinate that was seen stays seen, so writing a round twice changes nothing.

    Rows are held in memory up to a budget and reach the file with `flush`; beyond it they are written at once.
    """

    def __init__(self, path: Path, bits: int, *, budget: int = 1 << 25) -> None:
        self._path, self._width, self._budget = path, -(-bits // 8), budget
        self._held: dict[int, Bits] = {}

    def add(self, row: int, bits: Bits) -> None:
        """Set more bits of a row."""
        if row in self._held:
            np.bitwise_or(self._held[row], bits, out=self._held[row])
        elif (len(self._held) + 1) * self._width <= self._budget:
            self._held[row] = self.row(row) | bits
        else:
            self._write({row: self.row(row) | bits})

    def flush(self) -> None:
        """Write what is held in memory to the file."""
        self._write(self._held)

    def _write(self, rows: Mapping[int, Bits]) -> None:
        if not rows:
            return
        with writing(self._path, fix="make room there, then continue with `eris run --resume`"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("r+b" if self._path.exists() else "w+b") as file:
                for row, bits in rows.items():
                    file.seek(row * self._width)
                    file.write(bits.tobytes())

    def row(self, row: int) -> Bits:
        """Return a row; one that was never written is all zeros."""
        if row in self._held:
            return self._held[row].copy()
        try:
            stored = np.fromfile(self._path, np.uint8, self._width, offset=row * self._width)
        except FileNotFoundError:
            stored = np.empty(0, np.uint8)
        return np.concatenate([stored, np.zeros(self._width - stored.size, np.uint8)])

    def each(self, count: int) -> Iterator[Bits]:
        """Yield the first rows in order, reading the file once from beginning to end."""
        with self._path.open("rb") if self._path.exists() else BytesIO() as file:
            for row in range(count):
                stored = np.frombuffer(file.read(self._width), np.uint8)
                held = self._held.get(row)
                yield np.pad(stored, (0, self._width - stored.size)) if held is None else held


class ExposureLedger:
    """Listens to a run and adds up each member's exposure.

    Args:
        recipe: what the run's peers agreed on.
        members: how many there are.
        folder: for the bits of who saw what.
        server: whether one server, not members, aggregates.
    """

    views = False  # it needs to know who sent what to whom, but not the values

    def __init__(self, recipe: Recipe, members: int, folder: Path, *, server: bool) -> None:
        self._recipe, self._members, self._server = recipe, members, server
        self._n = recipe.spec.n
        self._moving = recipe.policy.schedule != "fixed"
        self._rows = BitRows(folder / "seen.bits", self._n)
        self._sole_rows = BitRows(folder / "sole.bits", self._n)
        self._places: dict[tuple[int, int], int] = {}  # (member, observer or _ALL) → row
        self._sole: dict[int, int] = {}  # member → row, if anything was published that is its alone
        self._observers: list[int] = []
        self._largest, self._sum, self._count, self._published = 0.0, 0.0, 0, 0.0
        self._rounds = 0
        self._by_round: dict[int, float] = {}  # member → the most that one observer got in each round, added up
        self._whole: set[int] = set()  # members whose every coordinate has been seen: no more can be
        pairs = members if members <= _MOST_MEMBERS else 0
        self._most, self._values = np.zeros((2, pairs, members + 1))  # by member and observer, in coordinates
        self._round: _Round | None = None
        self.of_round: dict[int, float] = {}  # round → largest share, until it is fetched

    def __call__(self, event: Event) -> None:
        """Record the events that concern exposure."""
        if isinstance(event, RoundStarted):
            self._begin(event)
        elif self._round is None:
            return
        elif isinstance(event, Sent):
            self._note(self._round, event)
        elif isinstance(event, ShardPublished) and not event.lost and len(event.contributors) >= 1:
            self._round.publish(event.shard, event.contributors)
        elif isinstance(event, VerdictWritten):
            self._close(self._round)

    def summary(self) -> dict[str, Any]:
        """Return the figures so far; for masked shards, those of single peers and also those of colluding pairs."""
        if not self._recipe.unmaskers:
            return self._counted()
        alone = self._published
        return {
            "coordinates": self._n,
            "observers": "aggregators",
            "largest_share_per_round": alone,
            "mean_share_per_round": alone,
            "published_share_per_round": alone,
            "union_over_rounds": alone,
            "values_over_rounds": round(alone * self._n * self._rounds),
            "side_scalars": ["weight"],  # the pads cover the figures that members share, too
            "with_unmaskers": self._counted() | {"observers": "aggregators, each with the unmaskers of its shards"},
        }

    def _counted(self) -> dict[str, Any]:
        seen = self._seen()
        union = self._union(seen)
        return {
            "coordinates": self._n,
            "observers": "server" if self._server else "aggregators",
            "largest_share_per_round": self._largest,
            "mean_share_per_round": self._sum / self._count if self._count else 0.0,
            "published_share_per_round": self._published,
            "union_over_rounds": max(union.values(), default=0.0),
            "union_by_observer": {"server" if self._server else str(peer): share for peer, share in union.items()},
            "values_over_rounds": round(
                float(self._values.max() if self._values.size else max(self._by_round.values(), default=0.0))
            ),
            "side_scalars": [
                "weight",
                *([] if self._recipe.unmaskers else ["steps"]),
                *([] if self._recipe.figures is None else ["figures"]),
                *(["norm"] if self._norms else []),
            ],
            **({"by_member": self._by_member(seen)} if self._most.size else {}),
        }

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep (the rows of bits are in their own file)."""
        self._rows.flush()
        self._sole_rows.flush()
        return {
            "observers": self._observers,
            "largest": self._largest,
            "sum": self._sum,
            "count": self._count,
            "published": self._published,
            "rounds": self._rounds,
            "by_round": [list(self._by_round), list(self._by_round.values())],
            "rows": list(self._places),
            "sole": list(self._sole),
            "whole": sorted(self._whole),
            "most": self._most.tolist(),
            "values": self._values.tolist(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        if not {"by_round", "rows"} <= state.keys():
            raise CheckpointError(
                "this checkpoint's exposure was counted by an earlier version of eris", fix="start the run afresh"
            )
        self._observers, self._whole = list(state["observers"]), set(state["whole"])
        self._sole = {member: row for row, member in enumerate(state["sole"])}
        self._places = {(member, observer): row for row, (member, observer) in enumerate(state["rows"])}
        self._largest, self._sum = state["largest"], state["sum"]
        self._count, self._published, self._rounds = state["count"], state["published"], state.get("rounds", 0)
        self._by_round = dict(zip(*state["by_round"], strict=True))
        for name, table in (("most", self._most), ("values", self._values)):
            table[:] = np.array(state[name]).reshape(table.shape)

    def _begin(self, event: RoundStarted) -> None:
        layout, mask = self._recipe.layout(event.round), self._recipe.shared_mask(event.round)
        self._observers = sorted({*self._observers, *event.assignment, *event.witnesses})
        owners = [np.array(peers) for peers in (event.assignment, event.witnesses) if peers]
        self._round = _Round(event.round, layout, owners, mask)

    def _note(self, current: _Round, sent: Sent) -> None:
        shared = self._recipe.compressor.shared_support
        counts = current.shared_counts if shared else current.counts(sent.support)
        reached: NDArray[np.bool_] | None = None  # all of them
        if len(sent.reached) < counts.size:
            reached = np.zeros(counts.size, bool)
            reached[list(sent.reached)] = True
        current.seen[sent.member] = counts if reached is None else np.where(reached, counts, 0)
        if not shared and sent.support is not None:
            current.supports[sent.member] = sent.support.copy()
            current.times[sent.support] += 1
        if sent.member not in self._whole:
            self._remember(current, sent, reached, shared=shared)

    def _remember(self, current: _Round, sent: Sent, reached: NDArray[np.bool_] | None, *, shared: bool) -> None:
        everything = shared and reached is None
        reached = np.ones(current.layout.shards, bool) if reached is None else reached
        for observer in self._observers if self._moving else [None]:
            owned = reached if observer is None else reached & current.owned_by(observer)
            bits = current.bits(observer, None if shared else sent.support, owned, keep=everything)
            self._rows.add(self._row(sent.member, observer), bits)
        if everything and current.mask is None and not self._moving:
            self._whole.add(sent.member)

    def _close(self, current: _Round) -> None:
        shares = [self._share(current, member) for member in current.seen]
        largest = max((seen for seen, _ in shares), default=0.0)
        self._largest = max(self._largest, largest)
        self._published = max(self._published, max((published for _, published in shares), default=0.0))
        self._sum += sum(seen for seen, _ in shares)
        self._count += len(shares)
        self._rounds += 1
        if self._recipe.unmaskers:  # alone, a peer sees only what everybody sees
            largest = max((published for _, published in shares), default=0.0)
        self.of_round[current.round] = largest
        self._round = None

    def _share(self, current: _Round, member: int) -> tuple[float, float]:
        """Return the most that one observer learned of a member, and what everybody learned."""
        alone, learned = current.alone(member), current.learned(member)
        if (published := int(alone.sum())) > 0:
            learned += published - current.by_observer(alone)  # not again what it has seen itself
            self._sole_rows.add(self._sole.setdefault(member, len(self._sole)), current.alone_bits(member))
        if not self._server:
            learned[current.observers == member] = 0
        if self._most.size:
            row = np.full(self._most.shape[1], float(published))
            row[current.observers] = learned
            row[member] *= self._server
            np.maximum(self._most[member], row, out=self._most[member])
            self._values[member] += row
        most = max(float(learned.max()), float(published))
        self._by_round[member] = self._by_round.get(member, 0.0) + most
        return most / self._n, published / self._n

    def _by_member(self, seen: Mapping[int, Counts]) -> dict[str, Any]:
        """Return each member's figures: a number for each observer, None for itself."""
        observers, nothing = self._observers, np.zeros(len(self._observers), np.int64)
        return {
            "observers": ["server"] if self._server else [str(peer) for peer in observers],
            "members": {
                str(member): {
                    "largest_share_per_round": self._for_each(member, self._most[member][observers] / self._n),
                    "union_over_rounds": self._for_each(member, seen.get(member, nothing) / self._n),
                    "values_over_rounds": self._for_each(member, self._values[member][observers]),
                }
                for member in range(self._members)
            },
        }

    def _for_each(self, member: int, figures: NDArray[np.float64]) -> list[float | None]:
        return [
            None if observer == member and not self._server else float(figure)
            for observer, figure in zip(self._observers, figures, strict=True)
        ]

    @property
    def _norms(self) -> bool:
        """Whether messages carry the unit that values were rounded to, which depends on the whole vector's norm."""
        return isinstance(self._recipe.compressor, Quantizer)

    def _union(self, seen: Mapping[int, Counts]) -> dict[int, float]:
        """Return, for each observer, the largest share of any one member's coordinates that it has ever seen."""
        observers = np.array(self._observers, np.int64)
        union = np.zeros(observers.size, np.int64)
        for member, counts in seen.items():
            np.maximum(union, counts if self._server else np.where(observers == member, 0, counts), out=union)
        return {observer: float(count) / self._n for observer, count in zip(self._observers, union, strict=True)}

    def _seen(self) -> dict[int, Counts]:
        """Return, for each member, how many coordinates each observer has seen: in its shards or published alone."""
        seen: dict[int, Counts] = {}
        whole = self._by_owner(self._sizes, np.zeros_like(self._sizes))  # most members have been seen entirely
        rows = zip(self._places, self._rows.each(len(self._places)), strict=True)
        for (member, observer), bits in rows:
            if observer == _ALL:
                usual = member in self._whole and member not in self._sole
                seen[member] = whole if usual else self._seen_by_each(member, bits)
            else:
                counts = seen.setdefault(member, np.zeros(len(self._observers), np.int64))
                own = bits | self._sole_rows.row(self._sole[member]) if member in self._sole else bits
                counts[self._observers.index(observer)] = int(np.bitwise_count(own).sum())
        return seen

    def _seen_by_each(self, member: int, bits: Bits) -> Counts:
        """Return what each observer has seen under a fixed plan, where one row covers all observers."""
        alone = self._sole.get(member)
        counts = self._sizes if member in self._whole else self._by_shard(bits)
        sole = np.zeros(counts.size, np.int64) if alone is None else self._by_shard(self._sole_rows.row(alone))
        return self._by_owner(counts, sole)

    def _by_owner(self, counts: Counts, sole: Counts) -> Counts:
        policy, peers = self._recipe.policy, list(range(self._recipe.policy.shards))
        total = np.full(max(*peers, *self._observers, 0) + 1, float(sole.sum()))
        for owners in filter(None, (policy.assignment(0, peers), policy.witnesses(0, peers))):
            total += np.bincount(owners, counts - sole, total.size)  # what was published alone is already counted
        return total[self._observers].astype(np.int64)

    @property
    def _sizes(self) -> Counts:
        layout = self._recipe.layout(0)
        return layout.trainable.sizes + layout.buffers.sizes

    def _by_shard(self, bits: Bits) -> Counts:
        seen = np.unpackbits(bits, count=self._n).view(bool)
        return np.bincount(self._owners[seen], minlength=self._recipe.policy.shards)

    @cached_property
    def _owners(self) -> NDArray[np.int64]:
        """The shard of every coordinate under a fixed plan."""
        layout = self._recipe.layout(0)
        plans = (layout.trainable, layout.buffers)
        return np.concatenate([plan.owners_of(np.arange(plan.n, dtype=np.int64)) for plan in plans])

    def _row(self, member: int, observer: int | None) -> int:
        key = member, _ALL if observer is None else observer
        return self._places.setdefault(key, len(self._places))


@dataclass
class _Round:
    """What is known of the current round."""

    round: int
    layout: Layout
    owners: list[Counts]  # shard → aggregating peer; a second time with replicas
    mask: Coordinates | None
    seen: dict[int, Counts] = field(default_factory=dict)  # member → coordinates that reached each shard
    contributors: dict[int, tuple[int, ...]] = field(default_factory=dict)
    supports: dict[int, Coordinates] = field(default_factory=dict)  # if they differ between members

    def __post_init__(self) -> None:
        self.observers = np.unique(np.concatenate(self.owners))  # who aggregates in this round
        self.shared_counts = self.counts(self.mask)
        self.times = np.zeros(self.layout.trainable.n, np.int32)  # how many members kept a coordinate
        self._kept: dict[int | None, Bits] = {}
        self._alone: dict[int, list[int]] = {}  # member → shards that were published with nobody else in the mean
        self._of_all: NDArray[np.float64] | None = None

    def publish(self, shard: int, contributors: tuple[int, ...]) -> None:
        """Record whose mean was published."""
        self.contributors[shard] = contributors
        if len(contributors) == 1:
            self._alone.setdefault(contributors[0], []).append(shard)

    def learned(self, member: int) -> NDArray[np.float64]:
        """Return how much of a member each observer got as an aggregator; the usual case is computed once."""
        if self.seen[member] is not self.shared_counts:
            return self.by_observer(self.seen[member])
        if self._of_all is None:
            self._of_all = self.by_observer(self.shared_counts)
        return self._of_all.copy()

    def owned_by(self, observer: int) -> NDArray[np.bool_]:
        """Return which shards an observer aggregates, first or second."""
        owned: NDArray[np.bool_] = self.owners[0] == observer
        for peers in self.owners[1:]:
            owned = owned | (peers == observer)
        return owned

    def by_observer(self, counts: Counts) -> NDArray[np.float64]:
        """Return, for each observer, the sum over the shards that it aggregates."""
        total = np.zeros(self.observers.size)
        for peers in self.owners:
            total += np.bincount(np.searchsorted(self.observers, peers), counts, total.size)
        return total

    def counts(self, support: Coordinates | None) -> Counts:
        """Return how many coordinates of a message each shard gets, buffers included."""
        plan = self.layout.trainable
        kept = plan.sizes if support is None else np.bincount(plan.owners_of(support), minlength=plan.shards)
        return kept + self.layout.buffers.sizes

    def alone(self, member: int) -> Counts:
        """Return, for each shard, how many coordinates were published with only this member in the mean."""
        counts = np.zeros(self.layout.shards, np.int64)
        if shards := self._alone.get(member):
            counts[shards] = self.seen[member][shards]
        support = self.supports.get(member)
        if support is not None:
            sole = support[self.times[support] == 1]
            owners = np.bincount(self.layout.trainable.owners_of(sole), minlength=self.layout.shards)
            published = [shard for shard, members in self.contributors.items() if member in members]
            counts[published] = np.maximum(counts[published], owners[published])
        return counts

    def alone_bits(self, member: int) -> Bits:
        """Return, as bits, which coordinates were published with only this member in the mean."""
        layout, support = self.layout, self.supports.get(member, self.mask)
        coordinates = np.arange(layout.trainable.n, dtype=np.int64) if support is None else support
        owners = layout.trainable.owners_of(coordinates)
        whole, published = np.zeros((2, layout.shards), bool)
        whole[self._alone.get(member, [])] = True
        whole &= self.seen[member] > 0
        published[[shard for shard, members in self.contributors.items() if member in members]] = True
        sole = whole[owners]
        if member in self.supports:
            sole |= published[owners] & (self.times[coordinates] == 1)
        bits = np.zeros(layout.n, bool)
        bits[coordinates[sole]] = True
        bits[layout.trainable.n :] = whole[layout.buffers.owners_of(np.arange(layout.buffers.n, dtype=np.int64))]
        return np.packbits(bits)

    def bits(self, observer: int | None, support: Coordinates | None, owned: NDArray[np.bool_], *, keep: bool) -> Bits:
        """Return, as bits, which coordinates of a message lie in the owned shards; the usual case is computed once.

        `support` are the message's own coordinates, None for the round's; `owned` says of each shard whether the
        observer sees it; `keep` marks the usual case.
        """
        if keep and observer in self._kept:
            return self._kept[observer]
        layout, mask = self.layout, self.mask if support is None else support
        coordinates = np.arange(layout.trainable.n, dtype=np.int64) if mask is None else mask
        seen = np.zeros(layout.n, bool)
        seen[coordinates[owned[layout.trainable.owners_of(coordinates)]]] = True
        places = np.arange(layout.buffers.n, dtype=np.int64)
        seen[layout.trainable.n :] = owned[layout.buffers.owners_of(places)]
        bits = np.packbits(seen)
        if keep:
            self._kept[observer] = bits
        return bits
