"""Membership of texts by self-calibrated probabilistic variation (SPV-MIA).

A text that was trained on sits on a peak: words changed a little, its probability falls more than that of a text that
was not. The variation of a model at a text z is

    V(z) = mean over copies z̃ of p(z̃) − p(z),   p = exp(−mean loss of a token),

and the score is V at the public model less V at the model the attacker can build: what the member's own training did
to the peak. The public model x^t is the calibration; it costs the attacker nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eris.audit.canaries import AuditableTask
from eris.audit.guesses import Scores
from eris.audit.reconstruct import Estimate
from eris.audit.score import as_sent, believed
from eris.errors import InputError
from eris.local.spec import Vector
from eris.local.task import Task
from eris.seeds import Seed

if TYPE_CHECKING:
    from eris.audit.filling import Filler

__all__ = ["TEXT_SCORES", "TextScorer", "varied"]

TEXT_SCORES = ("loss", "calibrated", "paper", "spv")


class TextScorer:
    """Scores one member's texts in one round by losses alone: language models are too large for more."""

    def __init__(
        self,
        probe: AuditableTask,
        copies: AuditableTask,
        member: int,
        model: Vector,
        *,
        step: float = 1.0,
    ) -> None:
        self._probe, self._copies, self._member, self._model, self._step = probe, copies, member, model, step
        self._losses = probe.sample_losses(member, model)
        self._variation = self._variation_at(model, self._losses)

    def scores(self, estimate: Estimate) -> dict[str, Scores]:
        """Return every score of every text."""
        n = self._probe.spec.n_trainable
        model = believed(self._model, estimate, self._step, n)
        losses = self._probe.sample_losses(self._member, model)
        received = self._probe.sample_losses(self._member, as_sent(self._model, estimate, self._step, n))
        return {
            "loss": -losses,
            "calibrated": self._losses - losses,
            "paper": -received,
            "spv": self._variation - self._variation_at(model, losses),
        }

    def _variation_at(self, model: Vector, losses: Scores) -> Scores:
        """Return V of each text under a model."""
        around = self._copies.sample_losses(self._member, model).reshape(len(losses), -1)
        return np.asarray(np.exp(-around).mean(axis=1) - np.exp(-losses))


def varied(probe: AuditableTask, filler: Filler, seed: Seed, *, copies: int = 10) -> AuditableTask:
    """Return the problem whose samples are `copies` perturbed ones of each of the probe's, one after another."""
    from eris.audit.filling import perturbed
    from eris.data.dataset import Texts
    from eris.local.torch_task import TorchTask
    from eris.models.tokens import SummaryTokens

    task: Task = probe
    if not isinstance(task, TorchTask) or not isinstance(examples := task.pool, SummaryTokens):
        raise InputError("only texts with summaries can be perturbed", fix="audit a language model on such data")
    texts: list[str] = []
    summaries: list[str] = []
    places: list[NDArray[np.int64]] = []
    assert examples.split.summaries is not None
    for member in range(task.members):
        begin = len(texts)
        for sample, place in enumerate(task.places(member).tolist()):
            texts += [examples.split.texts[place]] * copies
            own = seed.child("member", member, "sample", sample)
            summary = examples.split.summaries[place]
            summaries += [perturbed(summary, filler, own.child(copy)) for copy in range(copies)]
        places.append(np.arange(begin, len(texts), dtype=np.int64))
    changed = replace(examples, split=Texts(texts, summaries=summaries))
    return task.on(changed, places)
