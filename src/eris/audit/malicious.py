"""Measure what an aggregator that signs a false mean can plant in the model and read from the next updates.

Whoever aggregates a shard decides, with a mean that nobody can check, where the model goes on that shard. Two attacks
are tried on a perceptron with ReLU, whose first layer sees the pictures themselves:

**Traps** (the idea of Robbing the Fed, in the form of trap weights). The visible part of each row of the first layer
gets a random direction, and is made so large that it alone decides whether the unit is on. It is scaled, by public
pictures, so that this happens for one picture in a batch. The gradient of such a row is then a multiple of a single
picture, which the aggregator reads on its own coordinates. A picture counts as isolated if a row is proportional to
it.

**Fishing.** The output unit of one class is pushed so far down that no picture is classified as it. The gradient of
its row then comes from that class's pictures alone; how far that is so is reported as a cosine.

Chance is the same figure on the honest model. `shards.replicas = 2` is played with the real roles (`false_mean`): the
liar's statement differs from that of the shard's other aggregator, and what the liar is sent in the next round is what
it reads. There it holds two shards instead of one, its own and the one that it averages a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.audit.false_mean import FalseMeanRound
from eris.audit.intervals import mean_over_seeds
from eris.audit.json_file import write_json
from eris.compose import Composition, compose, initial_seed
from eris.config import Config, load_config
from eris.errors import InputError
from eris.local.spec import Vector
from eris.local.task import LocalResult
from eris.methods import with_defaults
from eris.seeds import Seed, private_root, public_root
from eris.shards.plan import ShardPlan, contiguous, scattered
from eris.tasks import build_task

__all__ = ["DEFENCES_AGAINST_LIES", "SMALL_MALICIOUS", "FalseMean", "audit_malicious", "planted_traps"]

SMALL_MALICIOUS = (
    "method=eris", "members=4", "rounds=1", "data.samples=32", "data.validation=0.0", "data.test_samples=300",
    "model.name=mlp", "local.batch=full", "local.epochs=1", "local.lr=0.1", "local.momentum=0.0", "workers=1",
)  # fmt: skip
DEFENCES_AGAINST_LIES: dict[str, tuple[str, ...]] = {
    "none": (),
    "second aggregator": ("shards.replicas=2",),
    "5 local steps": ("local.epochs=5",),
    "noise, ε = 10 a sample": ("method=eris+ldp", "privacy.unit=sample", "privacy.clip=1.0", "privacy.epsilon=10"),
    "masked sum": (),
}
NOTES = (
    "isolated: the share of a batch's pictures for which the visible part of some row is a multiple of that picture "
    "alone (cosine above 0.999); low and high are Student's t over seeds. Read: the share of such a picture's pixels "
    "that the aggregator sees",
    "honest mean: the same figures without a false mean, which is chance",
    "second aggregator (shards.replicas = 2): played with the real roles. `dropped` is the share of the shards with a "
    "false mean that the round ended without; the liar holds two shards, and reads what it is sent in the next round; "
    "`honest` is what the same aggregator isolates after a round in which it told the truth",
    "masked sum: the aggregator sees only the sum of all members' updates, so a batch is all members' samples together",
    "fishing: the attacker pushes down the bias of one class; the figure is the cosine between that class's output row "
    "and the row that the class's samples alone would give",
)

Seen = NDArray[np.bool_]  # of all trainable coordinates, or of the first layer's rows

_TRAPPED = 0.999
_PUSH = 40.0  # how far the logit of a class is moved down
_LOUD = 50.0  # how much larger a trap is than the weights it shares a row with


@dataclass(frozen=True, slots=True)
class FalseMean:
    """One case to play: the shard plan, the defence, and whether the aggregator lies at all."""

    plan: str  # contiguous or random
    defence: str  # one of `DEFENCES_AGAINST_LIES`
    lies: bool


def audit_malicious(
    out: Path,
    *,
    changes: Sequence[str] = (),
    aggregators: int = 8,
    seeds: Sequence[int] = range(1, 6),
    notice: Callable[[int, int, str], None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Play every case under every defence with every seed, write malicious.json and return its results.

    Args:
        out: the folder for the results.
        changes: to the settings of the training.
        aggregators: how many there are.
        seeds: to play each case with.
        notice: told how many cases are done, how many there are, and which one comes next.
    """
    cases = [
        FalseMean(plan, defence, lies)
        for plan in ("contiguous", "random")
        for defence in DEFENCES_AGAINST_LIES
        for lies in ((True, False) if defence == "none" else (True,))
    ]
    results = []
    for number, case in enumerate(cases):
        notice(number, len(cases), f"{case.plan}, {case.defence}")
        found = [_played(case, changes, aggregators, seed) for seed in seeds]
        results.append(_result(case, found))
    notice(len(cases), len(cases), "done")
    write_json(
        out / "malicious.json",
        {
            "changes": list(changes),
            "aggregators": aggregators,
            "seeds": list(seeds),
            "notes": NOTES,
            "results": results,
        },
    )
    return results


