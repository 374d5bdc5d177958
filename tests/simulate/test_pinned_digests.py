"""Digests of models, written down: a change of a bit shows even if it changes every path alike.

All other tests of digests compare two paths of the same code. The task here is elementwise (no BLAS, no exp, no norm),
so these bits hold on every machine. A digest may change only with a change that means to move models; say so in the
changelog, because runs and replays of the version before would end elsewhere.
"""

from __future__ import annotations

import pytest

from tests.simulate.setting import play, settings

PINNED = [
    ("fedavg", [], "7923ef8d2533de38"),
    ("eris", [], "7923ef8d2533de38"),
    ("eris", ["participation=0.5"], "082986ac0706623f"),
    ("eris", ["server.optimizer=fedadam"], "d8e7992b1ce6fba6"),
    ("eris", ["server.rule=median"], "0fac78820a402265"),
    ("eris", ["server.encoding=fixed"], "ebcd1048fd4b1e55"),
    ("eris+masked", [], "ebcd1048fd4b1e55"),
    ("eris+dsc", [], "6c5f975668eb4e1f"),
    ("eris+dsc", ["server.encoding=fixed"], "c8e660dc7ab9532d"),
    ("eris+dsc", ["compression.masks=independent", "participation=0.5"], "f985ab052b7f6ec4"),
    (
        "eris+dsc",
        ["local.keep_state=true", "faults.link_failure=0.2", "faults.aggregator_dropout=0.2"],
        "a35a6a83821e62ac",
    ),
    ("soteriafl", ["privacy.epsilon=none"], "c39a0fe722512937"),
]


@pytest.mark.parametrize(("method", "changes", "digest"), PINNED)
def test_models_are_what_they_were(method, changes, digest, tmp_path):
    config = settings("data.name=synthetic-quadratic", *changes, method=method)
    assert play(config, tmp_path).digest[:16] == digest
