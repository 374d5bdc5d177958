"""Coordinators that have a round played again: what its noise gives away, and what ε says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from eris.aggregate.encoding import FixedPoint
from eris.aggregate.mean import WeightedMean
from eris.local.spec import ModelSpec, Vector
from eris.local.task import LocalResult
from eris.privacy import clip_by_norm, gaussian_noise
from eris.privacy.ring_noise import RingNoise
from eris.protocol import steps
from eris.protocol.floor import Floor
from eris.protocol.member import Member
from eris.protocol.messages import Published
from eris.protocol.recipe import Recipe
from eris.protocol.roster import RosterEntry
from eris.protocol.round_plan import RoundPlan
from eris.protocol.shown import RELEASED, Releases
from eris.seeds import private_root, public_root
from eris.shards.policy import ShardPolicy
from eris.step.plain import FedAvgM
from eris.transforms import Transform, chain
from eris.transforms.natural import natural
from tests.equivalence.case import Case
from tests.equivalence.federation import Federation

SPEC, PEERS = ModelSpec.flat(600), 6
FIRST = np.linspace(0.01, 0.02, SPEC.n, dtype=np.float32)
OTHER = FIRST * np.float32(1.5)
NOISE = (clip_by_norm(1.0), gaussian_noise(0.5, 1.0))


def member_with(*transforms: Transform, folder: Path | None = None) -> Member:
    policy = ShardPolicy(SPEC, 5, public_root(1))
    made = Recipe(SPEC, policy, chain(*transforms), WeightedMean(), FedAvgM(lr=1.0, beta=0.5), public_root(1))
    floor, releases = Floor(min_contributors=1), Releases(folder / RELEASED if folder is not None else None)
    return Member(0, made, np.zeros(SPEC.n, np.float32), private_root(0, 0), floor=floor, releases=releases)


def sent(member: Member, update: Vector, epoch: int, peers: int = PEERS) -> Vector:
    """Play the round once more, in another epoch, with an update; return all that leaves."""
    roster = tuple(RosterEntry(peer, f"peer-{peer}", 1.0) for peer in range(PEERS))
    everybody, owners = tuple(range(peers)), tuple(range(1, PEERS))
    plan = RoundPlan("run", epoch, member.round, member.chain, SPEC.digest, roster, everybody, owners)
    member.begin(plan)
    return np.concatenate([upload.part.values() for upload in member.contribute(LocalResult(update, 1))])


def test_the_same_update_again_is_the_same_bytes() -> None:
    """What costs nothing: an average over any number of plans has the noise of one."""
    member = member_with(*NOISE)
    first = sent(member, FIRST, 0)
    assert all(np.array_equal(sent(member, FIRST, epoch), first) for epoch in range(1, 6))
    assert len(member.releases) == 1


def test_prevented_another_update_of_the_round_under_the_same_noise() -> None:
    """Prevented: the difference of the two would be that of the updates, without any noise."""
    member = member_with(*NOISE)
    difference = sent(member, OTHER, 1) - sent(member, FIRST, 0)
    bare = np.concatenate([sent(member_with(), OTHER, 1) - sent(member_with(), FIRST, 0)])
    assert np.linalg.norm(difference - bare) > 10 * np.linalg.norm(bare)
    assert len(member.releases) == 2


def ring_member(noise: RingNoise) -> Member:
    policy = ShardPolicy(SPEC, 5, public_root(1))
    made = Recipe(
        SPEC, policy, chain(clip_by_norm(noise.bound)), WeightedMean(), FedAvgM(lr=1.0, beta=0.5), public_root(1),
        encoding=FixedPoint(), noise=noise,
    )  # fmt: skip
    floor = Floor(min_contributors=1)
    return Member(0, made, np.zeros(SPEC.n, np.float32), private_root(0, 0), floor=floor)


def test_prevented_the_same_draws_under_another_deviation() -> None:
    """Prevented: with fewer participants shares are larger; were they the same draws, two plans would show all."""
    member = ring_member(RingNoise(0.5, 1.0, shares=True))
    first, again, fewer = (sent(member, FIRST, epoch, peers) for epoch, peers in ((0, PEERS), (0, PEERS), (0, 4)))
    assert np.array_equal(first, again)
    assert len(member.releases) == 2
    bare = sent(ring_member(RingNoise(1e-4, 1.0)), FIRST, 0)
    one, two = first - bare, fewer - bare  # nearly the noise alone
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.2
    assert np.std(two) > 1.05 * np.std(one)


def test_prevented_coins_of_rounding_that_another_update_shows() -> None:
    member = member_with(natural())
    once, again = sent(member, FIRST, 0), sent(member, FIRST, 1)
    assert np.array_equal(once, again)
    up = once > np.sort(FIRST)[0]  # which way each value was rounded, as far as two neighbours share a power of two
    nudged = np.nextafter(FIRST, np.float32(1))  # nearly the same values: nearly the same chances
    assert not np.array_equal(sent(member, nudged, 2) > np.sort(FIRST)[0], up)


@pytest.mark.parametrize("restarts", [False, True])
def test_every_other_update_is_counted_before_it_leaves(tmp_path: Path, restarts: bool) -> None:
    """Detected by the member itself: its ε grows with every update that it lets go, over restarts too."""
    member = member_with(*NOISE, folder=tmp_path)
    for epoch, scale in enumerate((1.0, 1.0, 0.5, 0.25, 1.0)):
        if restarts:
            member = member_with(*NOISE, folder=tmp_path)
        sent(member, FIRST * np.float32(scale), epoch)
    assert len(member.releases) == 3
    with (tmp_path / RELEASED).open("a") as file:
        file.write('{"round": 0, "upd')  # the power failed: it was not sent
    assert len(Releases(tmp_path / RELEASED)) == 3


# ── shares of noise under masks ──────────────────────────────────────────────────────────────────────────────────────

SHARES = Case(n=4000, members=9, shards=1, buffers=0, encoding=FixedPoint(), unmaskers=1)
SHARES = SHARES.change(noise=RingNoise(0.8, 1.0, shares=True))
Everybody = tuple(range(9))


@dataclass
class PlayedAgain:
    """A masked round of nine members that is planned again, in another epoch, with sums over any set of them."""

    noisy: bool = True
    epoch: int = 0

    def __post_init__(self) -> None:
        self.federation = Federation(SHARES)
        self.plan = self.federation.plan()

    def sum_over(self, *members: int, train: Callable[..., LocalResult] | None = None) -> np.ndarray:
        """Plan the round once more and return the sum that its aggregator learns."""
        federation, plan = self.federation, replace(self.plan, epoch=self.epoch)
        self.epoch += 1
        with pytest.MonkeyPatch.context() as patch:
            if not self.noisy:
                patch.setattr(steps, "add_discrete_gaussian", lambda *given: None)
            federation.begin(plan)
            uploads = federation.contribute(plan, train or federation._train)
        federation.upload(plan, [upload for upload in uploads if upload.member in members])
        [published] = federation.cut(plan)
        assert isinstance(published, Published)
        return published.values.view(np.int32).astype(float)

    @property
    def share(self) -> float:
        """The deviation of one share, in grid steps."""
        scale = self.federation.members[0].replica.scale_in(self.plan)
        return steps.noise_deviations(self.federation.recipe, self.plan, scale)[0]

    @property
    def releases(self) -> set[int]:
        """How often members count what they sent."""
        return {len(member.releases) for member in self.federation.members.values()}


def shares_in(noise: np.ndarray, scene: PlayedAgain) -> float:
    """How many members' shares of noise are left in what somebody has worked out."""
    return float(np.mean((noise / scene.share) ** 2))


