"""Membership inference on the events of a run, from several observers at once.

The audit listens to the run. At each verdict it takes each observer's place, estimates every victim's update, and lets
every attack score that victim's canaries. It uses only an observer's view, what is public, and the observer's own
update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.attack import CanaryProbe, MembershipAttack, Memory, Observation, PublicProbe
from eris.audit.attacks.by_name import ATTACKS, attacks_on
from eris.audit.canaries import Coins, PlantedTask
from eris.audit.estimate import NeighbourEstimator, UpdateEstimate, UpdateEstimator
from eris.audit.observer import (
    DecentralisedRecorder,
    DecentralisedTranscript,
    Observer,
    RoundTranscript,
    TranscriptRecorder,
    partners_of,
)
from eris.audit.scoring import Figure, Scores, ScoreSheet, by_member, by_round, detection, epsilon, figures
from eris.compose import Composition
from eris.config import Config
from eris.errors import ConfigError
from eris.events import Event, Sent
from eris.local.spec import Vector
from eris.methods.noise_budget import local_steps
from eris.seeds import Seed
from eris.view import View

__all__ = ["MembershipAudit", "MembershipResult", "ObservationPlace"]


@dataclass(frozen=True)
class MembershipResult:
    """The figures of one attack from one observer."""

    method: str
    observer: str
    attack: str
    rounds: int  # taken into account
    members: int
    canaries: int  # of all members together
    visible_share: float  # of the update, mean over rounds, members and views
    views: int  # most places from which one member was looked at
    figures: dict[str, Figure] = field(repr=False)  # by statistic
    epsilon: dict[str, Any] = field(repr=False)  # a lower bound on ε, and what is needed to interpret it
    by_round: list[float] = field(repr=False)  # share of right guesses, mean over views and members
    by_member: list[float] = field(repr=False)  # share of right guesses at the last round, mean over views
    true_positives: dict[str, dict[str, Any]] = field(repr=False)  # by false positive rate
    sheet: ScoreSheet = field(repr=False, compare=False)  # the guesses
    coins: tuple[Coins, ...] = field(repr=False, compare=False)

    def plain(self) -> dict[str, Any]:
        """Return everything but the scores and coins, which have files of their own, as plain data for JSON."""
        apart = {"figures", "sheet", "coins"}
        data = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in apart}
        return data | {"figures": {name: figure.plain() for name, figure in self.figures.items()}}


@dataclass
class ObservationPlace:
    """One place from which one victim is observed: the estimator there, and each attack's memory and scores."""

    estimator: UpdateEstimator | NeighbourEstimator
    canaries: int  # of the victim
    memories: dict[str, Memory] = field(default_factory=dict, repr=False)  # by attack
    scores: dict[str, list[Scores]] = field(default_factory=dict, repr=False)  # by attack, one row for each round

    def attack(self, attacks: Sequence[MembershipAttack], seen: Observation) -> None:
        """Let every attack score a round."""
        for attack in attacks:
            scores = attack.score(seen, self.memories.setdefault(attack.name, {}))
            self.scores.setdefault(attack.name, []).append(np.array(scores, np.float64))

    def miss(self, attacks: Sequence[MembershipAttack]) -> None:
        """Record a round without the victim: cumulative attacks keep their scores, the others have none (NaN)."""
        for attack in attacks:
            rows = self.scores.setdefault(attack.name, [])
            before = rows[-1] if rows else np.zeros(self.canaries)
            rows.append(before if attack.cumulative else np.full(self.canaries, np.nan))


