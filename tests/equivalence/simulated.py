"""The same rounds through the simulator: whole vectors, no messages, members' states settled ahead of the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from eris.compose import Composition
from eris.config import load_config
from eris.events import Event, Listener, VerdictWritten
from eris.local.spec import ModelSpec, Vector
from eris.local.task import LocalResult, Memory
from eris.methods import method_by_name
from eris.protocol.coordinator import Coordinator
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed
from eris.simulate.clock import Links
from eris.simulate.faults import Outages
from eris.simulate.inline_engine import InlineEngine
from eris.simulate.script import LiveScript
from eris.simulate.simulation import Simulation
from eris.simulate.work import StateLayout
from eris.storage.state_store import StateStore
from eris.transforms import Transform
from tests.equivalence.case import Case
from tests.equivalence.federation import outcome_of, recipe_of, roster_of, rules_of
from tests.equivalence.reference import Outcome


def simulate(
    case: Case, *extra: Transform, listeners: Sequence[Listener] = (), trained: Callable[[Vector], None] | None = None
) -> tuple[Outcome, list[tuple[int, ...]]]:
    """Run all rounds of a case; return what everybody holds in the end, and who took part in each round.

    `trained` is shown every model that a member trains from.
    """
    recipe = recipe_of(case, *extra)
    config = load_config(changes=[f"seed={case.seed}", f"members={case.members}", "method=eris"])
    rules = rules_of(case)
    composition = Composition(config, method_by_name("eris"), recipe, roster_of(case), rules.aggregators)
    links, plans = Links.equal(case.members + 1, up=1.0, down=1.0), list[RoundPlan]()

    def listen(event: Event) -> None:
        if isinstance(event, VerdictWritten):
            plans.append(event.plan)

    states = StateStore(Path("in memory"), case.members)
    script = CaseScript(case, composition, links)
    engine, hearing = InlineEngine(CaseTask(case, trained)), [listen, *listeners]
    simulation = Simulation(composition, engine, script, states, links, listeners=hearing)
    simulation.play(case.rounds)
    layout = StateLayout({}, recipe.chain.private_state(case.n))
    stored = {k: states.read(k) for k in range(case.members)}
    private = {k: layout.views(layout.initial() if state is None else state)[1] for k, state in stored.items()}
    return outcome_of(simulation.replica, private), [plan.participants for plan in plans]


class CaseScript(LiveScript):
    """A case's coordinator, and what goes wrong in it: a shard that reaches too few is one whose aggregator is away."""

    def __init__(self, case: Case, composition: Composition, links: Links) -> None:
        super().__init__(composition, links)
        self._case = case
        self._coordinator = Coordinator(composition.recipe, rules_of(case), roster_of(case), [])

    def outages(self, plan: RoundPlan) -> Outages:
        """Return a round's faults."""
        faults = self._case.faults(plan.round)
        failed = {k: tuple(sorted(shard for member, shard in faults.links if member == k)) for k in plan.participants}
        return Outages(tuple(sorted(faults.shards)), {k: shards for k, shards in failed.items() if shards})


class CaseTask:
    """What the members of a case compute, as a task."""

    def __init__(self, case: Case, trained: Callable[[Vector], None] | None = None) -> None:
        self._case, self._trained = case, trained

    @property
    def spec(self) -> ModelSpec:
        return self._case.spec

    @property
    def members(self) -> int:
        return self._case.members

    def samples(self, member: int) -> int:
        return 1

    def initial(self, seed: Seed) -> Vector:
        return self._case.initial

    def memory(self, member: int) -> Memory:
        return {}

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        if self._trained is not None:
            self._trained(model)
        return self._case.train(round, member, model)

    def evaluate(self, model: Vector) -> dict[str, float]:
        return {}
