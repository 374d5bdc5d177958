"""A transform of one's own, written from the package's docstring, in the simulator."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import eris
import eris.transforms
from eris.methods import METHODS, Method
from eris.privacy import clip_by_norm
from eris.transforms import Accepted, MeanStretch, Transform, chain, rand_k
from tests.transforms.scenes import context, normal


def documented() -> type[Transform]:
    """Return the class that the docstring shows: what a newcomer copies is what is tested."""
    example = doctest.DocTestParser().get_doctest(eris.transforms.__doc__, vars(eris.transforms).copy(), "doc", None, 0)
    assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
    return example.globs["SquareRoots"]


def trained(tmp_path, aggregators: int, method: str, *changes: str) -> dict:
    federation = eris.Federation(
        data="synthetic-clouds", method=method, members=5, aggregators=aggregators, rounds=4, workers=1, changes=changes
    )
    return federation.run(tmp_path / f"{method}-{aggregators}", report=False)[method]


@pytest.mark.parametrize(
    "changes",
    [(), ("participation=0.6",), ("server.optimizer=fedadam", "shards.block=3")],
    ids=["everybody", "some", "FedAdam"],
)
def test_any_number_of_aggregators_gives_its_bits(tmp_path, monkeypatch, changes):
    own = documented()
    monkeypatch.setitem(METHODS, "own", Method("own", "square roots travel", lambda config: own()))
    one, five = (trained(tmp_path, aggregators, "own", *changes) for aggregators in (1, 5))
    assert one["transforms"] == "square_roots() → identity()"
    assert one["model_digest"] == five["model_digest"]
    assert one["model_digest"] != trained(tmp_path, 5, "eris", *changes)["model_digest"]


def test_both_its_halves_are_used():
    both = chain(documented()(), rand_k(1.0))
    update = normal(50)
    sent = both.outgoing(update, {}, {}, context(50)).packed.values()
    assert np.allclose(np.abs(sent), np.sqrt(np.abs(update)))
    assert np.allclose(both.incoming(MeanStretch(sent), {}), update, rtol=1e-5)


class ErrorFeedback(Transform):
    """Keep what a coarser number lost, and add it in the next round."""

    def private_state(self, n):
        return {"error": np.zeros(n, np.float32)}

    def outgoing(self, update, context):
        return np.trunc(update + context.private_state["error"])

    def settle_update(self, update, sent, private, accepted):
        error = update + private["error"] - sent
        chosen = accepted.selects(None)
        np.copyto(private["error"], error, where=True if chosen is None else chosen)


def test_one_that_remembers_needs_two_methods_more():
    own = chain(clip_by_norm(1e6), ErrorFeedback())
    private, plan, sent = own.private_state(3), context(3).plan, np.zeros(3, np.float32)
    update = np.array([0.25, 0.5, 3.0], np.float32)
    for _ in range(8):
        outgoing = own.outgoing(update, private, {}, context(3))
        own.settle(outgoing, private, Accepted(plan))
        sent += outgoing.packed.values()
    assert sent.tolist() == [2.0, 4.0, 24.0]
