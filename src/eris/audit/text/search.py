"""Tokens whose gradient is nearest to what was seen: a search in the manner of LAMP.

A text is relaxed to a probability over the vocabulary at every place; Adam moves its logits until the gradient's
direction, on the seen coordinates and nowhere else, is that of what was seen. Then it is made discrete, and tokens are
exchanged one by one as long as that brings the gradient nearer. There is no language model to say what sounds likely:
the texts here are drawn at random.
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
    """How long to search, and how many tokens to try at each place afterwards."""

    steps: int = 200
    rate: float = 0.2
    tried: int = 8
    sweeps: int = 2

    def tokens(self, victim: TinyTransformer, seen: SeenGradient, length: int, seed: Seed) -> Tokens:
        """Return the best text of so many tokens."""
        distance = _distance(victim, seen)
        logits = torch.from_numpy(0.1 * seed.child("start").generator().standard_normal((length, victim.vocabulary)))
        logits = logits.float().requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=self.rate)
        for _ in range(self.steps):
            (logits.grad,) = torch.autograd.grad(distance(torch.softmax(logits, -1)), logits)
            optimizer.step()
        return self._exchanged(distance, logits.detach(), victim.vocabulary)

    def _exchanged(self, distance: Callable[[Tensor], Tensor], logits: Tensor, vocabulary: int) -> Tokens:
        """Exchange single tokens for the next likely ones while that brings the gradient nearer."""
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
    """Return one minus the cosine between a relaxed text's gradient and what was seen, on what was seen."""
    weights = list(victim.trained().values())
    places = torch.from_numpy(np.flatnonzero(seen.seen))
    wanted = torch.from_numpy(seen.values)[places]

    def distance(text: Tensor) -> Tensor:
        loss = victim.loss_of(text @ victim.words.weight, text)
        parts = torch.autograd.grad(loss, weights, create_graph=True)
        gradient = torch.cat([part.flatten() for part in parts])[places]
        return 1 - functional.cosine_similarity(gradient, wanted, dim=0)

    return distance
