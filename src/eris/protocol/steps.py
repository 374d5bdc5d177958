"""The steps of a round, each a function of its arguments alone.

    member       starting_model → [train] → contribute (→ in_fixed_point)
    aggregator   cut: publish a shard, or withhold it
    every peer   on the verdict: apply → settle

The roles call them for one peer at a time, the simulator for many members and whole vectors at once. Waiting, sending,
staging and guessing belong to the drivers; what a round *is* stands here, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eris.aggregate.encoding import Ring32
from eris.aggregate.figures import NO_FIGURES, signed
from eris.aggregate.fixed_point import Ring64, RingScale, buffers_within, decode_buffers, encode_buffers
from eris.aggregate.staging import all_finite
from eris.errors import InputError, Reason, Refused
from eris.local.spec import Vector
from eris.local.task import BlockResult, LocalResult
from eris.local.update import as_update
from eris.privacy.discrete_gaussian import add_discrete_gaussian
from eris.privacy.ring_noise import NOISE_ROOM
from eris.protocol.block_update import BlockUpdate
from eris.protocol.messages import Manifest, Published, Withheld, payload_hash
from eris.protocol.recipe import Recipe
from eris.protocol.replica import BufferMean, Replica, copy_over
from eris.protocol.round_mean import RoundMean
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.seeds import Seed
from eris.shards.policy import Layout
from eris.storage.buffer_pool import BufferPool
from eris.storage.mapped import release
from eris.transforms import Accepted, SendContext, State
from eris.transforms.packed import Packed, Part
from eris.transforms.transform import Outgoing

__all__ = [
    "Folded",
    "Limited",
    "Sign",
    "Verify",
    "Weighed",
    "apply",
    "contribute",
    "counts_as_steps",
    "cut",
    "in_fixed_point",
    "in_fixed_point_as_cut",
    "mean_steps",
    "members_figures",
    "noise_deviations",
    "noise_draw",
    "possible",
    "possible_figures",
    "scored",
    "send_context",
    "settle",
    "side_scalars",
    "starting_model",
    "trust_everybody",
]

Sign = Callable[[bytes], str]
Verify = Callable[[int, bytes, str], bool]


def trust_everybody(peer: int, message: bytes, signature: str) -> bool:
    """Accept any signature: for simulations, where nobody can impersonate anybody."""
    del peer, message, signature
    return True


# ── a member ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def starting_model(recipe: Recipe, model: Vector, private: State, pool: BufferPool | None = None) -> Vector:
    """Return the model a member trains from, to be read only: the common model, copied only where it is changed.

    `private` is the member's own transform state; a copy lies where `pool` puts it.
    """
    start = model[:]
    if recipe.chain.changes_start:
        start = (pool or BufferPool()).vector(model.size)
        copy_over(model, start)
        recipe.chain.start(start[: recipe.spec.n_trainable], private)
    start.flags.writeable = False
    return start


def contribute(
    recipe: Recipe,
    round: int,
    member: int,
    result: LocalResult | BlockResult,
    private: State,
    public: State,
    own: Seed,
    pool: BufferPool | None = None,
) -> tuple[Outgoing, Vector]:
    """Run an update through the chain; return what leaves the member, and the buffers, which bypass the chain.

    No state changes here: the member's own state advances with `settle`.

    Args:
        result: the outcome of local training.
        private: the member's own transform state.
        public: the transform state that all peers share.
        own: the member's private seed of this round.
        pool: memory for an update that comes in blocks, where the chain needs the whole of it.
    """
    chain, n = recipe.chain, recipe.spec.n_trainable
    if recipe.steps and result.steps != recipe.steps:
        raise Refused(
            Reason.WRONG_PLAN,
            f"the task took {result.steps:g} local steps, but all members must take {recipe.steps:g}",
            fix="make train() take as many steps as agreed (local.steps), or use privacy.masking = 'none'",
            peer=member,
            round=round,
        )
    context = send_context(recipe, round, member, own, result.steps)
    if isinstance(result, LocalResult):
        update = as_update(result.update, recipe.spec.n, peer=member, round=round)
        return chain.outgoing(update[:n], private, public, context), update[n:]
    blocks = BlockUpdate(result.blocks, recipe.spec)
    if chain.packs_blocks:
        return chain.outgoing_blocks(blocks, n, private, public, context), blocks.buffers
    whole = (pool or BufferPool()).vector(n)
    for place, values in blocks:
        whole[place] = values
        release(whole[place])
    return chain.outgoing(whole, private, public, context), blocks.buffers


class Limited(NamedTuple):
    """What fixed point's limit did to a contribution; the member keeps it to itself."""

    values: int = 0  # how many lay outside ±R
    covering: float = 0.0  # the R that would have cut off none of them


