"""How much a member will send, before it has trained: what decides whether its messages come in time."""

from __future__ import annotations

import numpy as np

from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.seeds import private_root
from eris.simulate.traffic import framed
from eris.simulate.work import payload_sizes
from eris.transforms import SendContext

__all__ = ["expected_upload"]


def expected_upload(recipe: Recipe, plan: RoundPlan, seed: int) -> int:
    """Return the bytes of one member's messages to all shards, from compressing a vector of ones.

    Exact for every compressor whose size does not depend on the values; close for the others.
    """
    layout, member = recipe.layout(plan.round), plan.participants[0]
    context = SendContext(
        round=plan.round,
        member=member,
        plan=layout.trainable,
        public=recipe.round_seed(plan.round),
        private=private_root(seed, member).child("round", plan.round),
        tensor_sizes=recipe.spec.trainable_sizes,
    )
    packed = recipe.compressor.compress(np.ones(layout.trainable.n, np.float32), context)
    sizes = np.array(payload_sizes(packed, layout.trainable)) + 4 * layout.buffers.sizes
    return int(framed(sizes).sum()) * recipe.policy.replicas