class MembershipAudit:
    """Listens to a run with planted canaries and attacks every victim from every observer.

    Args:
        composition: the method that is run, with its configuration.
        planted: the task with its canaries.
        observers: who looks.
        views: the most places from which an observer looks at a victim.
        masks_known: whether the attacker knows which coordinates each member kept under independent masks.
        attacks: the attacks to make; without, every registered one that the task allows.
    """

    def __init__(
        self,
        composition: Composition,
        planted: PlantedTask,
        observers: Sequence[Observer],
        *,
        views: int = 8,
        masks_known: bool = False,
        attacks: Sequence[MembershipAttack] | None = None,
    ) -> None:
        self._composition, self._planted, self.observers = composition, planted, tuple(observers)
        self._masks_known = masks_known
        self.attacks = tuple(attacks_on(planted) if attacks is None else attacks)
        self._shares: dict[Observer, list[float]] = {observer: [] for observer in self.observers}
        decentralised = composition.method.exchange is not None
        make = self._neighbour_places if decentralised else self._places
        self.places = {
            observer: [make(observer, victim, views) for victim in range(planted.task.members)]
            for observer in self.observers
        }
        self._recorder = (
            DecentralisedRecorder(self._attack_decentralised)
            if decentralised
            else TranscriptRecorder(composition.recipe, self._attack)
        )

    def __call__(self, event: Event) -> None:
        """Pass an event on to the recorder, which delivers each round when it is complete."""
        self._recorder(event)

    def result(
        self,
        observer: Observer,
        attack: str,
        *,
        rounds: int | None = None,
        delta: float = 1e-5,
        tosses: int = 1000,
    ) -> MembershipResult:
        """Return the figures of one attack from one observer.

        Args:
            observer: the observer.
            attack: the attack's name.
            rounds: how many rounds to take into account (all of them without); one run can be asked about several.
            delta: the δ at which ε is reported.
            tosses: how often the coins are tossed again for the chance level.
        """
        coins, seed = self._planted.canaries.coins, _audit_seed(self._composition).child("statistics")
        taken = self.scores(observer)
        if attack not in taken:
            raise ConfigError(f"attack {attack} was not part of this audit", fix=f"use one of {', '.join(taken)}")
        scores = [part[:rounds] for part in taken[attack]]
        if self._composition.method.trusted and not ATTACKS.find(attack).cumulative:
            scores = [part[-1:] for part in scores]  # only the final model is shown to anyone
        sheet = ScoreSheet.of(scores, seed)
        return MembershipResult(
            method=self._composition.method.name,
            observer=str(observer),
            attack=attack,
            rounds=len(taken[attack][0][:rounds]),
            members=self._planted.task.members,
            canaries=self._planted.canaries.count,
            visible_share=float(np.mean(self._shares[observer])),
            views=max(part.shape[1] for part in scores),
            figures=figures(sheet, coins, seed, tosses=tosses),
            epsilon=epsilon(sheet, coins, delta=delta),
            by_round=by_round(sheet, coins),
            by_member=by_member(sheet, coins),
            true_positives=detection([sheet], [coins]),
            sheet=sheet,
            coins=coins,
        )

    def scores(self, observer: Observer) -> dict[str, list[Scores]]:
        """Return the scores by attack, one array for each member: rounds × views × canaries."""
        return {
            attack.name: [_stacked(places, attack.name) for places in self.places[observer]] for attack in self.attacks
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all scores as named arrays, to write to a file; `load` takes them back."""
        kept: dict[str, NDArray[Any]] = {}
        for observer in self.observers:
            for attack, members in self.scores(observer).items():
                kept |= {f"{observer}/{attack}/{member}": part for member, part in enumerate(members)}
            kept[f"{observer}/shares"] = np.array(self._shares[observer])
        return kept

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load the scores that `arrays` returned, so that a finished run can be reported on again."""
        for observer in self.observers:
            self._shares[observer] = arrays[f"{observer}/shares"].tolist()
            for attack in self.attacks:
                for member, places in enumerate(self.places[observer]):
                    rounds = arrays[f"{observer}/{attack.name}/{member}"]
                    for view, place in enumerate(places):
                        place.scores[attack.name] = [row[view] for row in rounds]

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return the audit's state after the rounds so far, for a checkpoint: scores, estimators, attacks' memories."""
        kept = self.arrays()
        for start, place in self._named_places():
            kept |= {f"{start}estimator/{name}": part for name, part in place.estimator.memory().items()}
            for attack, memory in place.memories.items():
                kept |= {f"{start}{attack}/{name}": part for name, part in memory.items()}
        return kept

    def remember(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state that `memory` returned."""
        self.load(arrays)
        for start, place in self._named_places():
            place.estimator.remember(_below(arrays, f"{start}estimator/"))
            place.memories = {attack.name: _below(arrays, f"{start}{attack.name}/") for attack in self.attacks}

    def _named_places(self) -> Iterator[tuple[str, ObservationPlace]]:
        """Yield every place with the prefix of its arrays' names."""
        for observer, members in self.places.items():
            for victim, places in enumerate(members):
                for number, place in enumerate(places):
                    yield f"{observer}/place/{victim}/{number}/", place

    def _places(self, observer: Observer, victim: int, views: int) -> list[ObservationPlace]:
        """Return up to `views` places from which a victim is observed, for methods with one common model."""
        composition, members = self._composition, self._planted.task.members
        # A trusted server tells nobody what it saw: everybody else has only what it publishes.
        looking = Observer("broadcast") if composition.method.trusted else observer
        seed, server = _audit_seed(composition), composition.method.server
        places: dict[str, Any] = {"limit": views, "server": server}
        places["partners"] = partners_of(composition.config, composition.method.name)
        vantages = looking.vantages(victim, composition.aggregators, members, seed, **places)
        options: dict[str, Any] = {"momentum": _momentum(composition), "masks_known": self._masks_known}
        return [
            self._place(victim, UpdateEstimator(composition.recipe, victim, vantage, **options)) for vantage in vantages
        ]

    def _neighbour_places(self, observer: Observer, victim: int, views: int) -> list[ObservationPlace]:
        """Return up to `views` places from which a victim is observed, where members have their own models."""
        composition = self._composition
        vantages = observer.places_among(victim, self._planted.task.members, _audit_seed(composition), limit=views)
        n, sends_models = composition.recipe.spec.n_trainable, composition.method.sends_models
        options: dict[str, Any] = {"sends_models": sends_models, "momentum": _momentum(composition)}
        return [self._place(victim, NeighbourEstimator(victim, vantage, n, **options)) for vantage in vantages]

    def _place(self, victim: int, estimator: UpdateEstimator | NeighbourEstimator) -> ObservationPlace:
        return ObservationPlace(estimator, len(self._planted.canaries.places[victim]))

    def _attack(self, transcript: RoundTranscript) -> None:
        """Attack every victim in a round of a method with one common model."""
        n, step = self._composition.recipe.spec.n, _step(self._composition)
        model, sent = transcript.model, transcript.sent
        public = self._public(model)
        together = tuple(self._probes(model, step)) if self._planted.held_together else ()
        for victim in range(self._planted.task.members):
            probe = together[victim] if together else CanaryProbe(self._planted, victim, model, step=step)
            for observer in self.observers:
                for place in self.places[observer][victim]:
                    assert isinstance(place.estimator, UpdateEstimator)
                    if victim in sent:
                        estimate, others = place.estimator.follow(transcript), place.estimator.others(transcript)
                        beside = (others, together, frozenset(sent) - {*place.estimator.vantage.peers})
                        self._score(observer, place, estimate, probe, n, public, self._steps(sent[victim]), *beside)
                    else:
                        place.estimator.miss(transcript)
                        place.miss(self.attacks)

    def _attack_decentralised(self, transcript: DecentralisedTranscript) -> None:
        """Attack every victim in a round of a method whose members have their own models."""
        publics: dict[bytes, PublicProbe | None] = {}
        for victim in range(self._planted.task.members):
            probes: dict[bytes, CanaryProbe] = {}  # cached: gradients are expensive, and many models the same
            steps = max((sent.steps for sent in transcript.sent.get(victim, ())), default=1.0)
            for observer in self.observers:
                for place in self.places[observer][victim]:
                    assert isinstance(place.estimator, NeighbourEstimator)
                    model = place.estimator.model(transcript)
                    probe = probes.setdefault(model.tobytes(), CanaryProbe(self._planted, victim, model))
                    estimate = place.estimator.follow(transcript, model)
                    public = publics.setdefault(model.tobytes(), self._public(model))
                    self._score(observer, place, estimate, probe, len(model), public, steps)

    def _score(
        self,
        observer: Observer,
        place: ObservationPlace,
        estimate: UpdateEstimate,
        probe: CanaryProbe,
        n: int,
        public: PublicProbe | None,
        steps: float,
        others: Sequence[View] = (),
        candidates: tuple[CanaryProbe, ...] = (),
        averaged: frozenset[int] = frozenset(),
    ) -> None:
        samples, rate = self._samples(probe.member), _rate(self._composition, steps)
        beside = (public, tuple(others), candidates, averaged)
        seen = Observation(estimate.view.round, estimate, probe, samples, rate, *beside)
        place.attack(self.attacks, seen)
        self._shares[observer].append(estimate.view.size / n)

    def _probes(self, model: Vector, step: float) -> Iterator[CanaryProbe]:
        """Yield the probes of all members, for attacks on all of them together."""
        for member in range(self._planted.task.members):
            yield CanaryProbe(self._planted, member, model, step=step)

    def _public(self, model: Vector) -> PublicProbe | None:
        return None if self._planted.public is None else PublicProbe(self._planted.public, model)

    def _steps(self, sent: Sent) -> float:
        """Return the effective local steps of a member: masked ones do not tell, but everybody knows the settings."""
        if not self._composition.recipe.unmaskers:
            return sent.steps
        return _agreed_steps(self._composition.config, round(self._samples(sent.member)))

    def _samples(self, victim: int) -> float:
        """Return how many samples a victim trains on if weights reveal it, else the mean over all members."""
        task = self._planted.task
        if self._composition.config.server.weights == "samples":
            return float(task.samples(victim))
        return float(np.mean([task.samples(member) for member in range(task.members)]))


def _stacked(places: Sequence[ObservationPlace], attack: str) -> Scores:
    views = [place.scores.get(attack) or np.empty((0, place.canaries)) for place in places]
    return np.stack([np.asarray(rows) for rows in views], axis=1)


def _below(arrays: Mapping[str, NDArray[Any]], start: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(start): part for name, part in arrays.items() if name.startswith(start)}


def _audit_seed(composition: Composition) -> Seed:
    """Return the seed of everything an audit draws; it is independent of the coins' seed."""
    return composition.recipe.public.child("audit")


def _momentum(composition: Composition) -> float:
    local = composition.config.local
    return local.momentum if local.keep_state and local.optimizer == "sgd" else 0.0


def _agreed_steps(config: Config, samples: int) -> float:
    """Return how many plain steps the local steps of the configuration amount to, as an unmasked member tells it."""
    momentum = config.local.momentum if config.local.optimizer == "sgd" else 0.0
    return sum((1 - momentum**step) / (1 - momentum) for step in range(1, local_steps(config, samples) + 1))


def _rate(composition: Composition, steps: float) -> float:
    """Return how far one unit of a mean gradient moves an update."""
    local = composition.config.local
    return 1.0 if local.send == "gradient" else local.lr * steps


def _step(composition: Composition) -> float:
    """Return how far an update moves the model: 1 for a difference of models, the server's step for a gradient."""
    config = composition.config
    return 1.0 if config.local.send == "delta" else float(config.server.optimizer_options.get("lr", 1.0))