class Weighed(NamedTuple):
    """A contribution in fixed point: limited, weighted and rounded by the member itself."""

    outgoing: Outgoing  # its packed end decodes to the values that all others see
    buffers: Ring64
    limited: Limited


def in_fixed_point(
    recipe: Recipe,
    outgoing: Outgoing,
    buffers: Vector,
    code: Ring32,
    pool: BufferPool | None = None,
    *,
    noise: float = 0.0,
    draw: int = 0,
    own: Seed | None = None,
) -> Weighed:
    """Write what leaves a member as whole numbers; refuse what is not finite, or too often beyond a configured R.

    Args:
        buffers: of the update, which bypass the chain.
        code: how values are written: the round's limit R and the member's weight.
        pool: memory for the whole numbers.
        noise: deviation, in grid steps, of the noise that is then added.
        draw: which draw of it (`noise_draw`).
        own: the member's private seed of this round, from which noise is drawn for exactly these values and this
            deviation: under another deviation the same draws would reveal the values.
    """
    packed = outgoing.packed
    room = (pool or BufferPool()).take(4 * packed.symbols.size).view(np.uint32)
    try:
        symbols, count = code.encode(packed.symbols, out=room)
        weighed = encode_buffers(buffers, code.weight)
    except InputError as error:
        raise Refused(Reason.NON_FINITE, error.what, fix=error.fix) from error
    limited = _limited(recipe, code, count, packed.symbols)
    if noise:
        assert own is not None
        address = own.child("ring noise", float(noise).hex(), float(code.limit).hex())
        address = address.child("draw", draw) if draw else address
        add_discrete_gaussian(symbols, noise, address.for_values(symbols))
    ring = replace(packed, symbols=symbols, code=code)
    return Weighed(Outgoing((*_as_taken(outgoing.stages[:-1], ring), ring), ring), weighed, limited)


def in_fixed_point_as_cut(
    recipe: Recipe, packed: Packed, layout: Layout, buffers: Vector, code: Ring32, pool: BufferPool | None = None
) -> tuple[list[Part], Ring64, Limited]:
    """Do the same for an update without noise that no reference is settled by: cut it first, then write in place.

    So there are never two copies of it beside the update itself; the result is the same, bit for bit. `packed` is the
    update as the chain left it, and `layout` cuts it.
    """
    parts = packed.parts(layout.trainable, memory=pool.take if pool is not None else None)
    try:
        counts = [code.encode(part.symbols, out=part.symbols.view(np.uint32)).limited for part in parts]
        weighed = encode_buffers(buffers, code.weight)
    except InputError as error:
        raise Refused(Reason.NON_FINITE, error.what, fix=error.fix) from error
    limited = _limited(recipe, code, sum(counts), packed.symbols)
    return [replace(part, symbols=part.symbols.view(np.uint32), code=code) for part in parts], weighed, limited


def _limited(recipe: Recipe, code: Ring32, count: int, values: Vector) -> Limited:
    """Return what the limit did to `values`, `count` of which it cut off; refuse if these are too many."""
    limited = Limited(count, _covering(values)) if count else Limited()
    if recipe.encoding is not None and not recipe.encoding.tolerates(count, values.size):
        what = f"{count} of {values.size} values lie outside ±{code.limit:g}"
        raise Refused(Reason.OUT_OF_RANGE, what, fix=f"set server.limit = {limited.covering:g}, or 'auto'")
    return limited


def _as_taken(stages: tuple[Vector | Packed, ...], ring: Packed) -> tuple[Vector | Packed, ...]:
    """Return the stages before packing, the last one as everybody else sees it: that is what a member settles by."""
    last = stages[-1] if stages else ring
    if isinstance(last, Packed) or not last.size or ring.support is not None:
        return stages
    return (*stages[:-1], ring.values())


