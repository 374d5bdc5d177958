"""DLG and iDLG: search with L-BFGS for the picture whose gradient is the one that was seen.

DLG searches for the label too; iDLG reads it from the last layer first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eris.audit.reconstruction.attack import Labels, Mode, Recovered
from eris.audit.reconstruction.matching import Matching
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.search import (
    LabelledSearch,
    SearchProblem,
    SearchResult,
    best_of,
    descend,
    noise_like,
)
from eris.seeds import Seed

__all__ = ["DLG", "IDLG"]


@dataclass(frozen=True)
class IDLG(LabelledSearch):
    """Infer the label from the last layer; find the picture by L-BFGS from noise."""

    steps: int = 300  # of L-BFGS, in each search
    restarts: int = 3  # searches at most, the first included
    enough: float = 1e-7  # a match this good ends the search

    name = "idlg"

    def searching(self, problem: SearchProblem, seed: Seed) -> Callable[[Seed], SearchResult]:
        """Return the search from one start."""
        del seed
        public, matching, targets = problem.public, problem.matching, problem.targets

        def search(own: Seed) -> SearchResult:
            values = noise_like(public, len(problem.labels), own).requires_grad_()
            loss, trace = descend(
                [values],
                lambda: matching.loss(public.pictures(values), targets),
                steps=self.steps,
                enough=problem.enough,
            )
            return SearchResult(public.pictures(values), loss, trace)

        return search


@dataclass(frozen=True)
class DLG:
    """Find picture and label together, by L-BFGS from noise."""

    steps: int = 300  # these three as in `IDLG`
    restarts: int = 3
    enough: float = 1e-7

    name = "dlg"

    def recover(
        self,
        observation: UpdateObservation,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the samples behind an observation; with `labels` given, this is iDLG."""
        if labels is not None:
            told = IDLG(self.steps, self.restarts, self.enough)
            return told.recover(observation, public, mode=mode, seed=seed, labels=labels)
        matching, count = Matching(observation, public, mode=mode), observation.local.samples
        enough = max(self.enough, matching.floor)

        def search(own: Seed) -> SearchResult:
            values = noise_like(public, count, own).requires_grad_()
            scores = _label_scores(count, public, own).requires_grad_()
            loss, trace = descend(
                [values, scores],
                lambda: matching.loss(public.pictures(values), scores.softmax(dim=1)),
                steps=self.steps,
                enough=enough,
            )
            return SearchResult(public.pictures(values), loss, trace, scores.argmax(dim=1).numpy())

        attempt = best_of(search, seed, restarts=self.restarts, enough=enough)
        assert attempt.labels is not None
        return attempt.recovered(attempt.labels)


def _label_scores(count: int, public: PublicModel, seed: Seed) -> Tensor:
    drawn = seed.child("scores").generator().standard_normal((count, public.classes))
    return torch.from_numpy(drawn).to(public.dtype)
