"""Find the token at each place whose input to the first layer lies in the span of what was seen (DAGER's check).

For every place and every token of the vocabulary the first layer's input is known. Those of the text lie in the row
space of the gradients of query, key and value; a wrong one does so only by accident. All places of the model can be
checked; beyond the end of the text nothing fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eris.audit.text.pursuit import pursued_tokens
from eris.audit.text.row_space import Mask, Matrix, row_space
from eris.audit.text.victim import TextVictim, Tokens, spans_of

__all__ = ["SeenGradient", "tokens_in_span"]

_LONGEST = 5000  # the largest vocabulary that is searched repeatedly


@dataclass(frozen=True, eq=False)
class SeenGradient:
    """What an observer saw of a member's gradient: the flat vector, and which of its coordinates were seen."""

    values: NDArray[np.float32]
    seen: NDArray[np.bool_]

    def matrix(self, place: slice, shape: tuple[int, ...]) -> tuple[Matrix, Mask]:
        """Return one weight's gradient, zero where it was not seen, and the mask of what was."""
        mask = self.seen[place].reshape(shape)
        return np.where(mask, self.values[place].reshape(shape), 0).astype(np.float64), mask


def tokens_in_span(victim: TextVictim, seen: SeenGradient, length: int) -> Tokens | None:
    """Return the token that fits best at each of `length` places; None where the space cannot be found.

    Where too little is seen to find the space itself, tokens are pursued one by one from the known list of inputs. The
    rank is the number of tokens. It is given here; an attacker that does not know it tries one after another.
    """
    spaces = _spaces(victim, seen, length)
    if not spaces:
        return _pursued(victim, seen, length)
    return np.array([_best(victim.inputs_at(place).numpy().astype(np.float64), spaces) for place in range(length)])


def _spaces(victim: TextVictim, seen: SeenGradient, length: int) -> list[tuple[int, Matrix]]:
    """Return bases of the row space, each with the number of its weight (−1 for all weights together)."""
    weights, places = victim.trained(), spans_of(victim.trained())
    parts = [seen.matrix(places[name], tuple(weights[name].shape)) for name in victim.spanning]
    if victim.inputs_at(0).ndim == 3:  # adapters: each projects in its own way
        found = [(number, row_space(values, mask, length)) for number, (values, mask) in enumerate(parts)]
    else:
        found = [(-1, row_space(*_stacked(victim, seen), length))]
    columns = parts[0][0].shape[1]
    return [(number, basis) for number, basis in found if basis is not None and length < columns]


def _pursued(victim: TextVictim, seen: SeenGradient, length: int) -> Tokens | None:
    """Return tokens from scattered entries, if the list of inputs is short enough and any entry was seen."""
    if victim.inputs_at(0).ndim == 3 or victim.vocabulary > _LONGEST:
        return None
    values, mask = _stacked(victim, seen)
    return pursued_tokens(victim, values, mask, length) if mask.any() else None


def _stacked(victim: TextVictim, seen: SeenGradient) -> tuple[Matrix, Mask]:
    weights, places = victim.trained(), spans_of(victim.trained())
    parts = [seen.matrix(places[name], tuple(weights[name].shape)) for name in victim.spanning]
    return np.vstack([values for values, _ in parts]), np.vstack([mask for _, mask in parts])


def _best(inputs: Matrix, spaces: list[tuple[int, Matrix]]) -> int:
    """Return the token whose input is nearest to all spaces."""
    missed = np.zeros(inputs.shape[-2])
    for number, basis in spaces:
        rows = inputs if number < 0 else inputs[number]
        inside = ((rows @ basis.T) ** 2).sum(axis=1)
        missed += 1 - inside / np.maximum((rows**2).sum(axis=1), 1e-12)
    return int(missed.argmin())