def noise_deviations(recipe: Recipe, plan: RoundPlan, scale: RingScale | None) -> dict[int, float]:
    """Return the deviation of the noise that each participant adds in a round, in grid steps of `scale`.

    It is empty without noise on sums, and for floats, which have no `scale`.
    """
    if recipe.noise is None or scale is None:
        return {}
    weights = [float(plan.weights[member]) for member in plan.participants]
    found = recipe.noise.deviations(weights, plan.least_masked, recipe.kept(plan.round), scale)
    recipe.noise.check_grid(min(found, default=math.inf))
    return dict(zip(plan.participants, found, strict=True))


def noise_draw(recipe: Recipe, plan: RoundPlan) -> int:
    """Return which draw of its noise a member adds to the same values when a round is planned again: shares, another.

    Noise of a member's own stays, for what it sends is then the same, whatever becomes of it. Shares protect only the
    sum that they are in. If a round is played again over others, or with another update of a single member, two sums
    with the same shares leave less noise than both have: their difference may have hardly any. With shares of its own
    each plan is a release of its own (`Releases`), and ε adds up as if rounds had nothing to do with each other.
    """
    return plan.epoch if recipe.noise is not None and recipe.noise.shares else 0


def _covering(values: Vector) -> float:
    """Return the smallest power of two that no value exceeds."""
    largest = max(float(values.max()), -float(values.min()))
    return 2.0 ** math.ceil(math.log2(largest)) if math.isfinite(largest) else math.inf


def send_context(recipe: Recipe, round: int, member: int, own: Seed, steps: float = 1.0) -> SendContext:
    """Return what a chain is told about the round in which it sends.

    `own` is the member's private seed of that round, `steps` how many local steps are behind the update.
    """
    return SendContext(
        round=round,
        member=member,
        plan=recipe.layout(round).trainable,
        public=recipe.round_seed(round),
        private=own,
        tensor_sizes=recipe.spec.trainable_sizes,
        steps=steps,
    )


# ── an aggregator ────────────────────────────────────────────────────────────────────────────────────────────────────


class Folded(NamedTuple):
    """The result of folding the contributions to one shard."""

    values: NDArray[Any]  # their mean, or in fixed point their sum
    buffers: NDArray[Any]
    scalars: tuple[float, float]  # c and τ_eff, see `side_scalars`
    figures: Ring64 = NO_FIGURES  # the contributors' scores, summed


def cut(
    plan: RoundPlan,
    shard: int,
    aggregator: int,
    contributors: tuple[int, ...],
    fold: Callable[[], Folded],
    sign: Sign | None = None,
    allows: Callable[[NDArray[Any], float], bool] | None = None,
    recipe: Recipe | None = None,
) -> Published | Withheld:
    """Close a shard: publish what its contributions fold to, or withhold it if there are too few of them.

    Args:
        fold: computes the result, called only if there are enough contributors.
        sign: signs the manifest; None leaves it unsigned.
        allows: whether values times c are within the length that members accept.
        recipe: says which figures members share; impossible figures are not published.
    """
    if len(contributors) < plan.least_contributors:
        return Withheld(plan.digest, shard, aggregator, Reason.TOO_FEW, contributors)
    folded = fold()
    noisy = recipe is not None and recipe.noise is not None
    if not possible(folded.values, folded.buffers, plan, contributors, noisy=noisy):
        return Withheld(plan.digest, shard, aggregator, Reason.OUT_OF_RANGE, contributors)
    floats = folded.values.dtype == np.float32
    if floats and not (all_finite(folded.values) and all_finite(folded.buffers)):  # finite parts may overflow together
        return Withheld(plan.digest, shard, aggregator, Reason.NON_FINITE, contributors)
    c, steps = folded.scalars
    if allows is not None and not allows(folded.values, c):  # no member would accept it
        return Withheld(plan.digest, shard, aggregator, Reason.OUT_OF_RANGE, contributors)
    figures = signed(folded.figures)
    if figures and (recipe is None or not possible_figures(recipe, plan, shard, figures, contributors)):
        figures = ()
    manifest = Manifest(
        plan=plan.digest,
        round=plan.round,
        shard=shard,
        aggregator=aggregator,
        contributors=contributors,
        c=c,
        steps=steps,
        hash=payload_hash(folded.values, folded.buffers),
        figures=figures,
    )
    if sign is not None:
        manifest = replace(manifest, signature=sign(manifest.signed_bytes))
    return Published(manifest, folded.values, folded.buffers)


