"""Plausible mistakes, each of which a named check must notice. A check that stays green here proves nothing elsewhere.

A mutation replaces a part of eris by a wrong one. Its check is first run on the unchanged code (it must pass), then on
the mutant (it must fail with an AssertionError of the check itself, not with some other error on the way).

The round is written once, so a mistake in it must show on both ways through it: message by message, and simulated.
Only what belongs to one of them alone (how contributions are staged, what a member does before the verdict) is `alone`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from eris.aggregate.encoding import FixedPoint
from eris.aggregate.fixed_point import Encoded, RingScale
from eris.aggregate.mean import WeightedMean
from eris.aggregate.robust import Median
from eris.aggregate.staging import Staging
from eris.errors import Refused
from eris.protocol import steps
from eris.protocol.member import Member
from eris.protocol.messages import Published
from eris.protocol.recipe import Recipe
from eris.protocol.replica import BufferMean, Replica
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import ShardVerdict
from eris.seeds import Seed
from eris.shards.plan import ShardPlan
from eris.step.plain import FedAvgM
from eris.transforms.chain import Chain
from eris.transforms.normalise import NormaliseSteps
from eris.transforms.shift import Shift
from eris.transforms.sparsify import RandK
from eris.transforms.transform import Accepted
from tests.equivalence import checks
from tests.equivalence.case import Case

F = np.float32
WEIGHTS = (1.0, 600.0, 7.0, 7.0, 2.5, 31.0, 1e6, 40.0, 3.0)
EVEN = Case(n=40, shards=8, arrival=1)
UNEVEN = EVEN.change(weights=WEIGHTS)
PARTIAL = UNEVEN.change(participation=0.6)
MOVING = UNEVEN.change(schedule="redraw", optimizer="fedadam")
LOSING = UNEVEN.change(lost_links=0.2, lost_shards=0.3)
DSC = Case(n=40, shards=8, gamma=0.25, sparsifier="rand_k", weights=WEIGHTS, exponent=3, arrival=1)

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """A mistake, the check that must notice it, and the scenario in which it shows."""

    name: str
    check: Callable[[Case], None]
    case: Case
    apply: Patch
    alone: bool = False  # of the message path: the simulator does not run this code
    simulated: Callable[[Case], None] = checks.the_simulator_equals_the_reference


MUTATIONS: list[Mutation] = []


def mutation(check: Callable[[Case], None], case: Case, **options: Any) -> Callable[[Patch], Patch]:
    """Register a mistake under the name of its function."""

    def register(apply: Patch) -> Patch:
        MUTATIONS.append(Mutation(apply.__name__, check, case, apply, **options))
        return apply

    return register


def fold_by(patch: pytest.MonkeyPatch, combine: Callable[[list[np.float32], list[np.ndarray]], np.ndarray]) -> None:
    """Replace the mean of dense contributions by something else."""

    def fold(self: WeightedMean, contributions: Any, out: np.ndarray) -> None:
        ordered = sorted(contributions, key=lambda contribution: contribution.member)
        out[:] = combine([c.weight for c in ordered], [c.values for c in ordered])

    patch.setattr(WeightedMean, "fold", fold)


def add_by(patch: pytest.MonkeyPatch, product: Callable[[np.ndarray, np.float32], np.ndarray]) -> None:
    """Replace what is added to a sum: aggregators add a shard's contributions up, the simulator whole vectors."""

    def add(values: Any, weight: Any, total: Any, scratch: Any, positions: Any = None) -> None:
        place = slice(None) if positions is None else positions
        total[place] = (total[place] + product(values, weight)).astype(F)

    patch.setattr("eris.aggregate.mean.add_weighted", add)
    patch.setattr("eris.simulate.fold.add_weighted", add)


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@mutation(checks.order_of_arrival_does_not_matter, UNEVEN, alone=True)
def sum_in_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    contributions = Staging.contributions

    def as_they_came(self: Staging, weights: Any) -> Any:
        order = list(self._arriving)
        return sorted(contributions(self, weights), key=lambda contribution: order.index(contribution.member))

    patch.setattr(Staging, "contributions", as_they_came)
    patch.setattr("eris.aggregate.mean.in_order", lambda contributions, out: list(contributions))


