"""What every peer holds alike: model, optimizer state, public transform state. It moves only here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from blake3 import blake3

from eris.local.spec import Vector, as_vector
from eris.protocol.recipe import Recipe
from eris.protocol.round_mean import RoundMean, stretches
from eris.shards.plan import Coordinates
from eris.shards.policy import Layout
from eris.step.freeze import apply_except
from eris.step.optimizer import State

__all__ = ["BufferMean", "Replica"]


@dataclass(frozen=True, slots=True)
class BufferMean:
    """The mean change of the buffers, already normalised; zero where a shard was lost."""

    values: Vector


@dataclass
class Replica:
    """The state a server would have, held by every peer; equal bit for bit wherever the same verdicts were seen."""

    recipe: Recipe
    model: Vector
    optimizer: State
    public: State

    @classmethod
    def start(cls, recipe: Recipe, model: Vector) -> Replica:
        """Return the replica before the first round."""
        n = recipe.spec.n_trainable
        model = as_vector(model, recipe.spec.n, what="initial model").copy()
        return cls(recipe, model, recipe.optimizer.init(n), recipe.chain.public_state(n))

    def apply(self, mean: RoundMean, buffers: BufferMean, layout: Layout) -> None:
        """Take one step: correct the mean, run the server optimizer, average the buffers; freeze lost shards."""
        trainable, rest = np.split(self.model, [self.recipe.spec.n_trainable])
        frozen = _coordinates(layout, mean.lost)
        optimizer, places = self.recipe.optimizer_at(mean.round), stretches(trainable.size)
        values, direction = np.empty((2, places[0].stop if places else 0), np.float32)
        for place in places:
            size = place.stop - place.start
            part = mean.stretch(place, values[:size])
            moved = self.recipe.chain.incoming(part, _on(place, self.public), out=direction[:size])
            still = frozen[slice(*np.searchsorted(frozen, [place.start, place.stop]))] - place.start
            apply_except(optimizer, trainable[place], moved, _on(place, self.optimizer), still)
        rest -= buffers.values

    def state(self) -> dict[str, Vector]:
        """Return every vector by name (views, for checkpoints and snapshots)."""
        named = {"model": self.model}
        named |= {f"optimizer.{name}": value for name, value in self.optimizer.items()}
        return named | {f"public.{name}": value for name, value in self.public.items()}

    def load(self, state: Mapping[str, Vector]) -> None:
        """Take over every vector of a snapshot; nothing changes unless all of them fit."""
        mine = self.state()
        for name, value in mine.items():
            as_vector(state[name], value.size, what=name)
        for name, value in mine.items():
            np.copyto(value, state[name])

    def digest(self) -> str:
        """Return the BLAKE3 digest of the whole state."""
        hasher = blake3()
        for name, value in sorted(self.state().items()):
            hasher.update(name.encode())
            hasher.update(value.view(np.uint8).data)
        return str(hasher.hexdigest())


def _on(place: slice, state: State) -> State:
    return {name: vector[place] for name, vector in state.items()}


def _coordinates(layout: Layout, shards: tuple[int, ...]) -> Coordinates:
    """Return all coordinates of these shards, ascending."""
    parts = [layout.trainable.coordinates(shard) for shard in shards]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