def test_prevented_two_sums_of_a_round_that_share_their_noise() -> None:
    """Sums over {0…5} and {3…8}: were the shares the same, their mean would have 4.5 of them and count once, as 6."""
    noisy, bare = PlayedAgain(), PlayedAgain(noisy=False)
    sets = (Everybody[:6], Everybody[3:])
    first, second = (noisy.sum_over(*members) - bare.sum_over(*members) for members in sets)
    assert noisy.plan.least_masked == 6
    assert shares_in(first, noisy) == pytest.approx(6, rel=0.1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.08  # 0.5 with the same shares
    left = shares_in((first + second) / 2, noisy)
    assert noisy.releases == {2}
    assert left >= 6 / 2 * 0.9  # what two releases of six shares leave at least


def test_prevented_a_member_that_changes_while_the_noise_of_all_others_stays() -> None:
    """The same set again, another update of one member: the difference has all shares of both sums, not its own two."""

    def other(member: Member, plan: RoundPlan) -> LocalResult:
        result = SHARES.train(plan.round, member.peer, member.look())
        return replace(result, update=-result.update) if member.peer == 5 else result

    noisy, bare = PlayedAgain(), PlayedAgain(noisy=False)
    first, second = (
        noisy.sum_over(*Everybody, train=train) - bare.sum_over(*Everybody, train=train) for train in (None, other)
    )
    assert shares_in(second - first, noisy) == pytest.approx(18, rel=0.1)
    assert noisy.releases == {2}


def test_a_round_planned_once_is_sent_once_whoever_asks_again() -> None:
    """Within a plan the same values have the same noise: who sends again after a broken link spends nothing."""
    scene = PlayedAgain()
    scene.federation.begin(scene.plan)
    for _ in range(3):
        scene.federation.contribute(scene.plan, scene.federation._train)
    assert scene.releases == {1}
