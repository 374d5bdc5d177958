"""What a member has revealed of its updates: which peer has which coordinates.

Where the shards stay fixed for the run, so does who may see them: a single count covers the whole run, the union of
what each peer was ever sent. The same coordinates to the same peer again cost nothing; what would bring a peer above
the member's limit is not sent.

Where shards are redrawn or rotate, a peer sees other coordinates from round to round, as was agreed. What it must not
do is collect *one* update piece by piece: a round that is lost, or planned again, leaves the model where it was, and
the member's update from it is the same. So there a count covers all updates from one state, and from the states after
it until at least half of all coordinates were committed: a step on a few of them, a single bit perhaps, makes another
state but hardly another update. A snapshot begins no new count, for nobody knows how far it is from the model we had.

Everything is recorded before it is sent. If the file was torn while its last line was written, nothing of that line was
sent.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from eris.errors import DiskError
from eris.protocol.pairs import Coalition
from eris.protocol.recipe import Recipe
from eris.shards.policy import Layout

__all__ = ["RELEASED", "SHOWN", "Releases", "Shown", "append_first"]

SHOWN, RELEASED = "shown.jsonl", "released.jsonl"  # in a peer's folder

Parts = set[tuple[int, int]]  # draw of the shard plan, and shard
_ROUNDING = 1e-9
_ENOUGH = 0.5  # share of all coordinates that must be committed before a new count begins
_RUN = "run"  # the only count where shards stay fixed


class Shown:
    """What each peer holds, for each count; kept in a file if there is one."""

    def __init__(self, recipe: Recipe, path: Path | None = None) -> None:
        self._recipe, self._path = recipe, path
        self._counts: dict[str, dict[Coalition, Parts]] = {}
        self._of: dict[str, str] = {}  # state → its count, named by the count's first state
        self._last = ""  # the count written last: most rounds show the same to the same peers
        self._moved: Parts = set()  # what was committed since
        if path is not None and path.exists():
            self._read(path)

    @property
    def by_state(self) -> bool:
        """Whether a run has more than one count, so that callers must say which state they mean."""
        return self._recipe.policy.schedule != "fixed"

    def share(self, state: str, peers: Iterable[int]) -> float:
        """Return the share of the model that these peers hold together, in the count of a state."""
        return self._share(_together(self._counts.get(self._count(state), {}), frozenset(peers)))

    def committed(self, draw: int, shards: Iterable[int]) -> None:
        """Note on which shards the model has moved."""
        if self.by_state:
            self._moved |= {(draw, shard) for shard in shards}

    def jumped(self) -> None:
        """Note that the model now comes from somebody else: how far it moved is not known."""
        self._moved = set()

    def _count(self, state: str) -> str:
        """Return the count that a state belongs to: the one it had before, the last one, or a new one."""
        if not self.by_state:
            return _RUN
        if (known := self._of.get(state)) is not None:
            return known
        return self._last if self._last and self._share(self._moved) < _ENOUGH else state

    def allow(
        self,
        state: str,
        draw: int,
        wanted: Mapping[Coalition, Iterable[int]],
        limits: Iterable[tuple[frozenset[int], float]],
    ) -> set[tuple[int, Coalition]]:
        """Record what may go to whom, and return it as (shard, who) pairs; what would pass a limit is left out.

        Args:
            state: what the update is trained from.
            draw: the draw of the shard plan in force.
            wanted: the shards to be shown to each observer: one peer, or those that must collude to see masked values.
            limits: groups of peers (an observer, or an organisation) and the share that each may hold together.
        """
        count = self._count(state)
        held: dict[Coalition, Parts] = defaultdict(set, self._counts.get(count, {}))
        limited = list(limits)
        allowed: set[tuple[int, Coalition]] = set()
        for who in sorted(wanted, key=sorted):
            groups = [(group, most) for group, most in limited if who <= group]
            for shard in sorted(wanted[who]):
                if (part := (draw, shard)) not in held[who]:
                    unions = [({part} | _together(held, group), most) for group, most in groups]
                    if any(self._share(union) > most + _ROUNDING for union, most in unions):
                        continue
                    held[who] = held[who] | {part}
                allowed.add((shard, who))
        self._note(state, count, {who: parts for who, parts in held.items() if parts})
        return allowed

    def _share(self, parts: Parts) -> float:
        draws: dict[int, list[int]] = defaultdict(list)
        for draw, shard in parts:
            draws[draw].append(shard)
        if len(draws) <= 1:
            return sum(self._size(draw, shards) for draw, shards in draws.items()) / max(self._n, 1)
        seen = np.zeros(self._n, np.bool_)  # another draw cuts elsewhere, so the union is over coordinates
        for draw, shards in draws.items():
            layout = self._layout(draw)
            for shard in shards:
                seen[layout.trainable.coordinates(shard)] = True
                seen[layout.trainable.n + np.asarray(layout.buffers.coordinates(shard))] = True
        return float(np.count_nonzero(seen)) / max(self._n, 1)

    def _size(self, draw: int, shards: list[int]) -> int:
        layout = self._layout(draw)
        return sum(layout.size(shard) for shard in shards)

    @property
    def _n(self) -> int:
        return int(self._recipe.spec.n)

    def _layout(self, draw: int) -> Layout:
        return self._recipe.drawn(draw)

    def _note(self, state: str, count: str, held: dict[Coalition, Parts]) -> None:
        if held == self._counts.get(count, {}) and self._of.get(state, _RUN) == count:
            return
        line: dict[str, object] = {"state": count}
        if self.by_state and state != count:
            line = {"state": state, "of": count}
        if held == (last := self._counts.get(self._last)):
            self._write(line | {"like": self._last})
            held = last
        else:
            self._write(line | {"shown": {_spelled(who): sorted(parts) for who, parts in held.items()}})
        self._keep(state, count, held)

    def _keep(self, state: str, count: str, held: dict[Coalition, Parts]) -> None:
        if count != self._last:
            self._moved = set()
        self._counts[count], self._of[state], self._last = held, count, count

    def _write(self, line: dict[str, object]) -> None:
        if self._path is not None:
            append_first(self._path, line, what="sent", fix="nothing was sent")

    def _read(self, path: Path) -> None:
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
                if (like := line.get("like")) is not None:
                    held = self._counts[like]
                else:
                    held = {
                        _read_who(who): {(int(d), int(s)) for d, s in parts} for who, parts in line["shown"].items()
                    }
                state = str(line["state"])
                self._keep(state, str(line.get("of", state)), held)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # torn: what it would have recorded was not sent


def _together(held: Mapping[Coalition, Parts], group: frozenset[int]) -> Parts:
    """Return what these peers hold together."""
    return set().union(*(parts for who, parts in held.items() if who <= group))


def _spelled(who: Coalition) -> str:
    return "+".join(map(str, sorted(who)))


def _read_who(text: str) -> Coalition:
    return frozenset(map(int, text.split("+")))


class Releases:
    """Which noisy updates this member has released, by which its ε is counted; kept in a file if there is one.

    The same bytes again, under another plan of a round, are not a second release; a different update is. Shares of
    noise are drawn anew for every plan, so there every plan is a release.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._sent = path, set[tuple[int, str]]()
        for text in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # torn: the update was not sent
                line = json.loads(text)
                self._sent.add((int(line["round"]), str(line["update"])))

    def __len__(self) -> int:
        return len(self._sent)

    def note(self, round: int, update: NDArray[Any]) -> None:
        """Count an update before it is sent."""
        release = round, str(blake3(np.ascontiguousarray(update).view(np.uint8).data).hexdigest())
        if release in self._sent:
            return
        if self._path is not None:
            append_first(self._path, {"round": round, "update": release[1]}, what="sent", fix="nothing was sent")
        self._sent.add(release)


def append_first(path: Path, line: dict[str, object], *, what: str, fix: str, sync: bool = True) -> None:
    """Durably append a line before acting on it; on failure `what` and `fix` go into the error.

    Without `sync` it survives this process, but not the machine's loss of power.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
            if sync:
                os.fsync(file.fileno())
    except OSError as error:
        raise DiskError(
            f"the record of what will be {what} cannot be written: {error.strerror}",
            fix=f"make room; {fix}",
            path=path,
        ) from None
