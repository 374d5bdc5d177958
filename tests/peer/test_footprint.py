"""What a peer says it needs on disk is what it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eris.aggregate import staging
from eris.compose import compose
from eris.config import load_config
from eris.local.spec import ModelSpec
from eris.peer import footprint as module
from eris.peer.footprint import disk_need, state_bytes
from eris.protocol.recipe import Recipe

N = 100_000
VECTOR = 4 * N


def recipe(*changes: str, method: str = "eris+dsc") -> Recipe:
    config = load_config(
        changes=[f"method={method}", "members=4", "shards.block=100", "compression.keep=0.01", *changes]
    )
    return compose(config, ModelSpec.flat(N), [1] * 4).recipe


SHARED = "compression.shared_reference=true"


@pytest.mark.parametrize(
    ("changes", "method", "in_blocks", "vectors"),
    [
        ((SHARED,), "eris+dsc", True, {"model": 1, "public reference": 1}),
        ((), "eris+dsc", True, {"model": 1, "public reference": 1, "private reference": 1}),
        ((SHARED,), "eris+dsc", False, {"model": 1, "public reference": 1, "model to train from": 1}),
        (
            (SHARED, "server.optimizer=fedadam"), "eris+dsc", True,
            {"model": 1, "optimizer momentum": 1, "optimizer second": 1, "public reference": 1},
        ),
        ((SHARED, "privacy.clip=1.0"), "eris+dsc", True, {"model": 1, "public reference": 1, "update": 1}),
        ((), "eris", True, {"model": 1, "update": 1, "parts": 1, "published": 2, "staged": 1}),
        ((), "eris", False, {"model": 1, "model to train from": 1, "parts": 1, "published": 2, "staged": 1}),
    ],
)  # fmt: skip
def test_every_vector_that_cannot_be_done_without_is_counted(
    changes: tuple[str, ...], method: str, in_blocks: bool, vectors: dict[str, int]
) -> None:
    need = disk_need(recipe(*changes, method=method), above=VECTOR // 8, members=4, in_blocks=in_blocks)
    assert need == {what: count * VECTOR for what, count in vectors.items()}


def test_what_is_short_enough_stays_in_memory() -> None:
    assert disk_need(recipe(), above=VECTOR, members=4, in_blocks=True) == {}
    dense = disk_need(recipe(method="eris"), above=VECTOR // 2, members=4, in_blocks=True)
    assert dense == {"model": VECTOR, "update": VECTOR, "parts": VECTOR}, "a quarter of the model is not above it"
    fixed = recipe("server.encoding=fixed", method="eris")
    assert disk_need(fixed, above=VECTOR // 2, members=4, in_blocks=True) == dense | {"whole numbers": VECTOR}


def test_contributions_beyond_the_memory_for_them_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEFAULT_BUDGET", VECTOR // 2)
    assert disk_need(recipe(method="eris"), above=VECTOR, members=4, in_blocks=True) == {"staged": VECTOR // 2}
    assert staging.DEFAULT_BUDGET >= 1 << 30


def test_a_checkpoint_holds_what_is_kept_from_round_to_round(tmp_path: Path) -> None:
    from eris.checkpoint import save_checkpoint
    from eris.protocol.member import Member
    from eris.seeds import private_root

    made = recipe("server.optimizer=fedavgm")
    member = Member(0, made, np.zeros(N, np.float32), private_root(0, 0))
    path = save_checkpoint(tmp_path, 0, member.replica.state() | {f"p.{k}": v for k, v in member.private.items()}, {})
    assert state_bytes(made) == 4 * VECTOR
    assert 0 < path.stat().st_size - state_bytes(made) < 2000