@mutation(checks.equals_one_aggregator, UNEVEN.change(shards=40), alone=True)
def sum_over_an_axis(patch: pytest.MonkeyPatch) -> None:
    fold_by(patch, lambda weights, rows: np.sum([w * row for w, row in zip(weights, rows, strict=True)], axis=0))


@mutation(checks.equals_the_reference, UNEVEN, alone=True)
def sum_in_pairs(patch: pytest.MonkeyPatch) -> None:
    def combine(weights: list[np.float32], rows: list[np.ndarray]) -> np.ndarray:
        terms = [w * row for w, row in zip(weights, rows, strict=True)]
        while len(terms) > 1:
            terms = [sum(terms[i : i + 2]) for i in range(0, len(terms), 2)]
        return terms[0]

    fold_by(patch, combine)


@mutation(checks.equals_the_reference, UNEVEN, alone=True)
def accumulate_in_float64(patch: pytest.MonkeyPatch) -> None:
    def combine(weights: list[np.float32], rows: list[np.ndarray]) -> np.ndarray:
        total = np.zeros(rows[0].size)
        for w, row in zip(weights, rows, strict=True):
            total += w * row
        return total

    fold_by(patch, combine)


@mutation(checks.equals_the_reference, UNEVEN)
def multiply_and_add_without_rounding_between(patch: pytest.MonkeyPatch) -> None:
    add_by(patch, lambda values, weight: values.astype(float) * float(weight))


@mutation(checks.equals_the_reference, UNEVEN)
def average_without_weights(patch: pytest.MonkeyPatch) -> None:
    add_by(patch, lambda values, weight: values * F(1 / UNEVEN.members))


@mutation(checks.equals_one_aggregator, EVEN.change(exponent=3), alone=True)
def clip_by_the_norm_of_what_an_aggregator_sees(patch: pytest.MonkeyPatch) -> None:
    def combine(weights: list[np.float32], rows: list[np.ndarray]) -> np.ndarray:
        total = np.zeros(rows[0].size, F)
        for w, row in zip(weights, rows, strict=True):
            total = total + w * row / max(F(1), np.linalg.norm(row))
        return total

    fold_by(patch, combine)


@mutation(checks.equals_the_reference, LOSING.change(rule="median"))
def median_with_zeros_for_the_missing(patch: pytest.MonkeyPatch) -> None:
    def fold(self: Median, contributions: Any, out: np.ndarray) -> None:
        rows = [c.values for c in contributions]
        rows += [np.zeros_like(out)] * (LOSING.members - len(rows))
        out[:] = np.median(np.array(rows), axis=0)

    patch.setattr(Median, "fold", fold)


# ── weights and the scalar c ─────────────────────────────────────────────────────────────────────────────────────────


@mutation(checks.references_add_up, DSC.change(participation=0.6))
def renormalise_both_weights(patch: pytest.MonkeyPatch) -> None:
    fold = WeightedMean.fold

    def normalised(self: WeightedMean, contributions: Any, out: np.ndarray) -> None:
        fold(self, contributions, out)
        out /= sum(contribution.weight for contribution in contributions)

    patch.setattr(WeightedMean, "fold", normalised)
    patch.setattr(RoundPlan, "scale", lambda self, contributors: F(1))


@mutation(checks.references_add_up, DSC.change(participation=0.6))
def normalise_over_contributors_in_the_reference(patch: pytest.MonkeyPatch) -> None:
    def incoming(self: Shift, direction: np.ndarray, mean: Any) -> None:
        normalised = direction.copy()
        direction += mean.public_state["reference"]
        mean.public_state["reference"] += self.reference_step(direction.size) * normalised

    patch.setattr(Shift, "incoming", incoming)


