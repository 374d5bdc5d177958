"""Search for the tokens whose gradient is nearest to what was seen, in the manner of LAMP.

A text is relaxed to probabilities over the vocabulary at every place; Adam moves their logits until the gradient, on
the seen coordinates only, points in the direction of what was seen. Then the text is made discrete, and tokens are
exchanged one by one as long as that brings the gradient nearer. No language model says what sounds likely, as the texts
here are drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from eris.audit.text.span import SeenGradient
from eris.audit.text.victim import TinyTransformer, Tokens
from eris.seeds import Seed

__all__ = ["TokenSearch"]


@dataclass(frozen=True, slots=True)
class TokenSearch:
    """A search by Adam followed by exchanges: how long to search, and how many tokens to try at each place."""

    steps: int = 200
    rate: float = 0.2
    tried: int = 8
    sweeps: int = 2

    def tokens(self, victim: TinyTransformer, seen: SeenGradient, length: int, seed: Seed) -> Tokens:
        """Return the best text of `length` tokens."""
        distance = _distance(victim, seen)
        logits = torch.from_numpy(0.1 * seed.child("start").generator().standard_normal((length, victim.vocabulary)))
        logits = logits.float().requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=self.rate)
        for _ in range(self.steps):
            (logits.grad,) = torch.autograd.grad(distance(torch.softmax(logits, -1)), logits)
            optimizer.step()
        return self._exchanged(distance, logits.detach(), victim.vocabulary)

    def _exchanged(self, distance: Callable[[Tensor], Tensor], logits: Tensor, vocabulary: int) -> Tokens:
        """Exchange single tokens for the next likeliest ones while that brings the gradient nearer."""
        ranked, tokens = logits.topk(self.tried, dim=-1).indices, logits.argmax(-1)
        best = distance(functional.one_hot(tokens, vocabulary).float()).item()
        for _ in range(self.sweeps):
            before = best
            for place in range(len(tokens)):
                for other in ranked[place].tolist():
                    trial = tokens.clone()
                    trial[place] = other
                    found = distance(functional.one_hot(trial, vocabulary).float()).item()
                    if found < best:
                        tokens, best = trial, found
            if best == before:
                break
        return np.asarray(tokens.numpy())


def _distance(victim: TinyTransformer, seen: SeenGradient) -> Callable[[Tensor], Tensor]:
    """Return the function that maps a relaxed text to one minus the cosine of its gradient and what was seen."""
    weights = list(victim.trained().values())
    places = torch.from_numpy(np.flatnonzero(seen.seen))
    wanted = torch.from_numpy(seen.values)[places]

    def distance(text: Tensor) -> Tensor:
        loss = victim.loss_of(text @ victim.words.weight, text)
        parts = torch.autograd.grad(loss, weights, create_graph=True)
        gradient = torch.cat([part.flatten() for part in parts])[places]
        return 1 - functional.cosine_similarity(gradient, wanted, dim=0)

    return distance
