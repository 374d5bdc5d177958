"""The protocol of a membership attack: it takes an observation and returns a score for each canary.

The higher a canary's score, the more it looks as if it had been trained on. An attack sees one victim from one place,
round after round; what it keeps between rounds is a memory of arrays, so that an interrupted audit can go on. The known
attacks are in `eris.audit.attacks`.

An observation is an observer's estimate of a victim's update together with the canaries it asks about. `CanaryProbe`
holds the losses and gradients of one member's canaries at a round's public model, which are the same for every
observer; `Observation` adds one observer's estimate. Both compute a quantity when it is first asked for, so an attack
that uses only losses never builds a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.audit.canaries import AuditableTask, PlantedTask
from eris.audit.estimate import UpdateEstimate
from eris.audit.scoring import Scores
from eris.errors import InputError
from eris.local.spec import Vector
from eris.shards.plan import Coordinates
from eris.view import View

__all__ = ["CanaryProbe", "MembershipAttack", "Memory", "Need", "Observation", "PublicProbe"]

Need = Literal["gradients", "copies", "public"]  # the canaries' gradients; perturbed copies of texts; public samples
Memory = dict[str, NDArray[Any]]
_RIDGE = 1e-3  # of the mean squared gradient, so that canaries that look alike share their weight
_FEW = 64  # public samples whose losses are computed
Matrix = NDArray[np.float64]


class CanaryProbe:
    """Losses and gradients of one member's canaries at the public model x^t, computed once for all observers.

    Args:
        planted: the task with its canaries.
        member: whose canaries.
        model: x^t.
        step: how far an update moves the model: 1 for a difference of models, the server's step for a gradient.
    """

    def __init__(self, planted: PlantedTask, member: int, model: Vector, *, step: float = 1.0) -> None:
        self._planted, self.member, self.model, self.step = planted, member, model, np.float32(step)
        self.count = len(planted.canaries.places[member])
        self.n = planted.probe.spec.n_trainable
        self._asked: dict[bytes, Scores] = {}

    @cached_property
    def losses(self) -> Scores:
        """The loss of each canary at the public model."""
        return self.losses_at(self.model)

    @cached_property
    def gradients(self) -> Vector:
        """The gradient of each canary at the public model: canaries × trainable coordinates."""
        return self._planted.probe.sample_gradients(self.member, self.model)

    @cached_property
    def variation(self) -> Scores:
        """How likely each text's perturbed copies are compared with the text itself, at the public model."""
        return self.variation_at(self.model, self.losses)

    def losses_at(self, model: Vector) -> Scores:
        """Return the loss of each canary at another model, cached because several attacks ask for the same one."""
        key = _key(model)
        if key not in self._asked:
            self._asked[key] = self._planted.probe.sample_losses(self.member, model)
        return self._asked[key]

    def variation_at(self, model: Vector, losses: Scores) -> Scores:
        """Return for each text the mean of p(copy) over its copies − p(text), p = exp(−mean loss of a token)."""
        if self._planted.copies is None:
            raise InputError("there are no perturbed copies of the canaries", fix="give --filler")
        around = self._planted.copies.sample_losses(self.member, model).reshape(len(losses), -1)
        return np.asarray(np.exp(-around).mean(axis=1) - np.exp(-losses))

    def gram(self, coordinates: Coordinates) -> Matrix:
        """Return the Gram matrix of the canaries' gradients on some coordinates."""
        if coordinates.size == self.n:
            return self._whole_gram
        part = self.gradients[:, coordinates]
        return np.asarray(part @ part.T, np.float64)

    def gram_beside(self, rest: Coordinates, seen: Coordinates, gram_of_seen: Matrix) -> Matrix:
        """Return the Gram matrix on `rest`: where that is everything but `seen`, the whole minus `gram_of_seen`."""
        if rest.size + seen.size == self.n and rest.size:
            return self._whole_gram - gram_of_seen
        return self.gram(rest)

    @cached_property
    def _whole_gram(self) -> Matrix:
        return np.asarray(self.gradients @ self.gradients.T, np.float64)


class PublicProbe:
    """Losses and gradients of public samples at the public model x^t, computed once for all victims and observers.

    `shards` caches what an attack has computed from their gradients on some coordinates, keyed by the coordinates.
    """

    def __init__(self, task: AuditableTask, model: Vector) -> None:
        self._task, self.model = task, model
        self.shards: dict[bytes, Any] = {}
        self._asked: dict[bytes, Scores] = {}

    @cached_property
    def gradients(self) -> Vector:
        """The gradient of each sample at the public model: samples × trainable coordinates."""
        return self._task.sample_gradients(0, self.model)

    def losses_at(self, model: Vector) -> Scores:
        """Return the losses of the first few samples at another model, cached for victims seen from the same place."""
        key = _key(model)
        if key not in self._asked:
            self._asked[key] = self._few.sample_losses(0, model)
        return self._asked[key]

    @cached_property
    def _few(self) -> AuditableTask:
        return self._task.restricted([np.arange(min(_FEW, self._task.samples(0)))])


def _key(model: Vector) -> bytes:
    return blake2b(np.ascontiguousarray(model).data, digest_size=16).digest()


