"""Masked shards in the simulator: the bits of fixed point; bytes, views and exposure of what really happens."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eris.audit.observer import Observer, partners_of
from eris.compose import check_settings
from eris.config import load_config
from eris.errors import ConfigError
from eris.events import RoundEnded, RoundStarted, Sent, ShardPublished
from eris.planner import Fleet, exposure, scenario, traffic
from eris.protocol.participation import draw_participants
from eris.seeds import public_root
from eris.simulate.run import resume, run
from eris.view import view_of
from eris.wire.frame import HEADER_BYTES
from tests.simulate.setting import SMALL, play, prepare, settings

MASKED = "privacy.masking=pairs"
FIXED = "server.encoding=fixed"


def digest(folder, method: str, *changes: str, **options) -> str:
    config = load_config(changes=[*SMALL, f"method={method}", *changes])
    return str(run(config, folder, **options).summaries[0]["model_digest"])


@pytest.mark.parametrize(("members", "aggregators"), [(7, 1), (7, 2), (7, 7), (10, 10)])
@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_masked_runs_are_plain_fixed_ones_bit_for_bit(tmp_path, method, members, aggregators):
    size = [f"members={members}", f"aggregators={aggregators}"]
    changes = [*size, "server.optimizer=fedadam", "server.optimizer_options={lr=0.05}"]
    plain = digest(tmp_path / "plain", method, FIXED, *changes)
    assert digest(tmp_path / "named", f"{method}+masked", *changes) == plain
    assert digest(tmp_path / "set", method, MASKED, "privacy.unmaskers=2", *changes) == plain


def test_participation_and_lost_links_change_nothing_of_that(tmp_path):
    changes = ["participation=0.9", "faults.link_failure=0.05", "members=10", "rounds=6"]
    assert digest(tmp_path / "a", "eris+dsc", FIXED, *changes) == digest(tmp_path / "b", "eris+dsc+masked", *changes)


@pytest.mark.parametrize("noise", [[], [MASKED, "privacy.noise=shares", "privacy.epsilon=50", "privacy.clip=1.0"]])
def test_replay_and_resume(tmp_path, noise):
    method = "eris+dsc" if noise else "eris+masked"
    changes = ["faults.link_failure=0.1", "faults.aggregator_dropout=0.2", "rounds=6", *noise]
    first = digest(tmp_path / "first", method, *changes)
    verdicts = tmp_path / "first" / "verdicts.jsonl"
    assert digest(tmp_path / "again", method, "rounds=6", *noise, replay=verdicts) == first
    asked = iter(range(10**9))
    config = load_config(changes=[*SMALL, f"method={method}", *changes])
    assert not run(config, tmp_path / "cut", stopped=lambda: next(asked) > 20).finished
    assert resume(tmp_path / "cut").summaries[0]["model_digest"] == first


def test_who_unmasks_is_in_the_plan_and_not_who_aggregates(tmp_path):
    for replicas in (1, 2):
        played = play(settings(f"shards.replicas={replicas}", "privacy.unmaskers=2", MASKED), tmp_path / str(replicas))
        for event in played.of(RoundStarted):
            assert len(event.unmaskers) == 14
            for shard, home in enumerate(event.assignment):
                owners = {home, *event.witnesses[shard : shard + 1]}
                helpers = event.unmaskers[2 * shard : 2 * shard + 2]
                assert len({*owners, *helpers}) == replicas + 2
                assert helpers == partners_of(played.config, "eris")[home]


def test_bytes_are_those_of_the_wire(tmp_path):
    """A masked round sends 16 bytes more with every contribution, and every shard once more, from q to p."""
    plain, masked = (play(settings(change, "rounds=1"), tmp_path / change) for change in (FIXED, MASKED))
    [one], [two] = plain.of(RoundEnded), masked.of(RoundEnded)
    messages = sum(bool(count) for event in plain.of(Sent) for count in event.bytes)
    pads = sum(event.bytes + 16 for event in plain.of(ShardPublished))
    assert two.traffic.total - one.traffic.total == 16 * messages + pads
    assert two.traffic.member.down == one.traffic.member.down
    assert two.traffic.seconds > one.traffic.seconds
    planned = traffic(
        "eris+masked",
        scenario(n=masked.composition.recipe.spec.n, fleet=Fleet.uniform(7, rate=1e6), header=HEADER_BYTES),
    )
    assert planned.network == two.traffic.total


def test_an_aggregator_alone_sees_nothing_and_with_its_unmasker_its_shard(tmp_path):
    played = play(settings(MASKED, "rounds=1"), tmp_path)
    [started], [sent, *_] = played.of(RoundStarted), played.of(Sent)
    layout = played.composition.recipe.layout(0)
    duties = (started.assignment, started.witnesses, started.unmaskers)
    for peer in range(7):
        assert view_of(sent, layout, duties[0], {peer}, *duties[1:]).size == 0
        [helper] = partners_of(played.config, "eris")[peer]
        pair = view_of(sent, layout, duties[0], {peer, helper}, *duties[1:])
        plain = view_of(sent, layout, duties[0], {peer})
        assert pair.size == plain.size > 0
        assert np.array_equal(pair.values, plain.values)
    assert sent.steps == 1.0
    everybody = view_of(sent, layout, duties[0], range(7), *duties[1:])
    assert everybody.coordinates.size == layout.trainable.n


@pytest.mark.parametrize("schedule", ["fixed", "redraw"])
def test_the_ledger_says_what_one_peer_and_what_a_pair_sees(tmp_path, schedule):
    config = settings(MASKED, f"shards.schedule={schedule}")
    summary = run(config, tmp_path / "run").summaries[0]
    assert summary["exposure"] == {"largest_share_per_round": 0.0, "union_over_rounds": 0.0}
    plain = run(settings(FIXED, f"shards.schedule={schedule}"), tmp_path / "plain").summaries[0]
    written, other = (json.loads((tmp_path / name / "exposure.json").read_text()) for name in ("run", "plain"))
    assert "steps" not in written["side_scalars"]
    for key in ("largest_share_per_round", "union_over_rounds", "values_over_rounds"):
        assert written["with_unmaskers"][key] == other[key] > 0
    assert plain["exposure"]["largest_share_per_round"] > 0.1


def test_observers_of_the_audit():
    places = {"limit": 3, "partners": {0: (1,), 1: (2,), 2: (3,), 3: (0,)}}
    found = Observer("pair").vantages(2, [0, 1, 2, 3], 4, public_root(1), **places)
    assert {vantage.peers for vantage in found} == {(0, 1), (3, 0)}  # neither the victim's own shard nor one it unmasks
    alone = Observer("unmasker").vantages(2, [0, 1, 2, 3], 4, public_root(1), **places)
    assert {vantage.peers for vantage in alone} == {(0,), (1,)}  # peer 3 unmasks only what the victim keeps at home
    for kind in ("pair", "unmasker"):
        with pytest.raises(ConfigError, match="not masked"):
            Observer(kind).vantages(2, [0, 1, 2, 3], 4, public_root(1), limit=1)


def test_the_planner_knows_it():
    round = scenario(n=11_700_000, fleet=Fleet.uniform(10, rate=20e6))
    plain, masked = traffic("eris", round), traffic("eris+masked", round)
    assert masked.network / plain.network == pytest.approx(1 + 1 / 18, abs=1e-4)  # +5.6 %
    assert [exposure("eris+masked", round, coalition=c).share for c in (1, 2, 3)] == pytest.approx([0.0, 0.1, 0.2])
    assert exposure("eris", round).share == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["method=fedavg"], "one server, which aggregates alone"),
        (["method=gossip"], "no peer could remove the pads"),
        (["method=eris", "server.rule=median"], "looks at every member's values"),
        (["method=eris", "server.optimizer=fednova", "local.epochs=1"], "sums of a few rounds would reveal each"),
        (["method=scaffold", "local.epochs=1"], "sums of a few rounds would reveal each"),
        (["method=eris", "server.rule=trimmed_mean"], "looks at every member's values"),
        (["method=eris+dsc", "compression.compressor=natural"], "symbols cannot be added up"),
        (["method=eris+dsc", "compression.masks=independent"], "a value that only one of them keeps"),
        (["method=eris+dsc", "compression.compressor=top_k", "compression.gamma=1.0"], "depend on the values"),
        (["method=eris", "members=1", "server.min_contributors=1"], "1 others to unmask"),
    ],
)  # fmt: skip
def test_what_needs_single_values_is_refused_with_the_reason(changes, said):
    with pytest.raises(ConfigError, match=said) as refused:
        check_settings(load_config(changes=[*changes, MASKED]))
    assert refused.value.where["key"] == "privacy.masking"


NETWORK = ["data.name=mnist-sample", "data.samples=10", "data.test_samples=50", "local.steps=2", "local.momentum=0.0"]


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedprox", []),
        ("scaffold", NETWORK),
        ("scaffold", [*NETWORK, "participation=0.8", "faults.link_failure=0.05"]),
        ("scaffold", [*NETWORK, "local.steps=0", "local.epochs=2", "local.batch=full"]),
        ("eris", [*NETWORK, "server.optimizer=fednova"]),
        ("eris", [*NETWORK, "server.optimizer=fednova", "local.steps=0", "local.epochs=2", "local.batch=full"]),
        *(("eris", [f"server.optimizer={name}"]) for name in ("fedavgm", "fedadagrad", "fedyogi")),
        ("eris+ldp", []),
        ("eris+ldp", ["participation=0.8", "faults.link_failure=0.05", "server.optimizer=fedadam"]),
        ("eris+dsc+ldp", ["compression.compressor=bernoulli"]),
        ("eris", [*NETWORK, "privacy.unit=sample", "privacy.epsilon=5", "privacy.clip=1.0"]),
    ],
)
def test_whatever_needs_only_sums_has_the_bits_of_its_plain_run(tmp_path, method, changes):
    changes = [*changes, "rounds=3"]
    assert digest(tmp_path / "a", method, FIXED, *changes) == digest(tmp_path / "b", method, MASKED, *changes)


def test_sums_of_numbers_that_stay_the_same_tell_each_of_them():
    """Why uneven local steps do not travel as a sum: ten members, half drawn in each of twelve rounds, all known."""
    steps = np.random.default_rng(3).integers(1, 40, 10).astype(float)  # w_k τ_k, which nobody changes
    rounds = [draw_participants(range(10), 0.5, public_root(1), number) for number in range(12)]
    sets = np.array([[member in drawn for member in range(10)] for drawn in rounds], float)
    found, *_ = np.linalg.lstsq(sets, sets @ steps, rcond=None)
    assert np.array_equal(np.rint(found), steps)


def test_scaffold_in_whole_numbers_keeps_its_invariant(tmp_path):
    """c = Σ w_k c_k: members settle by what everybody takes their whole numbers for."""
    config = settings(*NETWORK, MASKED, "participation=0.8", "rounds=4", "server.limit=1024.0", method="scaffold")
    played = play(config, tmp_path)
    replica, states = played.simulation.replica, played.simulation.states
    weights = [1 / 7] * 7
    controls = [states.read(member) for member in range(7)]
    n = played.composition.recipe.spec.n_trainable
    mean = sum(w * state[-n:].astype(np.float64) for w, state in zip(weights, controls, strict=True))
    [common] = [value for name, value in replica.public.items() if name.endswith("control")]
    assert np.abs(common).max() > 0.01
    assert np.abs(mean - common).max() < 1e-7  # a grid step is 10⁻⁶


@pytest.mark.parametrize("method", ["eris+ldp", "eris+dsc+ldp"])
def test_shares_of_noise_have_the_bits_of_plain_shares(tmp_path, method):
    """Plain shares are refused to users, so the recipe is changed behind the configuration's back."""
    masked = settings(MASKED, "privacy.noise=shares", "faults.link_failure=0.03", "rounds=3", method=method)
    prepared = prepare(masked, tmp_path / "plain")
    object.__setattr__(prepared.composition.recipe, "unmaskers", 0)
    prepared.simulation.play(3)
    assert play(masked, tmp_path / "masked").digest == prepared.digest