@mutation(checks.equals_the_reference, PARTIAL)
def forget_who_did_not_take_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoundPlan, "scale", lambda self, contributors: F(1))


@mutation(checks.equals_the_reference, UNEVEN.change(lost_links=0.3))
def one_scalar_for_all_shards(patch: pytest.MonkeyPatch) -> None:
    scale = RoundPlan.scale
    patch.setattr(RoundPlan, "scale", lambda self, contributors: scale(self, self.participants))


@mutation(checks.equals_the_reference, EVEN.change(optimizer="fednova"))
def leave_out_the_mean_of_local_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NormaliseSteps, "incoming", lambda self, direction, mean: None)


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────────


@mutation(checks.nobody_moves_before_the_verdict, DSC, alone=True)
def advance_the_reference_without_a_verdict(patch: pytest.MonkeyPatch) -> None:
    outgoing = Shift.outgoing

    def eager(self: Shift, update: np.ndarray, context: Any) -> Any:
        packed = outgoing(self, update, context)
        context.private_state["reference"] += self.reference_step(packed.n) * packed.dense()
        return packed

    patch.setattr(Shift, "outgoing", eager)
    patch.setattr(Shift, "settle", lambda *arguments: None)


@mutation(checks.references_add_up, DSC.change(lost_links=0.3, lost_shards=0.2))
def advance_the_reference_on_a_receipt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Accepted, "selects", lambda self, support: None)


@mutation(checks.equals_the_reference, DSC)
def direction_without_the_reference(patch: pytest.MonkeyPatch) -> None:
    incoming = Shift.incoming

    def forgetful(self: Shift, direction: np.ndarray, mean: Any) -> None:
        incoming(self, direction.copy(), mean)

    patch.setattr(Shift, "incoming", forgetful)


@mutation(checks.equals_the_reference, DSC)
def add_the_reference_after_advancing_it(patch: pytest.MonkeyPatch) -> None:
    incoming = Shift.incoming

    def late(self: Shift, direction: np.ndarray, mean: Any) -> None:
        incoming(self, direction.copy(), mean)
        direction += mean.public_state["reference"]

    patch.setattr(Shift, "incoming", late)


@mutation(checks.equals_the_reference, DSC.change(shards=1))  # in more shards the lengths would give it away
def draw_a_mask_for_each_member(patch: pytest.MonkeyPatch) -> None:
    for name in ("compress", "compress_difference"):
        patch.setattr(RandK, name, _with_own_mask(getattr(RandK, name)))


def _with_own_mask(original: Callable[..., Any]) -> Callable[..., Any]:
    def compress(self: RandK, *arguments: Any) -> Any:
        *vectors, context = arguments
        return original(self, *vectors, replace(context, public=context.public.child(context.member)))

    return compress


@mutation(checks.equals_the_reference, DSC)
def the_same_mask_in_every_round(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recipe, "round_seed", lambda self, round: self.public.child("round", 0))


@mutation(checks.equals_the_reference, DSC.change(lost_links=0.3, lost_shards=0.2))
def settle_what_was_not_accepted(patch: pytest.MonkeyPatch) -> None:
    settle = steps.settle
    patch.setattr(steps, "settle", lambda *given: settle(*given[:-1], ()))


@mutation(checks.equals_the_reference, DSC)
def settle_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "settle", lambda *given: None)


# ── where training begins ────────────────────────────────────────────────────────────────────────────────────────────


@mutation(checks.training_begins_where_the_chain_says, EVEN, simulated=checks.the_simulators_training_begins_there_too)
def train_from_the_common_model(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chain, "start", lambda self, model, private: None)