def _result(case: FalseMean, found: Sequence[dict[str, float]]) -> dict[str, Any]:
    figures = {}
    for name in ("isolated", "fishing"):
        values = [one[name] for one in found]
        figures[name] = mean_over_seeds(values) if len(values) > 1 else {"value": values[0], "low": None, "high": None}
    others = [name for name in ("dropped", "honest") if name in found[0]]
    return {
        "plan": case.plan,
        "defence": case.defence if case.lies else "honest mean",
        **figures,
        "read": float(np.mean([one["read"] for one in found])),
        **{name: float(np.mean([one[name] for one in found])) for name in others},
    }


def _played(case: FalseMean, changes: Sequence[str], aggregators: int, seed: int) -> dict[str, float]:
    chosen = [*SMALL_MALICIOUS, *changes, *DEFENCES_AGAINST_LIES[case.defence], f"seed={seed}"]
    config = load_config(changes=chosen)
    config = with_defaults(config, config.methods[0])
    scene = _Scene(config, case, aggregators)
    if config.shards.replicas == 2:
        return _played_by_roles(scene, _with_peers(config, case, aggregators, scene))
    seen = scene.seen
    trapped, fished = (scene.trapped(scene.model, seen), scene.fished(scene.model)) if case.lies else [scene.model] * 2
    return {
        "isolated": scene.isolated(scene.update(trapped), seen),
        "read": scene.share_read(seen),
        "fishing": scene.fishing(fished),
    }


def _with_peers(config: Config, case: FalseMean, aggregators: int, scene: _Scene) -> Composition:
    """Return the method with a peer for every aggregator; those that are more than the members train like these."""
    peers = max(config.members, aggregators)
    shards = config.shards.model_copy(update={"plan": case.plan})
    many = config.model_copy(update={"members": peers, "aggregators": aggregators, "shards": shards})
    return compose(many, scene.spec, [scene.batch] * peers)


def _played_by_roles(scene: _Scene, made: Composition) -> dict[str, float]:
    """Play both lies with the real roles: each by whoever aggregates the shard that it is about."""
    play = partial(FalseMeanRound.play, made, scene.model, scene.trained)
    trap = play(scene.trapped, shard=scene.shard_of_first_layer)
    fish = play(lambda model, _: scene.fished(model), shard=scene.shard_of_target)
    truth = play(None, shard=scene.shard_of_first_layer)
    told = len(trap.told) + len(fish.told)
    return {
        "isolated": scene.isolated(trap.read, trap.seen),
        "honest": scene.isolated(truth.read, truth.seen),
        "read": scene.share_read(trap.seen),
        "fishing": scene.fishing(fish.model),
        "dropped": (len({*trap.lost} & {*trap.told}) + len({*fish.lost} & {*fish.told})) / told,
    }


