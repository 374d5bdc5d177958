"""The ledger against views, closed forms, and what it must notice."""

from __future__ import annotations

import numpy as np
import pytest

from eris.errors import CheckpointError
from eris.events import RoundStarted, Sent
from eris.exposure import BitRows, ExposureLedger
from eris.view import view_of
from tests.simulate.setting import prepare, settings


def watched(tmp_path, *changes, method="eris", rounds=4, n=600):
    config = settings(
        "data.name=synthetic-quadratic", f"model.options={{n={n}}}", f"rounds={rounds}", *changes, method=method
    )
    played = prepare(config, tmp_path / "states")
    recipe, server = played.composition.recipe, played.composition.method.server
    ledger = ExposureLedger(recipe, config.members, tmp_path / "ledger", server=server)
    views: dict[tuple[int, int, int], set[int]] = {}  # round, member, observer → coordinates
    assignment = {}

    def watch(event):
        if isinstance(event, RoundStarted):
            assignment[event.round] = event.assignment
        if isinstance(event, Sent):
            layout = recipe.layout(event.round)
            for observer in set(assignment[event.round]):
                view = view_of(event, layout, assignment[event.round], {observer})
                seen = {*view.coordinates.tolist(), *(layout.trainable.n + view.buffer_coordinates).tolist()}
                if server or observer != event.member:
                    views[event.round, event.member, observer] = seen

    played.simulation._listeners = (*played.simulation._listeners, ledger, watch)
    played.simulation.play(rounds)
    return ledger.summary(), views, recipe.spec.n, ledger


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg", []),
        ("eris", []),
        ("eris", ["aggregators=3"]),
        ("eris", ["shards.schedule=redraw"]),
        ("eris", ["shards.schedule=rotate", "aggregators=3"]),
        ("eris", ["faults.link_failure=0.5", "participation=0.6"]),
        ("eris+dsc", []),
        ("eris+dsc", ["shards.schedule=redraw", "faults.link_failure=0.3"]),
    ],
)
def test_the_ledger_is_the_sum_of_the_views(method, changes, tmp_path):
    summary, views, n, _ = watched(tmp_path, *changes, method=method)
    assert summary["largest_share_per_round"] == pytest.approx(max(map(len, views.values())) / n)
    union: dict[tuple[int, int], set[int]] = {}
    for (_, member, observer), seen in views.items():
        union.setdefault((member, observer), set()).update(seen)
    assert summary["union_over_rounds"] == pytest.approx(max(map(len, union.values())) / n)
    assert summary["published_share_per_round"] == 0
    table = summary["by_member"]
    names = {"server": 0} if method == "fedavg" else {name: int(name) for name in table["observers"]}
    for member, row in table["members"].items():
        for place, observer in enumerate(names.values()):
            pair = [seen for (_, who, by), seen in views.items() if (who, by) == (int(member), observer)]
            if int(member) == observer and method != "fedavg":
                assert all(figures[place] is None for figures in row.values())
                continue
            assert row["largest_share_per_round"][place] == pytest.approx(max(map(len, pair), default=0) / n)
            assert row["values_over_rounds"][place] == sum(map(len, pair))
            assert row["union_over_rounds"][place] == pytest.approx(len(set().union(*pair)) / n)
    pairs = {(member, observer) for _, member, observer in views}
    got = [sum(len(seen) for (_, *pair), seen in views.items() if tuple(pair) == each) for each in pairs]
    assert summary["values_over_rounds"] == max(got)  # of the best placed single observer


def test_closed_forms(tmp_path):
    """1 for a server, 1/A for a shard, p/A with compression; redrawn plans show 1 − (1 − 1/A)^t over time."""
    n, A = 6000, 6
    sizes = ["members=6", "aggregators=6"]
    assert watched(tmp_path / "a", *sizes, method="fedavg", n=n)[0]["largest_share_per_round"] == 1
    fixed = watched(tmp_path / "b", *sizes, n=n)[0]
    assert fixed["largest_share_per_round"] == fixed["union_over_rounds"] == pytest.approx(1 / A, abs=1 / n)
    assert fixed["values_over_rounds"] == pytest.approx(4 * n / A, abs=4)  # T·n/A, the count of Theorem 3.2
    dsc = watched(tmp_path / "c", *sizes, "compression.keep=0.1", method="eris+dsc", n=n)[0]
    assert dsc["mean_share_per_round"] == pytest.approx(0.1 / A, rel=0.4)
    redrawn = watched(tmp_path / "d", *sizes, "shards.schedule=redraw", n=n)[0]
    assert redrawn["largest_share_per_round"] == pytest.approx(1 / A, abs=1 / n)
    assert redrawn["union_over_rounds"] == pytest.approx(1 - (1 - 1 / A) ** 4, rel=0.05)
    rotating = watched(tmp_path / "e", *sizes, "shards.schedule=rotate", rounds=6, n=n)[0]
    assert rotating["union_over_rounds"] == 1


def test_own_masks_show_what_only_one_member_kept(tmp_path):
    """p·[1/A + (1 − 1/A)(1 − p)^(K−1)]: the broadcast counts."""
    p, A, K = 0.1, 6, 6
    changes = ["members=6", "aggregators=6", f"compression.keep={p}", "compression.masks=independent"]
    summary = watched(tmp_path, *changes, method="eris+dsc", n=6000)[0]
    alone = (1 - p) ** (K - 1)
    assert summary["mean_share_per_round"] == pytest.approx(p * (1 / A + (1 - 1 / A) * alone), rel=0.1)
    assert summary["published_share_per_round"] == pytest.approx(p * alone, rel=0.1)