@mutation(checks.training_begins_where_the_chain_says, EVEN, simulated=checks.the_simulators_training_begins_there_too)
def change_the_buffers_of_the_start_too(patch: pytest.MonkeyPatch) -> None:
    starting_model = steps.starting_model

    def everything(recipe: Recipe, model: Any, *given: Any) -> Any:
        return starting_model(recipe, model, *given) + F(1) * (np.arange(model.size) >= recipe.spec.n_trainable)

    patch.setattr(steps, "starting_model", everything)


# ── what is sent and published ───────────────────────────────────────────────────────────────────────────────────────


@mutation(checks.equals_the_reference, DSC.change(shards=1))  # in more shards the lengths would give it away
def contribute_with_the_mask_of_another_round(patch: pytest.MonkeyPatch) -> None:
    send_context = steps.send_context

    def late(recipe: Recipe, round: int, *given: Any) -> Any:
        return replace(send_context(recipe, round, *given), public=recipe.round_seed(round + 1))

    patch.setattr(steps, "send_context", late)


@mutation(checks.equals_the_reference, EVEN.change(optimizer="fednova"))
def contribute_without_counting_the_steps(patch: pytest.MonkeyPatch) -> None:
    contribute = steps.contribute

    def careless(recipe: Recipe, round: int, member: int, result: Any, *given: Any) -> Any:
        return contribute(recipe, round, member, replace(result, steps=1.0), *given)

    patch.setattr(steps, "contribute", careless)


@mutation(checks.equals_the_reference, UNEVEN)
def contribute_the_buffers_of_nobody(patch: pytest.MonkeyPatch) -> None:
    contribute = steps.contribute

    def without(*given: Any) -> Any:
        outgoing, buffers = contribute(*given)
        return outgoing, np.zeros_like(buffers)

    patch.setattr(steps, "contribute", without)


@mutation(checks.equals_the_reference, UNEVEN.change(optimizer="fednova"))
def the_mean_of_steps_without_weights(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "mean_steps", lambda taken, plan: sum(taken.values()) / len(taken))


@mutation(checks.equals_the_reference, UNEVEN.change(lost_links=0.3))
def publish_another_ones_scalar(patch: pytest.MonkeyPatch) -> None:
    scale = Recipe.scale
    patch.setattr(Recipe, "scale", lambda self, plan, contributors: scale(self, plan, contributors[:1]))


@mutation(checks.equals_the_reference, UNEVEN)
def apply_the_buffers_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "BufferMean", lambda values: BufferMean(values + values))


@mutation(checks.equals_the_reference, UNEVEN)
def apply_all_but_the_last_shard(patch: pytest.MonkeyPatch) -> None:
    apply = steps.apply

    def hasty(replica: Replica, plan: Any, published: Any, verdict: Any) -> Any:
        *most, last = verdict.shards
        return apply(replica, plan, published, replace(verdict, shards=(*most, replace(last, lost="forgotten"))))

    patch.setattr(steps, "apply", hasty)


# ── state and verdict ────────────────────────────────────────────────────────────────────────────────────────────────


@mutation(checks.equals_one_aggregator, MOVING)
def optimizer_state_stays_with_the_aggregator(patch: pytest.MonkeyPatch) -> None:
    apply = Replica.apply

    def stationary(self: Replica, mean: Any, buffers: Any, layout: Any) -> None:
        at_home = getattr(self, "_at_home", None) or {
            name: layout.trainable.split(value) for name, value in self.optimizer.items()
        }
        for name, parts in at_home.items():
            self.optimizer[name][:] = layout.trainable.reassemble(parts)
        apply(self, mean, buffers, layout)
        self._at_home = {name: layout.trainable.split(value) for name, value in self.optimizer.items()}

    patch.setattr(Replica, "apply", stationary)


@mutation(checks.lost_shards_are_frozen, LOSING.change(optimizer="fedavgm"))
def a_lost_shard_decays_the_momentum(patch: pytest.MonkeyPatch) -> None:
    def only_the_model(optimizer: Any, model: np.ndarray, direction: Any, state: Any, frozen: Any) -> None:
        before = model[frozen]
        optimizer.apply(model, direction, state)
        model[frozen] = before

    patch.setattr("eris.protocol.replica.apply_except", only_the_model)


