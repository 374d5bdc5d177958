"""Divide samples among members.

A partition gives every member a part; from its part a member takes, in random order, N training samples and
`validation`·N more for validation. All of it follows from one public seed, so every peer can compute it.

>>> from eris.seeds import public_root
>>> labels = np.arange(1000) % 10
>>> shares = partition(labels, members=4, seed=public_root(1), samples=20, validation=0.3)
>>> [len(part) for part in shares.train], [len(part) for part in shares.validation]
([20, 20, 20, 20], [6, 6, 6, 6])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.config import concerning
from eris.data.dataset import Indices, Labels
from eris.errors import ConfigError, DataError, ErisError
from eris.registry import Registry, call_with_options, options_of
from eris.seeds import Seed

__all__ = ["PARTITIONS", "Partition", "Undivided", "partition"]

Parts = list[Indices]


@dataclass(frozen=True, eq=False)
class Undivided:
    """The undivided train split, as a partition sees it.

    Partitions of your own read `members`, `count`, `labels` and `ids`, and draw from `seed`, which all peers share.
    """

    count: int
    members: int
    seed: Seed
    labels: Labels | None = field(default=None, repr=False)
    ids: NDArray[Any] | None = field(default=None, repr=False)
    alpha: float = 0.5
    classes_per_member: int = 2

    def classes(self, kind: str) -> Labels:
        """Return the labels, or refuse."""
        if self.labels is None:
            raise DataError(
                f"a {kind} partition needs classes", fix="use iid, quantity-skew or natural", key="data.partition"
            )
        return self.labels


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """For each member, the places of its training and validation samples in the train split."""

    kind: str
    train: Sequence[Indices]
    validation: tuple[Indices, ...]
    tests: tuple[Indices, ...] = ()  # places in the test split, if members have tests of their own

    def __repr__(self) -> str:
        sizes = [len(part) for part in self.train]
        return f"Partition({self.kind}, {self.members} members × {min(sizes)}…{max(sizes)} samples)"

    @property
    def members(self) -> int:
        """How many members have data."""
        return len(self.train)


def partition(
    labels: Labels | int,
    members: int,
    seed: Seed,
    *,
    kind: str = "iid",
    alpha: float = 0.5,
    classes_per_member: int = 2,
    options: Mapping[str, Any] | None = None,
    ids: NDArray[Any] | None = None,
    samples: int | None = None,
    validation: float = 0.0,
) -> Partition:
    """Divide a train split among members.

    ``iid``: a random order cut into equal parts. ``dirichlet``: each class is spread over the members in proportions
    drawn from Dir(α). ``label-skew``: a member has `classes_per_member` classes. ``quantity-skew``: the sizes of the
    parts are drawn from Dir(α), classes are mixed. ``natural``: `ids` (writer, speaker, hospital) stay whole.

    `labels` may be just the number of samples if there are no classes and the partition needs none. `samples` is N for
    each member (all it has, if that is less); `validation` = 0.3 adds 3 validation samples to every 10 training
    samples. `options` are arguments of a partition of your own.

    Args:
        seed: public: everybody divides alike.
        kind: one of these, or a partition of your own.
        alpha: α; the smaller, the more uneven.
    """
    count = labels if isinstance(labels, int) else len(labels)
    _check(count, members, samples, validation)
    seed = seed.child("partition")
    classes = None if isinstance(labels, int) else labels
    whole = Undivided(count, members, seed.child(kind), classes, ids, alpha, classes_per_member)
    with concerning("data.partition"):
        parts = _checked(kind, whole, _divided(kind, whole, options or {}))
    shares = [_share(part, seed.child("member", k), samples, validation) for k, part in enumerate(parts)]
    if empty := [k for k, (train, _) in enumerate(shares) if not len(train)]:
        raise DataError(
            f"{len(empty)} of {members} members have no samples (first: member {empty[0]})",
            fix="use fewer members, a larger alpha, less validation or another seed",
            key="data.partition",
        )
    return Partition(kind, tuple(train for train, _ in shares), tuple(held for _, held in shares))


def _check(count: int, members: int, samples: int | None, validation: float) -> None:
    if not 0 < members <= count:
        raise ConfigError(
            f"{count} samples cannot be divided among {members} members", fix="use fewer members", key="members"
        )
    if samples is not None and samples < 1:
        raise ConfigError(
            f"data.samples is {samples}", fix="use 1 or more, or leave it out to use all", key="data.samples"
        )
    if not 0 <= validation < float("inf"):
        raise ConfigError(
            f"data.validation is {validation}",
            fix="give the number of validation samples per training sample, 0 or more",
            key="data.validation",
        )


def _divided(kind: str, whole: Undivided, options: Mapping[str, Any]) -> Parts:
    divide = PARTITIONS.find(kind)
    try:
        return call_with_options(f"partition {kind!r}", divide, {next(iter(options_of(divide))): whole, **options})
    except ErisError:
        raise
    except Exception as error:
        raise DataError(
            f"partition {kind!r} failed: {type(error).__name__}: {error}", fix="correct that function"
        ) from error


def _checked(kind: str, whole: Undivided, parts: Parts) -> Parts:
    """Refuse parts that are not one for each member, with every sample at most once."""
    if len(parts) != whole.members:
        raise DataError(
            f"partition {kind!r} made {len(parts)} parts for {whole.members} members", fix="return one for each member"
        )
    places = np.concatenate([np.asarray(part, np.int64) for part in parts])
    if places.size and not 0 <= places.min() <= places.max() < whole.count:
        raise DataError(
            f"partition {kind!r} used a sample that does not exist", fix=f"use numbers 0 … {whole.count - 1}"
        )
    if len(np.unique(places)) != len(places):
        raise DataError(f"partition {kind!r} gave a sample to two members", fix="give every sample to one member only")
    return [np.asarray(part, np.int64) for part in parts]


def _iid(whole: Undivided) -> Parts:
    """Cut a random order into equal parts."""
    return _equal_cuts(whole.seed.permutation(whole.count), whole.members)


def _quantity_skew(whole: Undivided) -> Parts:
    """Draw the sizes of the parts from Dir(α); classes are mixed."""
    sizes = _proportional(whole.count, whole.members, whole.alpha, whole.seed.child("sizes"))
    return _cuts(whole.seed.permutation(whole.count), sizes)


def _share(part: Indices, seed: Seed, samples: int | None, validation: float) -> tuple[Indices, Indices]:
    # N is at most what a member has; validation then keeps its ratio to N.
    most = int(len(part) / (1 + validation) + 1e-9)
    train = most if samples is None else min(samples, most)
    held = int(train * validation + 1e-9)
    order = part[seed.permutation(len(part))]
    return order[:train], order[train : train + held]


def _cuts(order: Indices, counts: Indices) -> Parts:
    ends = np.cumsum(counts)
    return [order[end - count : end] for count, end in zip(counts, ends, strict=True)]


def _equal_cuts(order: Indices, members: int) -> Parts:
    counts = np.full(members, len(order) // members)
    counts[: len(order) % members] += 1
    return _cuts(order, counts)


def _dirichlet(whole: Undivided) -> Parts:
    """Spread each class over the members in proportions drawn from Dir(α)."""
    labels, members, alpha, seed = whole.classes("dirichlet"), whole.members, whole.alpha, whole.seed
    parts: list[Parts] = [[] for _ in range(members)]
    for label in np.unique(labels).tolist():
        places = np.flatnonzero(labels == label)
        order = places[seed.child("order", label).permutation(len(places))]
        counts = _proportional(len(places), members, alpha, seed.child("sizes", label))
        for member, cut in enumerate(_cuts(order, counts)):
            parts[member].append(cut)
    return [np.concatenate(part) for part in parts]


def _proportional(total: int, members: int, alpha: float, seed: Seed) -> Indices:
    """Return counts that sum to `total`: ⌊total·p⌋, p ~ Dir(α·1); then +1 to the smallest or −1 from the largest.

    `members` is the length of p.
    """
    if not 0 < alpha < float("inf"):
        raise ConfigError(f"alpha is {alpha}", fix="use a finite alpha > 0")
    shares = seed.generator().dirichlet(np.full(members, alpha))
    counts = np.floor(total * shares).astype(np.int64)
    while (missing := total - int(counts.sum())) != 0:
        if missing > 0:
            counts[np.argmin(counts)] += 1
        else:
            counts[np.argmax(counts)] -= 1
    return counts


def _label_skew(whole: Undivided) -> Parts:
    """Give every member a few of the classes."""
    labels, members, seed = whole.classes("label-skew"), whole.members, whole.seed
    classes_per_member = whole.classes_per_member
    classes = np.unique(labels)
    if not 1 <= classes_per_member <= len(classes):
        raise ConfigError(
            f"data.classes_per_member is {classes_per_member}, but the data has {len(classes)} classes",
            fix=f"use 1 … {len(classes)}",
            key="data.classes_per_member",
        )
    # One random order of the classes, dealt round and round: any C neighbours in it are distinct, and every class is
    # held by the same number of members, give or take one. Classes that nobody holds are left out.
    order = classes[seed.child("classes").permutation(len(classes))]
    dealt = order[np.arange(members * classes_per_member) % len(classes)].reshape(members, classes_per_member)
    dealt = dealt[seed.child("members").permutation(members)]
    parts: list[Parts] = [[] for _ in range(members)]
    for label in np.unique(dealt).tolist():
        holders = np.flatnonzero((dealt == label).any(axis=1))
        places = np.flatnonzero(labels == label)
        cuts = _equal_cuts(places[seed.child("order", label).permutation(len(places))], len(holders))
        for holder, cut in zip(holders, cuts, strict=True):
            parts[holder].append(cut)
    return [np.concatenate(part) for part in parts]


def _natural(whole: Undivided) -> Parts:
    """Keep all samples of one id together."""
    ids, count, members, seed = whole.ids, whole.count, whole.members, whole.seed
    if ids is None or len(ids) != count:
        raise DataError(
            "this data set has no natural ids",
            fix="use another partition, or give ids of your own: Federation(data=((inputs, labels, ids), test))",
            key="data.partition",
        )
    names = np.unique(ids)
    if len(names) < members:
        raise ConfigError(
            f"the data has {len(names)} natural ids for {members} members",
            fix=f"use at most {len(names)} members",
            key="members",
        )
    order = names[seed.permutation(len(names))]
    return [np.flatnonzero(np.isin(ids, order[member::members])) for member in range(members)]


PARTITIONS: Registry[Callable[..., Parts]] = Registry(
    "partition",
    "eris.partitions",
    {
        "iid": _iid,
        "dirichlet": _dirichlet,
        "label-skew": _label_skew,
        "quantity-skew": _quantity_skew,
        "natural": _natural,
    },
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with what is to be divided",
)
