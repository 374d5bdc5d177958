"""JAX tasks: a model that is a pytree, trained by your own function.

    def task(config, peer):
        return jax_task(init, train, my_rows(peer), evaluate=score)

`init(key)` returns the parameters, `train(params, data, key)` the trained ones (or a pair of these and figures), and
`evaluate(params)` a dictionary of figures. Every leaf of the tree is a tensor named by its path; integer leaves stay at
home. Flax, Equinox and Haiku have such trees: use what their `init` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eris.errors import InputError, MissingExtra
from eris.interop.foreign_call import number_of
from eris.interop.home_task import Arrays, Fitted, HomeTask
from eris.local.spec import Role
from eris.local.task import Memory
from eris.seeds import Seed

__all__ = ["JaxLearner", "jax_task"]


def jax_task(
    init: Callable[[Any], Any],
    train: Callable[[Any, Any, Any], Any],
    data: Any,
    *,
    evaluate: Callable[[Any], Mapping[str, Any]] | None = None,
    samples: int | None = None,
    steps: float = 1.0,
) -> HomeTask:
    """Make the task of one peer.

    Args:
        init: returns the initial parameters, given a random key.
        train: returns the trained parameters, given parameters, `data` and a key.
        data: whatever `train` takes.
        evaluate: returns figures, given parameters.
        samples: the peer's weight; by default the length of the first array in `data`.
        steps: how many gradient steps `train` takes, for methods that need it (FedNova).
    """
    return HomeTask(JaxLearner(init, train, data, evaluate, samples, steps))


class JaxLearner:
    """A pytree of parameters, and the functions that train and evaluate it."""

    roles: Mapping[str, Role] = {}

    def __init__(
        self,
        init: Callable[[Any], Any],
        train: Callable[[Any, Any, Any], Any],
        data: Any,
        evaluate: Callable[[Any], Mapping[str, Any]] | None,
        samples: int | None,
        steps: float,
    ) -> None:
        """Prepare to train; the arguments are those of `jax_task`."""
        try:
            import jax
        except ImportError as error:
            raise MissingExtra("jax", "jax", "a pytree") from error
        self._jax = jax
        self._init, self._train, self._evaluate = init, train, evaluate
        self._data, self._steps = data, steps
        self.count = len(jax.tree_util.tree_leaves(data)[0]) if samples is None else samples
        self._tree = jax.tree_util.tree_structure(init(self._key(0)))

    def begin(self, seed: Seed) -> Arrays:
        """Return the leaves that `init` makes with this seed's key."""
        return self._leaves(self._init(self._key(number_of(seed))))

    def memory(self) -> Memory:
        """Return nothing: optimizers start afresh in every round."""
        return {}

    def fit(self, arrays: Arrays, memory: Memory, seed: Seed) -> Fitted:
        """Call the function that trains."""
        del memory
        trained = self._train(self._whole(arrays), self._data, self._key(number_of(seed)))
        figures: Mapping[str, Any] = {}
        if isinstance(trained, tuple) and len(trained) == 2 and isinstance(trained[1], Mapping):
            trained, figures = trained if self._structure(trained) != self._tree else (trained, {})
        if self._structure(trained) != self._tree:
            raise InputError(
                "train returned a different tree than init", fix="return the parameters, or a pair of them and figures"
            )
        return Fitted(self._leaves(trained), self._steps, figures)

    def score(self, arrays: Arrays) -> Mapping[str, Any]:
        """Call the function that evaluates."""
        return self._evaluate(self._whole(arrays)) if self._evaluate is not None else {}

    def _key(self, number: int) -> Any:
        return self._jax.random.key(number % 2**32)

    def _structure(self, tree: Any) -> Any:
        return self._jax.tree_util.tree_structure(tree)

    def _leaves(self, tree: Any) -> Arrays:
        named, _ = self._jax.tree_util.tree_flatten_with_path(tree)
        return {self._jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in named}

    def _whole(self, arrays: Arrays) -> Any:
        leaves = [self._jax.numpy.asarray(array) for array in arrays.values()]
        return self._jax.tree_util.tree_unflatten(self._tree, leaves)
