"""Collect from a simulated run what each observer saw of each victim, and the pictures it tries to recover.

The run is the configured one: the same partition, transforms, plans and faults. It may start from a given model, such
as that of a finished run, and ends when the attacked round is over. Estimates come from `UpdateEstimator`, which
follows all rounds before, so references of shifted compression are known as far as the observer saw them grow.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from eris.audit.estimate import UpdateEstimate, UpdateEstimator
from eris.audit.observer import Observer, RoundTranscript, TranscriptRecorder, partners_of
from eris.audit.reconstruction.attack import Labels
from eris.audit.reconstruction.observation import Handling, LocalSteps, Rounding, UpdateObservation, rounding_of
from eris.compose import Composition, compose
from eris.config import Config
from eris.errors import ConfigError, InputError
from eris.events import Event
from eris.local.spec import Vector
from eris.local.task import Task
from eris.methods import method_by_name, with_defaults
from eris.methods.masked import smallest_sum
from eris.methods.noise_budget import local_steps
from eris.privacy.clip import ClipByNorm
from eris.privacy.noise import noise_of
from eris.seeds import Seed, public_root
from eris.simulate.run import run
from eris.tasks import build_task
from eris.transforms.normalise import NormaliseSteps
from eris.transforms.prune import MagnitudePrune

if TYPE_CHECKING:
    from eris.local.torch_task import TorchTask

__all__ = ["CAPTURED", "CollectedRound", "ObservationCollector", "VictimObservation", "check_attackable", "collect"]

Pictures = NDArray[np.float32]

CAPTURED = "captured"  # the observer's name where an aggregator attacks masked values that it cannot read


@dataclass(frozen=True, eq=False)
class VictimObservation:
    """What one observer saw of one victim in one round."""

    observer: str
    victim: int
    round: int
    share: float  # of the victim's update that was seen
    observation: UpdateObservation = field(repr=False)


@dataclass(frozen=True, eq=False)
class CollectedRound:
    """All observations of a round, with the originals, which score the attacks and are not shown to them."""

    config: Config  # of the training, with its method's defaults
    observations: tuple[VictimObservation, ...]
    originals: dict[int, Pictures] = field(repr=False)  # victim → its pictures, normalised for the model
    labels: dict[int, Labels] = field(repr=False)  # victim → its pictures' labels
    model: Vector = field(repr=False)  # before the round


class ObservationCollector:
    """Listens to a run and keeps what each observer saw of each victim in one round.

    Args:
        composition: the method that is run.
        samples: how many samples each member has.
        observers: who looks.
        victims: the members that are attacked.
        last: the round that is attacked.
        together: whether observations include what was seen in the rounds before.
    """

    def __init__(
        self,
        composition: Composition,
        samples: Sequence[int],
        observers: Sequence[Observer],
        victims: Sequence[int],
        *,
        last: int = 0,
        together: bool = False,
    ) -> None:
        self._composition, self._samples, self._last = composition, list(samples), last
        self._together, self._earlier = together, defaultdict[int, list[UpdateObservation]](list)
        self._watching = [(observer, self._place(observer, victim)) for observer in observers for victim in victims]
        self._recorder = TranscriptRecorder(composition.recipe, self._look)
        self.observations: list[VictimObservation] = []
        self.model: Vector | None = None

    @property
    def done(self) -> bool:
        """Whether the attacked round is over."""
        return self.model is not None

    def __call__(self, event: Event) -> None:
        """Record an event, until the attacked round is over."""
        if not self.done:
            self._recorder(event)

    def _place(self, observer: Observer, victim: int) -> UpdateEstimator:
        composition, local = self._composition, self._composition.config.local
        looking = Observer("broadcast") if composition.method.trusted else observer
        seed: Seed = composition.recipe.public.child("audit")
        members, server = len(self._samples), composition.method.server
        partners = partners_of(composition.config, composition.method.name)
        places = looking.vantages(
            victim, composition.aggregators, members, seed, limit=1, server=server, partners=partners
        )
        vantage = places[0]
        momentum = local.momentum if local.keep_state else 0.0
        return UpdateEstimator(composition.recipe, victim, vantage, momentum=momentum)

    def _look(self, record: RoundTranscript) -> None:
        for number, (observer, place) in enumerate(self._watching):
            if place.victim not in record.sent:
                place.miss(record)
                continue
            estimate = place.follow(record)
            if self._together and record.round < self._last and estimate.seen.size:
                self._earlier[number].append(self._observation(estimate, record, place))
            if record.round == self._last:
                observation = replace(self._observation(estimate, record, place), earlier=tuple(self._earlier[number]))
                share = estimate.seen.size / self._composition.recipe.spec.n_trainable
                self.observations.append(
                    VictimObservation(str(observer), place.victim, record.round, share, observation)
                )
                self.observations += self._under_pads(estimate, record, place)
        if record.round == self._last:
            self.model = record.model

    def _under_pads(
        self, estimate: UpdateEstimate, record: RoundTranscript, place: UpdateEstimator
    ) -> list[VictimObservation]:
        """Return what an aggregator of masked shards received as if it were the victim's values, once for each victim.

        An observer that can read some shards has no use for those under pads.
        """
        where, values = estimate.captured
        known = any(seen.observer == CAPTURED and seen.victim == place.victim for seen in self.observations)
        if not where.size or estimate.seen.size or known:
            return []
        read = replace(estimate, seen=where, update=values, fresh_update=values)
        observation = replace(self._observation(read, record, place), rounding=None)
        share = where.size / self._composition.recipe.spec.n_trainable
        return [VictimObservation(CAPTURED, place.victim, record.round, share, observation)]

    def _observation(
        self, estimate: UpdateEstimate, record: RoundTranscript, place: UpdateEstimator
    ) -> UpdateObservation:
        """Turn an estimate into an observation; if nothing of the victim alone was seen, of the mean it is part of."""
        samples, rounding = self._samples[place.victim], None
        if estimate.seen.size:
            seen, values, rounding = estimate.seen, estimate.fresh_update, self._rounding(estimate)
        else:
            seen, values = estimate.rest, estimate.fresh_means
            samples *= sum(member not in place.vantage.peers for member in record.sent)
        if isinstance(self._composition.recipe.compressor, MagnitudePrune):
            told = values != 0  # withheld values are sent as zeros
            seen, values = seen[told], values[told]
        order = np.argsort(seen, kind="stable")
        steps = _local_steps(self._composition.config, samples, self._samples[place.victim])
        rounding = rounding and replace(rounding, units=rounding.units[order])
        return UpdateObservation(
            record.model, seen[order], values[order], steps, _handling(self._composition, steps), rounding
        )

    def _rounding(self, estimate: UpdateEstimate) -> Rounding | None:
        """Return the grid of the values that the observer received directly, if it is known."""
        view, recipe = estimate.view, self._composition.recipe
        if view.coordinates.size < estimate.seen.size or any(
            isinstance(transform, NormaliseSteps) for transform in recipe.chain.transforms
        ):
            return None  # values taken from a mean, or multiplied, are on no known grid
        return rounding_of(recipe.compressor, recipe.spec, view.coordinates, view.values)


def collect(
    config: Config,
    observers: Sequence[Observer],
    *,
    victims: int,
    rounds: int = 1,
    model: Vector | None = None,
    together: bool = False,
) -> CollectedRound:
    """Run the first `rounds` rounds of a configuration with one method, and collect observations of the last.

    Args:
        config: the training.
        observers: who looks.
        victims: how many members are attacked.
        rounds: how many rounds to run; the last one is attacked.
        model: where the training starts, instead of at the initial model.
        together: whether observations include what was seen in the rounds before, if members train on all their
            samples in every step.
    """
    config = check_attackable(config, observers, rounds)
    if together and config.local.batch != "full":
        raise ConfigError(
            "rounds can be matched together only if every step is on all samples",
            fix="use local.batch = 'full', or attack one round",
            key="local.batch",
        )
    task = _picture_task(config)
    samples = [task.samples(member) for member in range(task.members)]
    chosen = range(min(victims, task.members))
    collector = ObservationCollector(
        compose(config, task.spec, samples), samples, observers, chosen, last=rounds - 1, together=together
    )
    begun = task if model is None else cast(Task, _Continued(task, model))
    with tempfile.TemporaryDirectory() as folder:
        run(config, Path(folder) / "run", task=begun, listeners=[collector], stopped=lambda: collector.done)
    if collector.model is None:
        raise InputError(f"round {rounds} has no verdict, so there is nothing to look at", fix="attack another round")
    pairs = {victim: task.examples(victim) for victim in chosen}
    return CollectedRound(
        config,
        tuple(collector.observations),
        {victim: pair[0].numpy() for victim, pair in pairs.items()},
        {victim: pair[1].numpy() for victim, pair in pairs.items()},
        collector.model,
    )


class _Continued:
    """A task whose training starts from a given model."""

    def __init__(self, task: Task, model: Vector) -> None:
        self._task, self._model = task, model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def initial(self, seed: Seed) -> Vector:
        """Return the given model."""
        del seed
        return self._model.copy()


def _picture_task(config: Config) -> TorchTask:
    from eris.local.torch_task import TorchTask

    task = build_task(config.model_dump(mode="json", exclude_none=True))
    if not isinstance(task, TorchTask) or task.examples(0)[0].ndim != 4:
        raise InputError(f"{config.data.name} has no pictures to recover", fix="audit a data set of pictures")
    return task


def check_attackable(config: Config, observers: Sequence[Observer], rounds: int) -> Config:
    """Return the configuration with its method's defaults; refuse settings that the attacks cannot model.

    Observers that the method does not have, and more rounds than it trains, are refused as well.
    """
    config = with_defaults(config, config.methods[0])
    local, method = config.local, method_by_name(config.methods[0])
    if method.exchange is not None:
        raise ConfigError(
            f"members of {method.name} have their own models, which inversion does not follow",
            fix="audit a method that moves one common model",
            key="method",
        )
    if local.optimizer != "sgd" or local.weight_decay:
        raise ConfigError(
            "the attacks only know gradient steps (sgd without weight decay)",
            fix="use local.optimizer = 'sgd'",
            key="local.optimizer",
        )
    if local.correction:
        raise ConfigError(
            f"the attacks only know plain gradients, but {method.name} corrects them ({local.correction})",
            fix="audit a method without a correction",
            key="local.correction",
        )
    if local.estimator != "sgd":
        raise ConfigError("the attacks only know plain gradients", fix="use local.estimator = 'sgd'")
    if rounds > config.rounds:
        raise ConfigError(f"there is no round {rounds} of {config.rounds}", fix="attack an earlier round", key="rounds")
    if not method.trusted:
        for observer in observers:
            aggregators = range(method.aggregators(config))
            observer.vantages(
                0,
                aggregators,
                config.members,
                public_root(0),
                limit=1,
                server=method.server,
                partners=partners_of(config, method.name),
            )
    return config


def _local_steps(config: Config, samples: int, own: int) -> LocalSteps:
    local = config.local
    batch = samples if local.batch == "full" else min(local.batch * samples // own, samples)
    if local.send == "gradient":
        return LocalSteps(1.0, 1, samples, batch)
    momentum = 0.0 if local.keep_state else local.momentum  # kept momentum has already been subtracted
    return LocalSteps(local.lr, local_steps(config, own), samples, batch, momentum)


def _handling(composition: Composition, local: LocalSteps) -> Handling:
    transforms = composition.recipe.chain.transforms
    if (step_noise := composition.sample_noise) is not None:
        deviation = step_noise.multiplier * step_noise.bound * local.lr * math.sqrt(local.steps) / local.batch
        return Handling(sample_clip=step_noise.bound, noise=deviation)
    clip = next((transform.bound for transform in transforms if isinstance(transform, ClipByNorm)), 0.0)
    if (shared := composition.recipe.noise) is not None:  # for a member with the same weight as the others
        return Handling(clip=clip, noise=2 * shared.bound * shared.alone(smallest_sum(composition.config)))
    noise = noise_of(composition.recipe.chain)
    return Handling(clip=clip, noise=noise.deviation if noise is not None else 0.0)