@mutation(checks.lost_shards_are_frozen, LOSING.change(optimizer="fedadam"))
def a_lost_shard_is_a_zero_direction(patch: pytest.MonkeyPatch) -> None:
    def no_freeze(optimizer: Any, model: np.ndarray, direction: Any, state: Any, frozen: Any) -> None:
        del frozen
        optimizer.apply(model, direction, state)

    patch.setattr("eris.protocol.replica.apply_except", no_freeze)


@mutation(checks.equals_the_reference, EVEN.change(optimizer="fedadam"))
def buffers_through_the_optimizer(patch: pytest.MonkeyPatch) -> None:
    apply = Replica.apply

    def everything(self: Replica, mean: Any, buffers: Any, layout: Any) -> None:
        rest = self.model[self.recipe.spec.n_trainable :]
        before = rest.copy()
        apply(self, mean, buffers, layout)
        rest[:] = before
        if not hasattr(self, "_rest"):
            self._rest = self.recipe.optimizer.init(rest.size)
        self.recipe.optimizer.apply(rest, buffers.values, self._rest)

    patch.setattr(Replica, "apply", everything)


@mutation(checks.nobody_moves_before_the_verdict, EVEN, alone=True)
def step_before_the_verdict(patch: pytest.MonkeyPatch) -> None:
    receive = Member.receive

    def eager(self: Member, published: Any) -> Any:
        shard = published.manifest.shard
        plan = self.recipe.layout(published.manifest.round).trainable
        self.replica.model[plan.coordinates(shard)] -= published.values
        return receive(self, published)

    patch.setattr(Member, "receive", eager)


@mutation(checks.equals_the_reference, LOSING, alone=True)
def apply_what_is_held_not_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    conclude = Member.conclude

    def committed(held: Published, entry: ShardVerdict) -> ShardVerdict:
        said = held.manifest
        return replace(entry, lost="", hash=said.hash, contributors=said.contributors, manifest=said.digest)

    def greedy(self: Member, verdict: Any) -> Any:
        held = self.held.published
        entries = tuple(committed(held[e.shard], e) if e.shard in held else e for e in verdict.shards)
        changed = conclude(self, replace(verdict, shards=entries))
        self.chain = verdict.digest
        return changed

    patch.setattr(Member, "conclude", greedy)


@mutation(checks.equals_the_reference, MOVING)
def reassemble_with_the_first_plan(patch: pytest.MonkeyPatch) -> None:
    reassemble = ShardPlan.reassemble
    first = MOVING.policy.layout(0).trainable

    def stale(self: ShardPlan, parts: list[np.ndarray], *, out: np.ndarray | None = None) -> np.ndarray:
        return reassemble(first if self.n == first.n else self, parts, out=out)

    patch.setattr(ShardPlan, "reassemble", stale)


@mutation(checks.equals_the_reference, UNEVEN.change(optimizer="fedavgm"))
def an_optimizer_restarted_every_round(patch: pytest.MonkeyPatch) -> None:
    step = FedAvgM.step

    def amnesic(self: FedAvgM, model: np.ndarray, direction: Any, state: Any, scratch: Any) -> None:
        state["momentum"][:] = 0
        step(self, model, direction, state, scratch)

    patch.setattr(FedAvgM, "step", amnesic)


@mutation(checks.equals_the_reference, DSC)
def settle_only_the_first_round(patch: pytest.MonkeyPatch) -> None:
    settle = Chain.settle

    def once(self: Chain, outgoing: Any, private: Any, accepted: Any) -> None:
        if not any(value.any() for value in private.values()):
            settle(self, outgoing, private, accepted)

    patch.setattr(Chain, "settle", once)