@pytest.mark.parametrize("schedule", ["fixed", "redraw"])
def test_what_was_published_alone_stays_seen_by_everybody(tmp_path, schedule):
    """Over T rounds a coordinate outside the shard was shown with probability 1 − (1 − p(1 − p)^(K−1))^T."""
    p, A, K, T = 0.1, 6, 6, 6
    changes = ["members=6", "aggregators=6", f"compression.keep={p}", "compression.masks=independent"]
    changes.append(f"shards.schedule={schedule}")
    summary, views, n, ledger = watched(tmp_path, *changes, method="eris+dsc", n=6000, rounds=T)
    once = p * (1 - p) ** (K - 1)
    inside, outside = 1 - (1 - p) ** T, 1 - (1 - once) ** T
    if schedule == "fixed":
        assert summary["union_over_rounds"] == pytest.approx(inside / A + (1 - 1 / A) * outside, rel=0.05)
    seen = {}
    for (_, member, observer), coordinates in views.items():
        seen.setdefault((member, observer), set()).update(coordinates)
    assert summary["union_over_rounds"] > 1.5 * max(map(len, seen.values())) / n
    again = ExposureLedger(ledger._recipe, 6, tmp_path / "ledger", server=False)
    again.load(ledger.state())
    assert again.summary() == summary


def test_the_values_are_those_of_one_observer(tmp_path):
    """Not of whoever was best placed in each round: under a redrawn plan these are different ones."""
    changes = ["members=5", "aggregators=4", "shards.schedule=redraw", "compression.keep=0.3"]
    summary, views, _, _ = watched(tmp_path, *changes, method="eris+dsc", rounds=6)
    pairs, rounds = {}, {}
    for (round, member, observer), seen in views.items():
        pairs[member, observer] = pairs.get((member, observer), 0) + len(seen)
        rounds[round] = max(rounds.get(round, 0), len(seen))
    assert summary["values_over_rounds"] == max(pairs.values()) < sum(rounds.values())


def test_a_mean_of_one_is_that_member_for_everybody(tmp_path):
    changes = ["server.min_contributors=1", "participation=0.1", "aggregators=3"]
    summary = watched(tmp_path, *changes)[0]
    assert summary["largest_share_per_round"] == 1
    assert summary["published_share_per_round"] == 1


def test_going_on_keeps_the_account(tmp_path):
    *_, ledger = watched(tmp_path, "shards.schedule=redraw", method="eris+dsc")
    again = ExposureLedger(ledger._recipe, 7, tmp_path / "ledger", server=False)
    again.load(ledger.state())
    assert again.summary() == ledger.summary()


def test_an_account_of_an_earlier_version_is_refused(tmp_path):
    *_, ledger = watched(tmp_path)
    state = ledger.state()
    del state["by_round"]
    with pytest.raises(CheckpointError, match="earlier version of eris: start the run afresh"):
        ledger.load(state)


@pytest.mark.parametrize("budget", [0, 1000])
def test_rows_of_bits(tmp_path, budget):
    rows = BitRows(tmp_path / "folder" / "bits", 20, budget=budget)
    assert rows.row(3).tolist() == [0, 0, 0]
    rows.add(3, np.array([1, 0, 128], np.uint8))
    rows.add(3, np.array([2, 0, 128], np.uint8))
    assert rows.row(3).tolist() == [3, 0, 128]
    assert rows.row(2).tolist() == [0, 0, 0]
    assert rows.row(9).tolist() == [0, 0, 0]
    assert [row.tolist() for row in rows.each(5)] == [rows.row(place).tolist() for place in range(5)]
    rows.flush()
    assert BitRows(tmp_path / "folder" / "bits", 20).row(3).tolist() == [3, 0, 128]
    assert [row.tolist() for row in rows.each(5)] == [rows.row(place).tolist() for place in range(5)]


def test_a_coalition_of_all_sees_everything_and_a_stranger_nothing(tmp_path):
    config = settings(method="eris+dsc")
    played = prepare(config, tmp_path)
    recipe, found = played.composition.recipe, []

    def watch(event):
        if isinstance(event, Sent):
            layout = recipe.layout(event.round)
            assignment = recipe.policy.assignment(event.round, played.composition.aggregators)
            whole = view_of(event, layout, assignment, set(assignment))
            assert np.array_equal(whole.coordinates, event.support)
            assert np.array_equal(whole.values, event.values)
            assert whole.scalars == {"weight": event.weight, "steps": event.steps}
            stranger = view_of(event, layout, assignment, {99})
            assert (stranger.size, stranger.scalars) == (0, {})
            found.append(event)

    played.simulation._listeners = (watch,)
    played.simulation.play(2)
    assert len(found) == 14


def test_rounded_values_come_with_a_norm(tmp_path):
    """Their unit follows from the whole vector, whoever sees only a shard of it."""
    options = ["compression.compressor=qsgd", "compression.options={levels=16}"]
    assert "norm" in watched(tmp_path / "a", *options, method="eris+dsc")[0]["side_scalars"]
    assert "norm" not in watched(tmp_path / "b", method="eris+dsc")[0]["side_scalars"]