def possible(
    values: NDArray[Any],
    buffers: NDArray[Any],
    plan: RoundPlan,
    contributors: tuple[int, ...],
    *,
    noisy: bool = False,
) -> bool:
    """Whether these contributors can have produced a sum (floats: always); if not, one of them exceeded the limit.

    `values` and `buffers` are the sum; noise on it (`noisy`) is given room.
    """
    if values.dtype != np.uint32:
        return True
    weights = [plan.weights[member] for member in contributors]
    return RingScale.within(values, weights, NOISE_ROOM if noisy else 0) and buffers_within(buffers, weights)


def scored(recipe: Recipe, plan: RoundPlan, scores: Mapping[str, tuple[float, float]] | None) -> Ring64:
    """Encode a member's scores before a round, for its contribution to shard 0; empty where none are due.

    `scores` holds (sum, count) by figure.
    """
    if recipe.figures is None or scores is None or not recipe.figure_words(plan.round):
        return NO_FIGURES
    return recipe.figures.encode(scores, len(plan.roster))


def possible_figures(
    recipe: Recipe, plan: RoundPlan, shard: int, sums: tuple[int, ...], contributors: tuple[int, ...]
) -> bool:
    """Whether an honest aggregator may state `sums` as a shard's figures: none, or ones that its members can have."""
    figures = recipe.figures if recipe.figure_words(plan.round, shard) else None
    return not sums or (figures is not None and figures.possible(sums, len(contributors), len(plan.roster)))


def counts_as_steps(steps: float) -> bool:
    """Whether a number can be a count of local steps; an aggregator refuses a contribution with any other."""
    return 0 < steps < math.inf


def side_scalars(recipe: Recipe, plan: RoundPlan, taken: Mapping[int, float]) -> tuple[float, float]:
    """Return what depends on a shard's contributors alone: c, which compensates for missing members, and mean steps.

    `taken` is the local steps of each contributor, in ascending order of members.
    """
    return float(recipe.scale(plan, tuple(taken))), mean_steps(taken, plan)


def mean_steps(steps: Mapping[int, float], plan: RoundPlan) -> float:
    """Return the contributors' mean number of local steps, weighted as their updates are (FedNova's τ_eff)."""
    weighted = math.fsum(float(plan.weights[member]) * count for member, count in steps.items())
    return weighted / math.fsum(float(plan.weights[member]) for member in steps)


# ── every peer, on the verdict ───────────────────────────────────────────────────────────────────────────────────────


def apply(replica: Replica, plan: RoundPlan, published: Mapping[int, Published], verdict: Verdict) -> list[Published]:
    """Reassemble the committed shards, take the step, and return them; coordinates of a lost shard stay as they are.

    `published` has every shard that is here, and must have all that the verdict commits.
    """
    replica.judge(verdict)
    layout, scale = replica.recipe.layout(plan.round), replica.scale_in(plan)
    committed = [published[entry.shard] for entry in verdict.shards if entry.committed]
    buffers = np.zeros(layout.buffers.n, np.float32)
    for each in committed if buffers.size else ():
        change = each.buffers if scale is None else decode_buffers(each.buffers)
        scaled = change * plan.scale(each.manifest.contributors)
        layout.buffers.scatter(scaled, each.manifest.shard, buffers)
    mean = RoundMean(committed, plan.round, replica.recipe, scale)
    replica.apply(mean, BufferMean(buffers), layout)
    return committed


def members_figures(recipe: Recipe, verdict: Verdict) -> dict[str, float]:
    """Return the members' combined scores before a round, under names of their own; empty where none were told."""
    means = recipe.figures.means(verdict.figures) if recipe.figures is not None else {}
    return {f"members_{name}": value for name, value in means.items()}


def settle(recipe: Recipe, round: int, outgoing: Outgoing, private: State, missing: tuple[int, ...]) -> None:
    """Advance a member's own state by what was accepted of its update; `missing` shards were lost or lack its part."""
    recipe.chain.settle(outgoing, private, Accepted(recipe.layout(round).trainable, missing, round))