def test_shares_leave_less_noise_in_the_mean_than_noise_of_ones_own(tmp_path):
    long = ["data.name=mnist-sample", "data.samples=4", "data.test_samples=10", "rounds=1", "privacy.clip=0.001"]

    def spread(*changes):
        played = play(settings(*long, "privacy.noise_multiplier=1.0", *changes), tmp_path / "-".join(changes))
        return np.concatenate([event.values for event in played.of(ShardPublished)]).std()

    plain, own, shares = spread("server.encoding=float"), spread(MASKED), spread(MASKED, "privacy.noise=shares")
    assert own == pytest.approx(plain, rel=0.02)
    assert own == pytest.approx(0.002 / np.sqrt(7), rel=0.02)  # σ·2C on each of seven
    assert shares == pytest.approx(0.002 / np.sqrt(7 * (5 - 1)), rel=0.02)  # σ·2C/7 in all, of 5 − 1 members


def test_the_summary_says_what_noise_is_worth_against_whom(tmp_path):
    changes = ["privacy.noise=shares", "privacy.colluders=2", "privacy.epsilon=5"]
    privacy = run(settings(MASKED, *changes, method="eris+ldp"), tmp_path / "a").summaries[0]["privacy"]
    found = privacy["observers"]
    assert list(found) == ["outsider", "member", "2 members", "aggregator with unmaskers"]
    assert list(found.values()) == sorted(found.values())
    assert found["2 members"] == pytest.approx(privacy["value"])
    assert privacy["realised"] < found["outsider"]  # all seven took part, five were promised
    assert "aggregator with unmaskers" in privacy["text"]
    own = run(settings(MASKED, "privacy.epsilon=5", method="eris+ldp"), tmp_path / "b").summaries[0]["privacy"]
    assert own["observers"]["aggregator with unmaskers"] == pytest.approx(own["value"])


@pytest.mark.parametrize(
    ("changes", "said", "key"),
    [
        (["method=eris+ldp", "privacy.noise=shares"], "aggregators of plain shards see more", "privacy.noise"),
        (["method=eris", MASKED, "privacy.noise=shares"], "no noise is set", "privacy.noise"),
        (["method=eris+ldp", MASKED, "privacy.noise=shares", "privacy.unit=sample"], "own", "privacy.noise"),
        (["method=eris+ldp", MASKED, "privacy.noise=shares", "privacy.colluders=7"], "sum may", "privacy.colluders"),
    ],
)  # fmt: skip
def test_shares_that_would_not_be_enough_are_refused(changes, said, key):
    with pytest.raises(ConfigError, match=said) as refused:
        check_settings(load_config(changes=changes))
    assert refused.value.where["key"] == key


def test_unmaskers_without_masking_are_a_mistake():
    with pytest.raises(ConfigError, match="nothing is masked"):
        check_settings(load_config(changes=["method=eris", "privacy.unmaskers=2"]))