class _Scene:
    """The setting of one case: a member's batch, an aggregator's shard, and the layers' places in the flat vector.

    Args:
        config: the training, with the defence.
        case: the shard plan, and whether updates are summed.
        aggregators: how many shards there are.
    """

    def __init__(self, config: Config, case: FalseMean, aggregators: int) -> None:
        self._task = cast(Any, build_task(config.model_dump(mode="json", exclude_none=True)))
        self._config, self._summed = config, case.defence == "masked sum"
        self.seed = public_root(config.seed).child("malicious")
        self.model = self._task.initial(initial_seed(config.seed))
        spec = self.spec = self._task.spec
        names = list(spec.slices)
        weights = [name for name in names if name.endswith("weight")]
        if len(weights) < 2 or not isinstance(spec.slices[weights[0]], slice):
            raise InputError("this attack needs a perceptron with a hidden layer", fix="use model.name=mlp")
        self.first, self._last = spec.slices[weights[0]], spec.slices[weights[-1]]
        self.biases = self.model[spec.slices[weights[0].replace("weight", "bias")]]
        self.output_bias = spec.slices[weights[-1].replace("weight", "bias")]
        members = range(config.members) if self._summed else range(1)
        batches = [self._task.examples(member) for member in members]
        self.pictures = np.concatenate([np.asarray(inputs).reshape(len(inputs), -1) for inputs, _ in batches])
        self.labels = np.concatenate([np.asarray(labels) for _, labels in batches])
        self.batch, self.target = len(self.pictures), int(self.labels[0])
        held_out = self._task.held_out(300).examples(0)[0]
        self.public = np.asarray(held_out).reshape(len(held_out), -1).astype(np.float64)
        drawn = _plan(spec.n_trainable, aggregators, case.plan, self.seed)
        self.seen = np.zeros(spec.n_trainable, bool)
        self.seen[drawn.coordinates(self.shard_of_first_layer(drawn))] = True

    def shard_of_first_layer(self, plan: ShardPlan) -> int:
        """Return the shard that has most of the first layer."""
        owners = plan.owners_of(np.arange(self.first.start, self.first.stop))
        return int(np.bincount(owners, minlength=plan.shards).argmax())

    def shard_of_target(self, plan: ShardPlan) -> int:
        """Return the shard with the output bias that fishing is about."""
        return int(plan.owners_of(np.array([self.output_bias.start + self.target]))[0])

    def trapped(self, model: Vector, seen: Seen) -> Vector:
        """Return the model with traps in what the aggregator decides."""
        found = model.copy()
        planted_traps(found[self.first], self._rows(seen), self.biases, self.public, self.batch, self.seed)
        return found

    def fished(self, model: Vector) -> Vector:
        """Return the model with one class pushed down."""
        found = model.copy()
        found[self.output_bias.start + self.target] -= _PUSH
        return found

    def share_read(self, seen: Seen) -> float:
        """Return the share of a row's entries that are read, over the rows of which any are."""
        rows = self._rows(seen)
        some = rows.any(axis=1)
        return float(rows[some].mean()) if some.any() else 0.0

    def _rows(self, seen: Seen) -> Seen:
        """Return what is seen of the first layer, units × inputs."""
        return np.asarray(seen[self.first].reshape(len(self.biases), -1), bool)

    def update(self, model: Vector) -> Vector:
        """Return the update of which the aggregator sees its part: one member's, or the sum of all."""
        members = range(self._config.members) if self._summed else range(1)
        updates = [self.trained(member, model).update for member in members]
        return cast(Vector, np.sum(updates, axis=0))

    def isolated(self, update: Vector, seen: Seen) -> float:
        """Return the share of pictures that are isolated: the visible part of some row is proportional to them."""
        visible = self._rows(seen)
        rows = update[self.first].reshape(visible.shape)
        found: set[int] = set()
        for row, own in zip(rows, visible, strict=True):
            if own.sum() > 1 and np.abs(row[own]).max() > 0:
                cosines = np.abs(_cosines(row[own], self.pictures[:, own]))
                if cosines.max() > _TRAPPED:
                    found.add(int(cosines.argmax()))
        return len(found) / self.batch

    def fishing(self, model: Vector) -> float:
        """Return the cosine of one class's output row with the same row trained on that class's samples alone."""
        place = slice(self._last.start, self._last.stop)
        width = (place.stop - place.start) // (self.output_bias.stop - self.output_bias.start)
        row = slice(place.start + self.target * width, place.start + (self.target + 1) * width)
        whole = self.update(model)[row]
        alone = self._of_class(model)[row]
        return float(_cosines(whole, alone[None])[0])

    def _of_class(self, model: Vector) -> Vector:
        labels = [np.asarray(self._task.examples(member)[1]) for member in range(self._config.members)]
        chosen = [np.flatnonzero(own == self.target) for own in labels]
        only = self._task.restricted(chosen)
        members = range(self._config.members) if self._summed else range(1)
        parts = [
            len(chosen[member]) * only.sample_gradients(member, model).mean(axis=0)
            for member in members
            if len(chosen[member])
        ]
        return cast(Vector, np.sum(parts, axis=0))

    def trained(self, peer: int, model: Vector) -> LocalResult:
        """Return what a peer sends; one that is more than the members there are trains as one of them does."""
        member = peer % self._config.members
        seed = private_root(self._config.seed, member)
        result: LocalResult = self._task.train(member, model, self._task.memory(member), round=0, seed=seed)
        return result


def planted_traps(
    first: Vector, seen: NDArray[np.bool_], biases: Vector, public: NDArray[np.float64], batch: int, seed: Seed
) -> None:
    """Write traps into the visible entries of a first layer (flat, units × inputs), in place.

    Each row gets its own direction, scaled so that, with the existing bias, the unit is on for one public picture in a
    batch's worth. The unseen part of a row keeps its values; the trap is so much larger that they hardly matter.

    Args:
        first: the layer's weights.
        seen: which of them the aggregator decides.
        biases: of the layer's units.
        public: pictures to scale the traps by.
        batch: the size of a batch.
        seed: of the random directions.
    """
    rows = first.reshape(seen.shape)
    generator = seed.child("traps").generator()
    for unit, own in enumerate(seen):
        if own.sum() < 2:
            continue
        direction = generator.standard_normal(int(own.sum()))
        rest = public[:, ~own] @ rows[unit, ~own].astype(np.float64) + float(biases[unit])
        along = public[:, own] @ direction
        loud = _LOUD * (rest.std() + abs(float(rest.mean())) + 1e-3) / max(along.std(), 1e-9)
        # Without control of the bias no constant can be added; a multiple of the public mean picture stands in for it.
        mean = public[:, own].mean(axis=0)
        height = public[:, own] @ mean
        shift = -np.quantile(loud * along + rest, 1 - 1 / batch) / max(float(height.mean()), 1e-9)
        rows[unit, own] = (loud * direction + shift * mean).astype(np.float32)


def _plan(n: int, aggregators: int, plan: str, seed: Seed) -> ShardPlan:
    return contiguous(n, aggregators) if plan == "contiguous" else scattered(n, aggregators, seed.child("plan"))


def _cosines(vector: Vector, rows: NDArray[Any]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    return np.asarray((rows @ vector) / np.maximum(lengths, 1e-30), np.float64)
