"""How much disk and memory a peer needs while it plays, known before it begins.

Anything longer than a bound lies in mapped files (`eris.storage`): the model, the state of the server optimizer and the
transforms, and those copies that the configuration cannot do without. Checkpoints come on top.

>>> from eris.compose import compose
>>> from eris.config import load_config
>>> from eris.local.spec import ModelSpec
>>> shared = load_config(changes=["method=eris+dsc", "compression.shared_reference=true", "shards.block=1024"])
>>> recipe = compose(shared, ModelSpec.flat(10**7), [1] * shared.members).recipe
>>> disk_need(recipe, above=1 << 24, members=10, in_blocks=True)
{'model': 40000000, 'public reference': 40000000}
>>> disk_need(recipe, above=1 << 30, members=10, in_blocks=True)
{}
>>> sum(memory_need(recipe, above=1 << 30, members=10, in_blocks=True).values()) // 10**6
240
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from eris.aggregate.staging import DEFAULT_BUDGET
from eris.peer.node_settings import NodeSettings
from eris.protocol.recipe import Recipe
from eris.storage.buffer_pool import BufferPool
from eris.storage.mapped import require_room

__all__ = ["disk_need", "memory_need", "pool_for", "state_bytes", "state_vectors"]

_LOG = logging.getLogger(__name__)
Entry = tuple[str, int]  # what it is, and its bytes


def disk_need(recipe: Recipe, *, above: int, members: int, in_blocks: bool) -> dict[str, int]:
    """Return the bytes of everything that lies in files because it is longer than `above`, by what it is.

    Args:
        above: bytes.
        members: how many may contribute to a shard.
        in_blocks: whether the task gives its update in blocks.
    """
    need: dict[str, int] = {}
    for what, size in [*state_vectors(recipe), *_training(recipe, in_blocks), *_messages(recipe, above)]:
        if size > above:
            need[what] = need.get(what, 0) + size
    if staged := _staged(recipe, above, members):
        need["staged"] = staged
    return need


def memory_need(recipe: Recipe, *, above: int, members: int, in_blocks: bool) -> dict[str, int]:
    """Return the bytes of all vectors that stay in memory because they are no longer than `above`, by what they are.

    This is an upper bound: messages are counted as if uncompressed. What the task itself needs comes on top. The
    arguments are those of `disk_need`.
    """
    vector, shards = 4 * recipe.spec.n, recipe.policy.shards
    whole = 1 if recipe.encoding is None else 2  # floats, and the whole numbers made of them
    staged = min(DEFAULT_BUDGET, members * recipe.policy.replicas * vector // shards)
    messages = [("parts", whole * vector), ("published", vector), ("published before", vector), ("staged", staged)]
    need: dict[str, int] = {}
    for what, size in [*state_vectors(recipe), *_training(recipe, in_blocks), *messages]:
        if size <= above:
            need[what] = need.get(what, 0) + size
    return need


def pool_for(recipe: Recipe, settings: NodeSettings, *, members: int, in_blocks: bool) -> BufferPool:
    """Return the pool that holds a peer's vectors; refuse beforehand if those in files have no room.

    `members` and `in_blocks` are those of `disk_need`.
    """
    need = disk_need(recipe, above=settings.spill_above, members=members, in_blocks=in_blocks)
    if need:
        what = f"a model of {recipe.spec.n:,} values, with vectors longer than {settings.spill_above:,} bytes in files,"
        require_room(sum(need.values()), settings.folder, what=what)
        _LOG.info("%.1f GB on disk are used for what is too long for memory: %s", sum(need.values()) / 1e9, need)
        if settings.folder is not None:
            settings.folder.mkdir(parents=True, exist_ok=True)
    return BufferPool(settings.folder, above=settings.spill_above)


def state_bytes(recipe: Recipe) -> int:
    """Return the bytes of everything kept from round to round, which is what a checkpoint holds."""
    return sum(size for _, size in state_vectors(recipe))


def state_vectors(recipe: Recipe) -> Iterator[Entry]:
    """Yield the vectors that are kept from round to round."""
    size = 4 * recipe.spec.n_trainable
    yield "model", 4 * recipe.spec.n
    if recipe.figures is not None and recipe.figures.keep_best:
        yield "best model", 4 * recipe.spec.n
    for kind, names in (
        ("optimizer", recipe.optimizer.init(0)),
        ("public", recipe.chain.public_state(0)),
        ("private", recipe.chain.private_state(0)),
    ):
        for name in names:
            yield f"{kind} {name.rpartition('.')[2]}", size


def _training(recipe: Recipe, in_blocks: bool) -> Iterator[Entry]:
    if not in_blocks or recipe.chain.changes_start:
        yield "model to train from", 4 * recipe.spec.n
    if in_blocks and not recipe.chain.packs_blocks:
        yield "update", 4 * recipe.spec.n_trainable


def _messages(recipe: Recipe, above: int) -> Iterator[Entry]:
    """Yield what is sent, what is received in this round, and what is held from the last."""
    if 4 * recipe.spec.n_trainable <= above:  # no message is longer than the model
        return
    if not recipe.compressor.sparse:
        yield "parts", 4 * recipe.spec.n_trainable
        if recipe.encoding is not None:
            yield "whole numbers", 4 * recipe.spec.n_trainable
    for size in _published(recipe):
        yield "published", size
        yield "published", size


def _staged(recipe: Recipe, above: int, members: int) -> int:
    """Return the bytes of contributions to a shard (or two) that lie in files: long ones, and beyond the budget."""
    if 4 * recipe.spec.n_trainable <= min(above, DEFAULT_BUDGET // members):
        return 0
    size = max(_published(recipe), default=0)
    one = members * size if size > above else max(0, members * size - DEFAULT_BUDGET)
    return recipe.policy.replicas * one


def _published(recipe: Recipe) -> list[int]:
    """Return each published shard's bytes in the first round; other rounds are about the same."""
    sizes = recipe.layout(0).trainable.sizes.tolist()
    supports = [recipe.published_support(0, shard) for shard in range(len(sizes))]
    return [4 * (size if kept is None else kept.size) for size, kept in zip(sizes, supports, strict=True)]
