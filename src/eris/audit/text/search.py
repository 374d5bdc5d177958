"""Search for the tokens whose gradient is nearest to what was seen, in the manner of LAMP.

A text is relaxed to probabilities over the vocabulary at every place; Adam moves their logits until the gradient of
every trained weight, on its seen coordinates only, points in the direction of what was seen. Then the text is made
discrete: tokens are put into another order and exchanged one by one as long as that brings the gradient nearer. The two
take turns, since a relaxed text often has the right words at wrong places, from which its next turn starts better. No
language model says what sounds likely, as the texts here are drawn at random.

With adapters (LoRA) the trained weights are A and B of every adapter, and nothing else is compared. Where B is zero, as
it is in a first round, the gradient of A is zero whatever the text: an observer that has coordinates of A alone learns
nothing, and the search says so (None) instead of guessing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from eris.audit.text.span import SeenGradient
from eris.audit.text.victim import Encoder, TinyTransformer, Tokens, gradients_of_each, spans_of
from eris.seeds import Seed

__all__ = ["TokenSearch"]

_AT_ONCE = 32  # texts whose gradients are taken together
_MEMORY = 1 << 24  # values of gradients that are held at once
_EXACT = 1e-4  # a distance that only the text itself has; noise and rounding leave more


@dataclass(frozen=True, slots=True)
class TokenSearch:
    """A search by Adam and by exchanges, in turns.

    Attributes:
        steps: of Adam in a turn.
        rate: of Adam.
        tried: the tokens that are tried at each place.
        sweeps: how often at most a turn goes through all orders and exchanges.
        turns: how often both are done, unless a text matches exactly.
    """

    steps: int = 100
    rate: float = 0.2
    tried: int = 8
    sweeps: int = 4
    turns: int = 2

    def tokens(self, victim: TinyTransformer | Encoder, seen: SeenGradient, length: int, seed: Seed) -> Tokens | None:
        """Return the best text of `length` tokens; None where nothing that was seen depends on the text."""
        match = _Match(victim, seen)
        if match.is_empty:
            return None
        start = seed.child("start").generator().standard_normal((length, victim.vocabulary))
        logits, turns = torch.from_numpy(0.1 * start).float(), []
        for _ in range(self.turns):
            logits = self._relaxed(match, logits)
            turns.append(self._discrete(match, logits))
            if turns[-1].distance < _EXACT:
                break
            logits = logits[turns[-1].order]
        return np.asarray(min(turns, key=lambda found: found.distance).tokens.numpy())

    def _relaxed(self, match: _Match, logits: Tensor) -> Tensor:
        logits = logits.clone().requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=self.rate)
        for _ in range(self.steps):
            (logits.grad,) = torch.autograd.grad(match.distance(torch.softmax(logits, -1)), logits)
            optimizer.step()
        return logits.detach()

    def _discrete(self, match: _Match, logits: Tensor) -> _Found:
        """Return the nearest text that other orders and exchanges lead to."""
        ranked, tokens = logits.topk(self.tried, dim=-1).indices, logits.argmax(-1)
        found = _Found(tokens, torch.arange(len(tokens)), float(match.distances(tokens[None])[0]))
        for _ in range(self.sweeps):
            before = found.distance
            found = _exchanged(match, _reordered(match, found), ranked)
            if found.distance == before:
                break
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A text, the places its tokens had in the relaxed text, and how far its gradient is from what was seen."""

    tokens: Tensor
    order: Tensor
    distance: float


def _reordered(match: _Match, found: _Found) -> _Found:
    """Take the best of all simple changes of order, again and again while that brings the gradient nearer."""
    orders = torch.stack(list(_orders(len(found.tokens))))
    for _ in range(len(found.tokens)):
        distances = match.distances(found.tokens[orders])
        best = int(distances.argmin())
        if distances[best] >= found.distance:
            break
        found = _Found(found.tokens[orders[best]], found.order[orders[best]], float(distances[best]))
    return found


def _exchanged(match: _Match, found: _Found, ranked: Tensor) -> _Found:
    """Exchange single tokens for likely ones of the relaxed text (`ranked`) while that brings the gradient nearer."""
    for place in range(len(found.tokens)):
        trials = found.tokens.repeat(ranked.shape[1], 1)
        trials[:, place] = ranked[found.order[place]]  # a token that has moved takes its alternatives along
        distances = match.distances(trials)
        best = int(distances.argmin())
        if distances[best] < found.distance:
            found = _Found(trials[best], found.order, float(distances[best]))
    return found


def _orders(length: int) -> Iterator[Tensor]:
    """Yield the order as it is, all with two places exchanged, and all with one place moved elsewhere."""
    yield torch.arange(length)
    for one in range(length):
        for other in range(length):
            order = list(range(length))
            if one < other:
                order[one], order[other] = other, one
                yield torch.tensor(order)
            if abs(one - other) > 1:
                order = list(range(length))
                order.insert(other, order.pop(one))
                yield torch.tensor(order)


class _Match:
    """How far the gradient of a text is from what was seen.

    That is one minus the cosine, taken for every weight on its own and averaged by how many of its coordinates were
    seen: one cosine over all of them would be about the few weights with the largest gradients. Weights whose seen
    values are all zero do not count.
    """

    def __init__(self, victim: TinyTransformer | Encoder, seen: SeenGradient) -> None:
        self._victim = victim
        weights = victim.trained()
        self._weights = list(weights.values())
        self._at_once = max(1, min(_AT_ONCE, _MEMORY // sum(weight.numel() for weight in self._weights)))
        self._seen: list[tuple[int, Tensor, Tensor]] = []  # number of the weight, coordinates in it, values there
        for number, place in enumerate(spans_of(weights).values()):
            inside = np.flatnonzero(seen.seen[place])
            values = seen.values[place][inside]
            if values.any():
                self._seen.append((number, torch.from_numpy(inside), torch.from_numpy(values)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing but zeros was seen."""
        return not self._seen

    def distance(self, text: Tensor) -> Tensor:
        """Return the distance of one relaxed text (places × vocabulary), which can be differentiated."""
        loss = self._victim(text @ self._victim.table.detach(), text)
        gradients = torch.autograd.grad(loss, self._weights, create_graph=True)
        return self._far([gradient[None] for gradient in gradients])[0]

    def distances(self, texts: Tensor) -> Tensor:
        """Return the distances of discrete texts (texts × places)."""
        found = []
        for some in torch.split(texts, self._at_once):
            targets = functional.one_hot(some, self._victim.vocabulary).float()
            gradients = gradients_of_each(self._victim, self._victim.table.detach()[some], targets)
            found.append(self._far(gradients).detach())
        return torch.cat(found)

    def _far(self, gradients: list[Tensor]) -> Tensor:
        total = sum(len(places) for _, places, _ in self._seen)
        parts = [
            len(places)
            / total
            * (1 - functional.cosine_similarity(gradients[number].flatten(1)[:, places], values[None]))
            for number, places, values in self._seen
        ]
        return torch.stack(parts).sum(0)
