"""The parts of a search that several attacks share: a start, a descent, and restarts if it led nowhere.

A search never learns how good its picture is, only how well it matches; of several attempts the best match is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from eris.audit.reconstruction.attack import Labels, Mode, Recovered
from eris.audit.reconstruction.label_inference import infer_labels, open_labels
from eris.audit.reconstruction.matching import Matching
from eris.audit.reconstruction.observation import UpdateObservation
from eris.audit.reconstruction.public_model import PublicModel
from eris.local.torch_module import one_thread
from eris.seeds import Seed

__all__ = [
    "LabelledSearch",
    "SearchProblem",
    "SearchResult",
    "best_of",
    "descend",
    "labels_for",
    "noise_like",
]

_PAUSE = 20  # steps between two checks of the loss


@dataclass
class SearchResult:
    """The outcome of one search."""

    pictures: Tensor  # not yet cut off at 0 and 1
    loss: float  # of the match
    trace: list[float] = field(default_factory=list)  # losses on the way
    labels: Labels | None = None  # if it searched for them too

    def recovered(self, labels: Labels) -> Recovered:
        """Return the result of the attack: pictures in [0, 1], with the labels that the search found or was given."""
        images = self.pictures.detach().clamp(0, 1).to(torch.float32).numpy()
        found = labels if self.labels is None else self.labels
        return Recovered(images, found, self.loss, tuple(self.trace))


@dataclass(frozen=True, eq=False)
class SearchProblem:
    """What a search is given once the labels are settled: what was seen, and the match that it improves."""

    observation: UpdateObservation
    public: PublicModel
    mode: Mode
    labels: Labels
    matching: Matching
    enough: float  # a match this good ends the search

    @property
    def targets(self) -> Tensor:
        """The labels, as the loss takes them."""
        return torch.from_numpy(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all pictures together."""
        return (len(self.labels), *self.public.shape)


class LabelledSearch(ABC):
    """An attack that settles the labels first, then searches for pictures from one start after the other."""

    restarts: int
    enough: float  # a match this good needs no further start

    def recover(
        self,
        observation: UpdateObservation,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the samples behind an observation."""
        matching = Matching(observation, public, mode=mode)
        enough = max(self.enough, matching.floor)

        def attempt(known: Labels, restarts: int) -> SearchResult:
            problem = SearchProblem(observation, public, mode, known, matching, enough)
            return best_of(self.searching(problem, seed), seed, restarts=restarts, enough=enough)

        likely = labels_for(observation, public, labels, seed)
        if labels is None and mode == "mask-aware" and len(likely) == 1:
            likely = _best_label(open_labels(observation, public), attempt, enough)
        return attempt(likely, self.restarts).recovered(likely)

    @abstractmethod
    def searching(self, problem: SearchProblem, seed: Seed) -> Callable[[Seed], SearchResult]:
        """Return the search from one start; it is called with the seed of each, `seed` is that of the attack."""


def best_of(search: Callable[[Seed], SearchResult], seed: Seed, *, restarts: int, enough: float) -> SearchResult:
    """Search up to `restarts` times, until a match is no worse than `enough`, and return the best.

    Every search gets its own seed; all run in one thread, for the same bits.
    """
    found: list[SearchResult] = []
    with one_thread():
        for number in range(restarts):
            found.append(search(seed.child("restart", number)))
            if found[-1].loss <= enough:
                break
    return min(found, key=lambda attempt: attempt.loss)


def labels_for(observation: UpdateObservation, public: PublicModel, labels: Labels | None, seed: Seed) -> Labels:
    """Return the given labels, or else infer them from the last layer; `seed` is then of the noise to compare with."""
    if labels is not None:
        return labels
    with one_thread():
        return infer_labels(observation, public, observation.local.samples, seed=seed.child("labels"))


def _best_label(several: Labels, attempt: Callable[[Labels, int], SearchResult], enough: float) -> Labels:
    """Return, of the labels that one sample may have, that with the best match from one start."""
    if len(several) == 1:
        return several
    best, loss = several[:1], np.inf
    for place in range(len(several)):
        known = several[place : place + 1]
        if (found := attempt(known, 1).loss) < loss:
            best, loss = known, found
        if loss <= enough:
            break
    return best


def noise_like(public: PublicModel, count: int, seed: Seed) -> Tensor:
    """Return standard normal values in the shape of `count` pictures that the public model takes."""
    values = seed.child("start").generator().standard_normal((count, *public.shape))
    return torch.from_numpy(values).to(public.dtype)


def descend(
    variables: list[Tensor], loss: Callable[[], Tensor], *, steps: int, enough: float
) -> tuple[float, list[float]]:
    """Minimise a loss over `variables`, in place, by L-BFGS with a line search; return the last loss and the trace.

    It ends after about `steps` steps, with a loss of `enough` or less, or when the loss no longer falls.
    """
    optimizer = torch.optim.LBFGS(
        variables,
        max_iter=_PAUSE,
        max_eval=2 * _PAUSE,
        history_size=100,
        tolerance_grad=1e-12,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )
    trace: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        trace.append(value.item())
        return value

    lowest = np.inf
    for _ in range(-(-steps // _PAUSE)):
        optimizer.step(closure)  # type: ignore[no-untyped-call, unused-ignore]
        before, lowest = lowest, min(lowest, min(trace[-_PAUSE:]))
        if lowest <= enough or not np.isfinite(trace[-1]) or lowest > 0.9999 * before:
            break
    return float(loss().detach()), trace
