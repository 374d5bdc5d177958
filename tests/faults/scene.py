"""One aggregator in the middle of a round, honest members, and one that is not."""

from __future__ import annotations

import time

import numpy as np

from eris.aggregate.mean import WeightedMean
from eris.errors import Reason, Refused
from eris.local.spec import ModelSpec, TensorSpec
from eris.local.task import LocalResult
from eris.peer import framing
from eris.peer.shard_server import ShardServer
from eris.peer.shared_aggregator import SharedAggregator
from eris.protocol.aggregator import Aggregator
from eris.protocol.floor import Floor
from eris.protocol.member import Member
from eris.protocol.messages import Published, Upload
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import Deadlines, RoundPlan
from eris.protocol.verdict import GENESIS
from eris.seeds import private_root, public_root
from eris.shards.policy import ShardPolicy
from eris.step.plain import FedAvgM
from eris.transforms import chain, rand_k, shift, top_k
from tests.faults.script import Recorder
from tests.protocol.world import sign_as, verify

SPEC = ModelSpec((
    TensorSpec("weight", (40, 7), "float32", "trainable"),
    TensorSpec("mean", (9,), "float32", "buffer"),
))  # fmt: skip
CHAINS = {
    "dense": chain,
    "dsc": lambda: chain(shift(rand_k(0.3), gamma=0.25)),
    "top-k": lambda: chain(top_k(0.1)),
}
MEMBERS, HOSTILE, AGGREGATOR = 4, 3, 0


class Scene:
    """Four members, two shards; peer 0 aggregates the first one, and member 3 is hostile."""

    def __init__(self, kind: str = "dense", *, cut: float = 60.0, patience: float = 90.0) -> None:
        self.recipe = Recipe(
            SPEC,
            ShardPolicy(SPEC, 2, public_root(5)),
            CHAINS[kind](),
            WeightedMean(),
            FedAvgM(lr=1.0, beta=0.5),
            public_root(5),
        )
        roster = tuple(RosterEntry(peer, name(peer), weight=1.0 + peer) for peer in range(MEMBERS))
        self.plan = RoundPlan(
            run="run", epoch=0, round=0, chain=GENESIS, spec=SPEC.digest, roster=roster,
            participants=tuple(range(MEMBERS)), assignment=(AGGREGATOR, 1), deadlines=Deadlines(cut, patience),
        )  # fmt: skip
        self.uploads = [self._upload(peer) for peer in range(MEMBERS)]
        self.aggregator = Aggregator(AGGREGATOR, self.recipe, sign=sign_as(AGGREGATOR))
        self.shared = SharedAggregator(self.aggregator, lambda outcome, round: None)
        self.open()
        self.server = ShardServer(
            self.shared, peer_of=number, find=lambda digest: None, snapshot=self.member(0).snapshot
        )

    def open(self) -> None:
        """Begin the round anew."""
        self.shared.begin(self.plan)

    def member(self, peer: int) -> Member:
        start = np.linspace(-1, 1, SPEC.n, dtype=np.float32)
        return Member(peer, self.recipe, start, private_root(0, peer), floor=Floor(min_contributors=1), verify=verify)

    def _upload(self, peer: int) -> Upload:
        member = self.member(peer)
        member.begin(self.plan)
        update = np.sin(np.arange(SPEC.n, dtype=np.float32) * np.float32(peer + 1))
        return member.contribute(LocalResult(update, 1, steps=1.0 + peer))[0]

    def conclude(self, *peers: int) -> Published:
        """Let honest members contribute and cut; whatever the hostile one managed to stage is in, or not."""
        for peer in peers:
            self.shared.receive(self.uploads[peer], peer)
        plan = self.plan
        self.aggregator._cut_at = time.monotonic()
        self.shared.tick()
        outcome = self.shared.outcome(plan.digest, 0, time.monotonic() + 1)
        assert isinstance(outcome, Published)
        return outcome


def name(peer: int) -> str:
    return f"peer-{peer}"


def number(text: str) -> int | None:
    return int(text[5:]) if text.startswith("peer-") else None


def spoken_by_member(scene: Scene) -> Recorder:
    """Return what an honest member sends: its contribution in two chunks, then questions."""
    link = Recorder()
    framing.send_upload(link, scene.uploads[HOSTILE], scene.recipe, 0.0)
    framing.ask(link, framing.HashQuestion("0" * 64), 0.0)
    place = {"plan": scene.plan.digest, "epoch": scene.plan.epoch, "round": scene.plan.round, "shard": 1}
    framing.ask(link, framing.ManifestQuestion(**place), 0.0)
    framing.ask_for_shard(link, scene.plan, 1, 0.0)
    return link


def spoken_by_aggregator(scene: Scene) -> Recorder:
    """Return what an honest aggregator answers: a receipt, a published shard, a snapshot, a refusal."""
    link = Recorder()
    framing.send_receipt(link, scene.shared.receive(scene.uploads[0], 0), 0.0)
    framing.send_published(link, scene.conclude(1, 2), 0.0)
    framing.send_snapshot(link, scene.member(0).snapshot(), 0.0)
    framing.send_refusal(link, Refused(Reason.LATE, "too late"), 0.0)
    return link
