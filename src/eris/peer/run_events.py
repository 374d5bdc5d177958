"""The events of a peer's run: its start, each round's summary, a model that is not finite, and how it ended."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from blake3 import blake3

from eris.aggregate.staging import all_finite
from eris.compose import Composition
from eris.events import (
    NO_PROGRESS,
    EventStream,
    RoleBytes,
    RoundEnded,
    RoundTraffic,
    RunCourseChanged,
    RunEnded,
    RunState,
)
from eris.local.devices import device_note
from eris.local.scores import means_of
from eris.local.tensor_file import array_pieces
from eris.peer.catch_up import model_digest
from eris.peer.play_round import ConcludedRound
from eris.peer.training import Training
from eris.protocol.member import Member
from eris.protocol.steps import members_figures

__all__ = ["NOISE_NOTE", "RunEvents"]

_LOG = logging.getLogger(__name__)
NOISE_NOTE = "noise reproducible: no privacy claim"
_NOTHING = RoleBytes(0, 0)


class RunEvents:
    """Tells the listeners of one peer how its run goes; `notes` holds what a reader of the summary must know."""

    def __init__(
        self,
        emit: EventStream,
        composition: Composition,
        member: Member,
        training: Training,
        carried: Callable[[], tuple[RoleBytes, RoleBytes]],
        *,
        evaluate: bool,
        reproducible: bool,
    ) -> None:
        """Prepare to tell of a run.

        Args:
            composition: what is run.
            carried: returns the bytes over links so far, as a member and as an aggregator.
            evaluate: score the model with the task.
            reproducible: noise comes from the run's seed, and protects nobody.
        """
        self._emit, self._composition, self._config = emit, composition, composition.config
        self._member, self._training, self._carried, self._evaluate = member, training, carried, evaluate
        self._evaluate_failed = False
        self._examined = b""  # digest of the model when it was last examined
        self._counted = _NOTHING, _NOTHING  # bytes over links at the end of the last round
        self._began = time.monotonic()
        self.notes = [NOISE_NOTE] if reproducible and composition.noise is not None else []
        if (note := device_note(self._config.local.device)) is not None:
            self.notes.append(note)

    @property
    def rounds(self) -> int:
        """How many rounds the run has: as agreed, or fewer if patience is over."""
        return self._member.round if self._member.replica.is_done else self._config.rounds

    def started(self) -> None:
        """Tell what is about to be played, and from which round on."""
        self._began = time.monotonic()
        self._emit(self._composition.started(self._member.round, self.notes))

    def concluded(self, played: ConcludedRound) -> None:
        """Sum up a round, if anybody listens for that."""
        if self._emit.wants(RoundEnded):
            self._emit(self._summed_up(played))

    def _summed_up(self, played: ConcludedRound) -> RoundEnded:
        """Sum up a round, with all bytes since the last one: others may be faster, and send before we begin."""
        before, self._counted = self._counted, self._carried()
        pairs = zip(self._counted, before, strict=True)
        member, aggregator = (RoleBytes(now.up - then.up, now.down - then.down) for now, then in pairs)
        total = int(member.up + aggregator.up)  # what each peer sent adds up to what went over all links
        return RoundEnded(
            played.plan.round,
            {
                "train_loss": played.loss,
                **played.metrics,
                **members_figures(self._member.recipe, played.verdict),
                **self._evaluated(played.plan.round + 1),
                "largest_share": played.largest_share,
            },
            RoundTraffic(member, aggregator, total, seconds=math.nan, round_seconds=played.seconds["round"]),
            played.seconds,
            len(played.verdict.lost_shards),
        )

    def _evaluated(self, done: int) -> Mapping[str, float]:
        if not self._evaluate or (done % self._config.evaluate_every and done != self.rounds):
            return {}
        try:
            return means_of(self._training.task.evaluate(self._member.replica.model))
        except Exception as error:  # noqa: BLE001 - the user's own code; its training may be fine
            if not self._evaluate_failed:
                _LOG.exception("evaluate failed; training goes on without its figures")
                self.notes.append(f"evaluate failed, first after {done} rounds: {type(error).__name__}: {error}")
            self._evaluate_failed = True
            return {}

    def examine(self, *, moves: bool = True) -> bool:
        """Check that the model is finite and, if it `moves`, has changed since the last check; warn once if not.

        Returns whether it is finite.
        """
        seen = blake3()  # not the sha256 that people compare: this runs every few rounds
        for piece in array_pieces(self._member.replica.model):
            seen.update(piece)
        before, self._examined = self._examined, seen.digest()
        finite = all_finite(self._member.replica.model)
        if not finite:
            self._degraded("the model is not finite: look for a diverging loss, a smaller learning rate helps")
        elif before == self._examined and moves:
            self._degraded("the model does not move: look for lost shards, a learning rate of 0, or frozen tensors")
        return finite

    def _degraded(self, why: str) -> None:
        if self.note(why):
            self._emit(RunCourseChanged(RunState.DEGRADED, why))

    def note(self, what: str) -> bool:
        """Keep what a reader of the summary must know, and log it, once; return whether it is new."""
        new = what not in self.notes
        if new:
            self.notes.append(what)
            _LOG.warning("%s", what)
        return new

    def ended(self, how: str, *, moves: bool) -> str:
        """Tell how the run ended for this peer, and return it: `how`, or what is wrong with an end that looks good."""
        rounds, done, digest = self.rounds, self._member.round, model_digest(self._member.replica.chosen)
        if (choice := self._member.replica.choice()) is not None:
            self.notes.append(str(choice))
        if how == "finished" and done < rounds:
            how = f"the others have finished, this peer has {done} of {rounds} rounds"
        elif how == "finished" and not self.examine(moves=moves):
            how = f"{NO_PROGRESS}: the model is not finite"
        if self._emit.wants(RunEnded):
            seconds, finished = time.monotonic() - self._began, done >= rounds and not how.startswith(NO_PROGRESS)
            self._emit(RunEnded(done, finished, digest, seconds, how))
        return how
