"""What a member has let go of the updates it made from one state: which peer has which coordinates.

A round that is lost, or planned again, leaves the state where it was, and the member's update from it is the same. So
what counts is not a round but a state: the union of all that a peer was ever sent of updates from it. The same peer and
coordinates again cost nothing; what would bring a peer above the member's limit is not sent.

It is written down before it is sent. A file that was torn while the last line was written has sent nothing of it.
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

__all__ = ["RELEASED", "SHOWN", "Releases", "Shown"]

SHOWN, RELEASED = "shown.jsonl", "released.jsonl"  # in a peer's folder

Parts = set[tuple[int, int]]  # draw of the shard plan, and shard
_ROUNDING = 1e-9


class Shown:
    """For each state's digest, what each peer holds; kept in a file, if there is one."""

    def __init__(self, recipe: Recipe, path: Path | None = None) -> None:
        self._recipe, self._path = recipe, path
        self._states: dict[str, dict[Coalition, Parts]] = {}
        self._last = ""  # state that was written last: most rounds show the same to the same
        if path is not None and path.exists():
            self._read(path)

    def share(self, state: str, peers: Iterable[int]) -> float:
        """Return which share of the model these peers hold together, of updates from a state."""
        return self._share(_together(self._states.get(state, {}), frozenset(peers)))

    def allow(
        self,
        state: str,
        draw: int,
        wanted: Mapping[Coalition, Iterable[int]],
        limits: Iterable[tuple[frozenset[int], float]],
    ) -> set[tuple[int, Coalition]]:
        """Note what may go to whom, and return it as (shard, who); what would pass a limit is left out.

        Who sees something is one peer, or those that must work together to see what is masked. `limits` are groups of
        peers, such as one of these or an organisation's, and the share they may hold together.
        """
        held: dict[Coalition, Parts] = defaultdict(set, self._states.get(state, {}))
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
        self._note(state, {who: parts for who, parts in held.items() if parts})
        return allowed

    def _share(self, parts: Parts) -> float:
        draws: dict[int, list[int]] = defaultdict(list)
        for draw, shard in parts:
            draws[draw].append(shard)
        if len(draws) <= 1:
            return sum(self._size(draw, shards) for draw, shards in draws.items()) / max(self._n, 1)
        seen = np.zeros(self._n, np.bool_)  # another draw cuts elsewhere: the union is that of coordinates
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

    def _note(self, state: str, held: dict[Coalition, Parts]) -> None:
        if held == self._states.get(state, {}):
            return
        if held == (last := self._states.get(self._last)):
            self._write({"state": state, "like": self._last})
            held = last
        else:
            self._write({"state": state, "shown": {_spelled(who): sorted(parts) for who, parts in held.items()}})
        self._states[state], self._last = held, state

    def _write(self, line: dict[str, object]) -> None:
        if self._path is not None:
            _append(self._path, line)

    def _read(self, path: Path) -> None:
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
                if (like := line.get("like")) is not None:
                    held = self._states[like]
                else:
                    held = {
                        _read_who(who): {(int(d), int(s)) for d, s in parts} for who, parts in line["shown"].items()
                    }
                self._states[str(line["state"])], self._last = held, str(line["state"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # torn: what it would have said was not sent


def _together(held: Mapping[Coalition, Parts], group: frozenset[int]) -> Parts:
    """Return what peers hold together."""
    return set().union(*(parts for who, parts in held.items() if who <= group))


def _spelled(who: Coalition) -> str:
    return "+".join(map(str, sorted(who)))


def _read_who(text: str) -> Coalition:
    return frozenset(map(int, text.split("+")))


class Releases:
    """Which noisy updates this member has let go: what its ε is counted by. Kept in a file, if there is one.

    The same bytes again, under another plan of a round, are no other release; another update is one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._sent = path, set[tuple[int, str]]()
        for text in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # torn: it was not sent
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
            _append(self._path, {"round": round, "update": release[1]})
        self._sent.add(release)


def _append(path: Path, line: dict[str, object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DiskError(
            f"what would be sent cannot be written down first: {error.strerror}",
            fix="make room; nothing was sent",
            path=path,
        ) from None
