"""The engine for clusters: the same jobs, done by Ray actors, with the same digest as the local engine.

A member that remembers something has a home among the actors, by its number, and its state stays there: only a job that
is done elsewhere than the one before, because a node died or joined, takes the state along. What a job returns comes
back once, for checkpoints, and so that nothing is lost with a node.

Integers are added up on the nodes, and one vector leaves each of them. So a node that dies takes the sums of its round
with it: only the jobs behind those sums are done again elsewhere.

Long jobs are handed out first, as long as the results that must wait for their turn are few enough to be held.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from eris.compose import Composition
from eris.errors import ConfigError, ErisError, RunStopped
from eris.local.spec import Vector
from eris.process_facts import peak_memory
from eris.protocol.replica import Replica
from eris.simulate.engine import Pending, States
from eris.simulate.partial_sum import Total
from eris.simulate.ray_actor import Lacking, RayActor
from eris.simulate.ray_cluster import connected, imported_ray, workers_of
from eris.simulate.task_facts import TaskFacts
from eris.simulate.user_code import failure
from eris.simulate.work import Job, Work, in_cohorts
from eris.simulate.worker_process import TaskSource

__all__ = ["RayEngine"]

_LOG = logging.getLogger(__name__)
_VERSION = metadata.version("eris-fl")
_AHEAD = 2  # cohorts that an actor has at once, so that it need not wait for the engine
_WINDOW = 8  # cohorts per actor among which long ones go first, if results wait for their turn
_MOST_DEATHS = 3  # actors that may die at one cohort before it is given up

Cohort = tuple[Job, ...]


@dataclass(eq=False)
class _Hand:
    """One actor, as the engine sees it."""

    actor: Any
    node: str = ""  # Ray's id of the machine it is on
    doing: dict[Any, Cohort] = field(default_factory=dict)  # by what was promised
    in_sum: list[Cohort] = field(default_factory=list)  # of this round, whose values it has and nobody else


class RayEngine:
    """Does jobs in Ray actors.

    Args:
        source: where actors get the task from.
        workers: how many actors; 0: as many as the cluster has room for.
        address: of a cluster; if empty, one is started on this machine.
        gpus: share of a GPU that each actor takes.
        folder: sent to every node, with modules that only this machine has.
    """

    def __init__(
        self, source: TaskSource, workers: int, address: str = "", *, gpus: float = 0.0, folder: str = ""
    ) -> None:
        self._ray, self._source = imported_ray(), source
        self._started = not self._ray.is_initialized()
        if self._started:
            connected(self._ray, address, workers, folder)
        self._hands: list[_Hand] = []
        self._coming: list[tuple[_Hand, Any]] = []  # in the place of dead ones, with what tells that they are ready
        self._homes: list[_Hand] = []  # member number modulo their count → who has its state
        self._where: dict[int, tuple[_Hand, int]] = {}  # member → who did its last job, and the stamp it began with
        self._deaths: Counter[Cohort] = Counter()
        self._begun: tuple[Any, Any] | None = None  # what a newcomer is told
        self._round = _Round([], _NO_STATES, add_up=False)
        self._model: Any = None
        self._public: Any = None
        self._turn, self._cohort, self._remembers = 0, 1, False
        try:
            self._remote = self._ray.remote(num_cpus=1, num_gpus=gpus)(RayActor)
            self._hands = [self._new_hand() for _ in range(workers_of(self._ray, workers, gpus))]
            self._homes = list(self._hands)
            about = [hand.actor.about.remote() for hand in self._hands]
            for hand, reference in zip(self._hands, about, strict=True):
                hand.node = self._checked(self._get(reference))
            self.facts = TaskFacts.from_dict(self._get(self._hands[0].actor.facts.remote()))
        except _Gone as error:
            self.close()
            why = str(error).strip().splitlines()[-1:]
            raise RunStopped(
                f"a Ray actor died before it could begin: {''.join(why)}",
                fix=f"check that eris {_VERSION} is installed on every node, and Ray's logs there",
            ) from error
        except BaseException:
            self.close()
            raise

    # ── what every engine does ───────────────────────────────────────────────────────────────────────────────────

    def initial(self, seed: int) -> Vector:
        """Return x⁰, from the first actor."""
        vector: Vector = self._get(self._hands[0].actor.initial.remote(seed)).copy()
        return vector

    def begin(self, composition: Composition) -> None:
        """Tell every actor the recipe."""
        self._cohort = composition.config.local.cohort
        private = composition.recipe.chain.private_state(composition.recipe.spec.n_trainable)
        self._remembers = bool(self.facts.memory_size) or any(part.size for part in private.values())
        config = composition.config.model_dump(mode="json", exclude_none=True)
        self._begun = self._ray.put(config), self._ray.put(self.facts.samples)
        self._round = _Round([], _NO_STATES, add_up=False)
        self._where.clear()
        self._deaths.clear()
        for hand in self._hands:
            hand.doing.clear()
            hand.in_sum.clear()
        self._get([hand.actor.begin.remote(*self._begun) for hand in self._hands])

    def publish(self, replica: Replica) -> None:
        """Put model and public state where all actors can read them."""
        self._welcome()
        self._model, self._public = self._ray.put(replica.model), self._ray.put(replica.public)

    def train(self, jobs: Sequence[Job], states: States, *, add_up: bool = False) -> Iterator[Work]:
        """Start keeping every actor busy; yield results in the order of the jobs (see `Engine`)."""
        cohorts = in_cohorts(jobs, self._cohort, self.facts.samples.item)
        self._round = current = _Round(cohorts, states, add_up=add_up)
        self._release(current)
        self._give(current)
        return self._results(current)

    def sums(self) -> Iterator[Total]:
        """Yield one sum from each node; what was lost with a node is done again first."""
        current = self._round
        while nodes := self._nodes_with_sums():
            for hands in nodes:
                yield from self._sum_of(hands, current)
            while current.open or any(hand.doing for hand in self._hands):  # jobs of a node that died begin anew
                self._give(current)
                self._collect(current)

    def evaluate(self) -> Pending:
        """Evaluate the published model on some actor, and on another if that dies."""
        model = self._model
        hand = self._next_hand()
        reference = hand.actor.evaluate.remote(model)

        def metrics() -> dict[str, Any]:
            nonlocal hand, reference
            while True:
                try:
                    found: dict[str, Any] = self._get(reference)
                    return found
                except _Gone:
                    self._bury(hand)
                    hand = self._next_hand()
                    reference = hand.actor.evaluate.remote(model)

        return metrics

    def peak_memory(self) -> int:
        """Return the sum of the largest resident sizes of this process and all living actors."""
        total = peak_memory()
        for hand in list(self._hands):
            try:
                total += self._get(hand.actor.peak_memory.remote())
            except _Gone:
                self._bury(hand)
        return total

    def close(self) -> None:
        """End the actors, and Ray itself if we started it."""
        for hand in (*self._hands, *(hand for hand, _ in self._coming)):
            self._ray.kill(hand.actor)
        if self._started:
            self._ray.shutdown()

    # ── who does what ────────────────────────────────────────────────────────────────────────────────────────────

    def _results(self, current: _Round) -> Iterator[Work]:
        for job in current.jobs:
            while job not in current.done:
                self._release(current)
                self._give(current)
                self._collect(current)
            current.told += 1
            yield current.done.pop(job)

    def _release(self, current: _Round) -> None:
        """Release further cohorts to be handed out, the longest first; all at once if workers return sums."""
        window = len(current.cohorts) if current.add_up else _WINDOW * max(len(self._homes), 1) * self._cohort
        while current.cohorts and current.released - current.told <= window // 2:
            batch = [current.cohorts.popleft() for _ in range(min(max(window, 1), len(current.cohorts)))]
            current.released += sum(map(len, batch))
            samples = self.facts.samples
            for cohort in sorted(batch, key=lambda cohort: -sum(int(samples[job.member]) for job in cohort)):
                self._queue(current, cohort)

    def _queue(self, current: _Round, cohort: Cohort) -> None:
        current.waiting[self._home(cohort) if self._remembers else None].append(cohort)

    def _home(self, cohort: Cohort) -> _Hand:
        return self._homes[cohort[0].member % len(self._homes)]

    def _give(self, current: _Round) -> None:
        """Hand out waiting cohorts: to each actor those at home there, the rest to whoever has least to do."""
        for _ in range(_AHEAD):
            for hand in [hand for hand in self._hands if len(hand.doing) < _AHEAD]:
                waiting = current.waiting[hand] or current.waiting[None]
                if waiting:
                    self._ask(hand, waiting.popleft(), current)

    def _ask(self, hand: _Hand, cohort: Cohort, current: _Round, *, send: bool = False) -> None:
        """Give a cohort to an actor, with the states that it does not have, or with all of them (`send`)."""
        states, stamps = list[Vector | None](), list[int]()
        for job in cohort:
            stamp = current.states.stamp(job.member)
            there, begun = self._where.get(job.member, (None, 0))
            has = there is hand and stamp in (begun, begun + 1) and not send
            states.append(None if has or not stamp else current.states.read(job.member))
            stamps.append(stamp)
        where = self._model, self._public
        reference = hand.actor.train.remote(list(cohort), *where, states, stamps, add_up=current.add_up)
        hand.doing[reference] = cohort

    def _collect(self, current: _Round) -> None:
        """Wait until an actor is done, or dead."""
        doing = {reference: hand for hand in self._hands for reference in hand.doing}
        assert doing, "nobody was asked, so this would wait forever"
        ready, _ = self._ray.wait(list(doing), num_returns=1, fetch_local=False)
        for reference in ready:
            hand = doing[reference]
            if reference not in hand.doing:  # buried meanwhile
                continue
            try:
                works = self._get(reference)
            except _Gone:
                self._bury(hand)
                continue
            cohort = hand.doing.pop(reference)
            if isinstance(works, Lacking):
                self._ask(hand, cohort, current, send=True)
                continue
            self._take(hand, cohort, works, current)

    def _take(self, hand: _Hand, cohort: Cohort, works: list[Work], current: _Round) -> None:
        if any(work.added for work in works):
            hand.in_sum.append(cohort)
        for work in works:
            member = work.job.member
            self._where[member] = hand, current.states.stamp(member)
            if work.job not in current.seen:
                current.seen.add(work.job)
                current.done[work.job] = work

    # ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _nodes_with_sums(self) -> list[list[_Hand]]:
        nodes: dict[str, list[_Hand]] = defaultdict(list)
        for hand in self._hands:
            if hand.in_sum:
                nodes[hand.node].append(hand)
        return list(nodes.values())

    def _sum_of(self, hands: list[_Hand], current: _Round) -> list[Total]:
        """Return the sum of a node's actors; if one of them is gone, have all their jobs done again."""
        parts = [hand.actor.total.remote() for hand in hands]
        try:
            total = self._get(parts[0] if len(hands) == 1 else hands[0].actor.added.remote(*parts))
        except _Gone:
            for hand in hands:
                if not self._lives(hand):
                    self._bury(hand)
                    continue
                again, hand.in_sum = hand.in_sum, []
                _LOG.warning("the sum of a Ray node is lost; %d jobs start again", sum(map(len, again)))
                for cohort in again:
                    self._queue(current, cohort)
            return []
        for hand in hands:
            hand.in_sum.clear()
        return [total]

    def _lives(self, hand: _Hand) -> bool:
        try:
            self._get(hand.actor.about.remote())
        except _Gone:
            return False
        return True

    # ── deaths and newcomers ─────────────────────────────────────────────────────────────────────────────────────

    def _bury(self, hand: _Hand) -> None:
        """Continue without an actor: redo its jobs of this round elsewhere, and give its members another home."""
        if hand not in self._hands:
            return
        self._hands.remove(hand)
        self._ray.kill(hand.actor)  # should it only have been out of reach
        lost, hand.doing, again = list(hand.doing.values()), {}, hand.in_sum
        _LOG.warning("a Ray actor has died; %d jobs start again", sum(map(len, (*lost, *again))))
        if lost:
            self._deaths[lost[0]] += 1
            if self._deaths[lost[0]] >= _MOST_DEATHS:
                job = lost[0][0]
                raise RunStopped(
                    f"{_MOST_DEATHS} Ray actors in a row died while training this member",
                    fix="read Ray's logs of that worker; `eris run --resume` continues from the last checkpoint",
                    peer=job.member,
                    round=job.round,
                )
        if not self._hands:
            raise RunStopped(
                "all Ray actors have died",
                fix="check the cluster with `ray status`; `eris run --resume` continues from the last checkpoint",
            )
        for place, home in enumerate(self._homes):
            if home is hand:
                self._homes[place] = self._hands[place % len(self._hands)]
        current = self._round
        for cohort in (*current.waiting.pop(hand, ()), *lost, *again):
            self._queue(current, cohort)
        newcomer = self._new_hand()
        self._coming.append((newcomer, newcomer.actor.about.remote()))

    def _new_hand(self) -> _Hand:
        return _Hand(self._remote.remote(self._source.factory, self._source.arguments, sys.path))

    def _welcome(self) -> None:
        """Take in the actors that Ray has placed since others died; each gets a share of the members back."""
        for hand, ready in list(self._coming):
            if not self._ray.wait([ready], timeout=0, fetch_local=False)[0]:
                continue
            self._coming.remove((hand, ready))
            try:
                hand.node = self._checked(self._get(ready))
                if self._begun is not None:
                    self._get(hand.actor.begin.remote(*self._begun))
            except _Gone:
                continue
            self._hands.append(hand)
            count = Counter(id(home) for home in self._homes)
            for place, home in enumerate(self._homes):
                if count[id(home)] > 1:  # stands in for somebody
                    self._homes[place] = hand
                    break

    def _checked(self, about: tuple[str, str]) -> str:
        node, version = about
        if version != _VERSION:
            raise ConfigError(
                f"a node of the Ray cluster has eris {version}, but this machine has {_VERSION}",
                fix="install the same version on all nodes",
                key="network.ray",
            )
        return node

    def _next_hand(self) -> _Hand:
        self._turn = (self._turn + 1) % len(self._hands)
        return self._hands[self._turn]

    def _get(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.OutOfMemoryError as error:
            raise MemoryError(f"Ray ended an actor: {error}") from error
        except errors.RayTaskError as error:
            if isinstance(error.cause, errors.RayActorError | errors.ObjectLostError):  # of what it was handed
                raise _Gone(str(error.cause)) from error
            if isinstance(error.cause, ErisError | MemoryError):
                raise error.cause from error
            raise failure("an actor", error.cause) from error
        except errors.RayActorError as error:
            raise _Gone(str(error)) from error
        except (errors.ObjectLostError, errors.NodeDiedError, errors.WorkerCrashedError) as error:
            raise _Gone(str(error)) from error


class _Gone(Exception):
    """An actor, or an object it made, no longer exists."""


class _NoStates:
    def read(self, member: int) -> None:
        del member

    def stamp(self, member: int) -> int:
        del member
        return 0


_NO_STATES = _NoStates()


class _Round:
    """The jobs of a round, and how far they are done."""

    def __init__(self, cohorts: Sequence[Cohort], states: States, *, add_up: bool) -> None:
        self.jobs = [job for cohort in cohorts for job in cohort]
        self.cohorts, self.states, self.add_up = deque(cohorts), states, add_up
        self.released = self.told = 0  # jobs
        self.waiting: dict[_Hand | None, deque[Cohort]] = defaultdict(deque)  # by home; None: anybody's
        self.done: dict[Job, Work] = {}  # until it is their turn
        self.seen: set[Job] = set()  # jobs with a result; done once more, only the sum is of interest

    @property
    def open(self) -> bool:
        """Whether any job has to be done again."""
        return any(self.waiting.values())