# ── fixed point ──────────────────────────────────────────────────────────────────────────────────────────────────────

FIXED = UNEVEN.change(exponent=6, encoding=FixedPoint())


@mutation(checks.equals_the_reference, FIXED.change(rounds=1))
def limit_after_the_weight(patch: pytest.MonkeyPatch) -> None:
    def encode(self: RingScale, values: Any, weight: Any, *, out: Any = None) -> Any:
        limited = np.clip(values * weight, -self.limit, self.limit)
        return Encoded(np.rint(limited * F(2.0**self.fraction)).astype(np.int64).astype(np.uint32), 0)

    patch.setattr(RingScale, "encode", encode)


@mutation(checks.equals_the_reference, FIXED)
def add_up_in_floats(patch: pytest.MonkeyPatch) -> None:
    """What is added is rounded to 24 digits after each step, as a float would be."""

    def add(total: Any, values: Any) -> Any:
        signed = np.dtype(f"i{total.itemsize}")
        summed = total.view(signed).astype(F) + values.view(signed).astype(F)
        total[:] = summed.astype(np.int64).astype(signed).view(total.dtype)
        return total

    patch.setattr("eris.protocol.aggregator.add", add)
    patch.setattr("eris.simulate.fold.add", add)


@mutation(checks.equals_the_reference, DSC.change(encoding=FixedPoint()))
def settle_by_what_was_meant_to_be_sent(patch: pytest.MonkeyPatch) -> None:
    """The member's own reference follows its float values, everybody else's idea of it the whole numbers."""
    weigh = steps.in_fixed_point

    def own(recipe: Recipe, outgoing: Any, *given: Any, **named: Any) -> Any:
        weighed = weigh(recipe, outgoing, *given, **named)
        return weighed._replace(outgoing=replace(weighed.outgoing, stages=outgoing.stages))

    patch.setattr(steps, "in_fixed_point", own)


@mutation(checks.equals_the_reference, FIXED)
def a_limit_that_never_follows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "_follow", lambda self, largest, members: None)


# ── randomness ───────────────────────────────────────────────────────────────────────────────────────────────────────


@mutation(checks.noise_is_private, EVEN, alone=True)
def noise_from_the_public_root(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Seed, "require_private", lambda self, purpose: self)


@mutation(checks.noise_is_private, EVEN, alone=True)
def one_private_root_for_all(patch: pytest.MonkeyPatch) -> None:
    original = Member.__init__

    def shared(self: Member, peer: int, recipe: Recipe, model: Any, private: Seed, **options: Any) -> None:
        original(self, peer, recipe, model, Seed("shared", b"0" * 16, private=True), **options)

    patch.setattr(Member, "__init__", shared)


# ── the tests ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mutant", MUTATIONS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_noticed(mutant: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.check(mutant.case)
    mutant.apply(monkeypatch)
    with pytest.raises(
        (AssertionError, pytest.fail.Exception, Refused)
    ):  # refused: the other roles noticed by themselves
        mutant.check(mutant.case)


@pytest.mark.parametrize("mutant", [m for m in MUTATIONS if not m.alone], ids=lambda mutant: mutant.name)
def test_it_is_noticed_in_the_simulator_as_well(mutant: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.simulated(mutant.case)
    mutant.apply(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        mutant.simulated(mutant.case)


def test_there_are_enough_of_them_and_every_check_has_one() -> None:
    assert len({mutant.name for mutant in MUTATIONS}) == len(MUTATIONS) >= 12
    checked = {check.__name__ for mutant in MUTATIONS for check in (mutant.check, mutant.simulated)}
    checked |= {"OneAhead", "_is_one_ahead"}  # what checks are made of
    public = {name for name, value in vars(checks).items() if callable(value) and value.__module__ == checks.__name__}
    assert public - checked == {"equals_one_aggregator_and_the_reference"}
    assert sum(not mutant.alone for mutant in MUTATIONS) >= 24