@dataclass(frozen=True)
class Observation:
    """What one observer knows of one victim in one round, with the canaries to ask about.

    Args:
        round: the round.
        estimate: the victim's update as far as the observer knows it.
        probe: the victim's canaries at the public model.
        samples: how many samples the victim trains on; its weight reveals it.
        rate: how far one unit of a mean gradient moves an update: learning rate times effective local steps.
        public: public samples to compare with, if there are any.
        others: views of other members in the round.
        candidates: the canaries of all members, for attacks that explain a mean by all of them together; empty where
            their gradients would take too much memory.
        averaged: the members whose canaries can be in the mean.
    """

    round: int
    estimate: UpdateEstimate = field(repr=False)
    probe: CanaryProbe = field(repr=False)
    samples: float = 1.0
    rate: float = 1.0
    public: PublicProbe | None = field(default=None, repr=False)
    others: tuple[View, ...] = field(default=(), repr=False)
    candidates: tuple[CanaryProbe, ...] = field(default=(), repr=False)
    averaged: frozenset[int] = frozenset()  # members that took part in the round and are not observing

    @property
    def public_samples(self) -> PublicProbe:
        """The public samples; raises an error if there are none."""
        if self.public is None:
            raise InputError("there are no public samples to compare with", fix="audit a task that has test samples")
        return self.public

    @cached_property
    def member_model(self) -> Vector:
        """The victim's model after training, as far as the attacker can build it."""
        built, estimate = self.probe.model.copy(), self.estimate
        built[estimate.seen] -= self.probe.step * estimate.update
        built[estimate.rest] -= self.probe.step * estimate.means
        built[self.probe.n + estimate.view.buffer_coordinates] -= estimate.view.buffers
        return built

    @cached_property
    def references(self) -> list[Vector]:
        """Other members' models, built in the same way as `member_model`; none was trained on the victim's canaries.

        The public model stands in where no other member is seen.
        """
        return [self._model_of(view) for view in self.others] or [self.probe.model]

    def _model_of(self, view: View) -> Vector:
        built, model = self.member_model.copy(), self.probe.model
        for own in (self.estimate.seen, self.probe.n + self.estimate.view.buffer_coordinates):
            built[own] = model[own]
        built[view.coordinates] = model[view.coordinates] - self.probe.step * view.values
        places = self.probe.n + view.buffer_coordinates
        built[places] = model[places] - view.buffers
        return built

    @cached_property
    def losses(self) -> Scores:
        """The loss of each canary at `member_model`."""
        return self.probe.losses_at(self.member_model)

    @cached_property
    def losses_as_sent(self) -> Scores:
        """The loss of each canary at the public model with the visible values applied unchanged, as they were sent."""
        built, view = self.probe.model.copy(), self.estimate.view
        built[view.coordinates] -= self.probe.step * view.values
        built[self.probe.n + view.buffer_coordinates] -= view.buffers
        return self.probe.losses_at(built)

    @cached_property
    def variation(self) -> Scores:
        """`CanaryProbe.variation` at `member_model`."""
        return self.probe.variation_at(self.member_model, self.losses)

    @cached_property
    def products(self) -> Scores:
        """The dot product of the known part of the update, without kept momentum, and each canary's gradient."""
        known = np.zeros(self.probe.n, np.float32)
        known[self.estimate.seen] = self.estimate.fresh_update
        known[self.estimate.rest] = self.estimate.fresh_means
        return np.asarray(self.probe.gradients @ known, np.float64)

    @cached_property
    def along(self) -> Scores:
        """`products` divided by the update's norm: each gradient's component along the update."""
        return _ratio(self.products, _norm(self.estimate.fresh_update, self.estimate.fresh_means))

    @cached_property
    def cosines(self) -> Scores:
        """The cosine of the update and each canary's gradient, on the coordinates that are known."""
        seen, rest = self._grams
        return _ratio(self.along, np.sqrt(np.maximum(np.diag(seen) + np.diag(rest), 0)))

    @cached_property
    def regression(self) -> Scores:
        """The canaries' weights when the update is written as a sum of their gradients.

        Generalised least squares: on the seen coordinates the victim's values count once; in the means with others
        they count with the victim's share, and the noise is smaller by as much. So the products are plain sums, and
        only the Gram matrix is weighted.
        """
        seen, rest = self._grams
        gram, count = seen + self.estimate.share * rest, len(self.products)
        ridge = _RIDGE * np.trace(gram) / max(1, count)
        if not ridge > 0:
            return np.zeros_like(self.products)
        return np.asarray(np.linalg.solve(gram + ridge * np.eye(count), self.products), np.float64)

    @cached_property
    def _grams(self) -> tuple[Matrix, Matrix]:
        seen = self.probe.gram(self.estimate.seen)
        return seen, self.probe.gram_beside(self.estimate.rest, self.estimate.seen, seen)


class MembershipAttack(Protocol):
    """An attack that scores canaries by how likely they were trained on; fixed before the run."""

    @property
    def name(self) -> str:
        """The attack's name on the command line."""
        ...

    @property
    def needs(self) -> frozenset[Need]:
        """What the attack needs besides losses."""
        ...

    @property
    def cumulative(self) -> bool:
        """Whether a round's scores use all rounds so far, or that round alone."""
        ...

    def score(self, seen: Observation, memory: Memory) -> Scores:
        """Return a score for each canary of the victim after this round.

        `memory` belongs to this attack on this victim from this place. It is empty at first, keeps what the attack
        writes into it, and is checkpointed with the run.
        """
        ...


def _norm(*parts: Vector) -> float:
    return float(np.sqrt(sum(float(np.dot(part, part)) for part in parts)))


def _ratio(above: Scores, below: Scores | float) -> Scores:
    """Divide elementwise, with 0 where the divisor is not positive."""
    below = np.broadcast_to(np.asarray(below, np.float64), above.shape)
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)
