"""What a peer writes down, and coming back after an interruption."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from eris.config import load_config
from eris.errors import CheckpointError, ConfigError, Reason
from eris.events import Event, RoundEnded, RunEnded, RunStarted
from eris.peer import peer_folder
from eris.peer.folder_claim import FolderClaim
from eris.peer.peer_folder import PRIVATE_ROOT, PeerFolder, private_root_in
from eris.peer.peer_summary import summarise_peer
from eris.peer.preflight import first_plan
from eris.peer.shared_aggregator import SharedAggregator
from eris.protocol.aggregator import Aggregator
from eris.protocol.messages import Withheld
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from eris.simulate.run import run
from eris.wire.schema import read_plain
from tests.peer.town import Town, settings, simulated, town


def play(place: Town, *names: str, listeners: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Let sessions of these peers play to the end, and return their summaries."""
    summaries: dict[str, dict[str, Any]] = {}

    def keep(name: str) -> None:
        hears = [(listeners or {})[name]] if name in (listeners or {}) else []
        summaries[name] = place.session(name, listeners=hears).run()

    for name in names or place.names:
        place.start(name, lambda name=name: keep(name))
    place.wait()
    return summaries


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_peer_writes_everything_down_and_its_verdicts_can_be_replayed(tmp_path: Path) -> None:
    config = settings("members=3", "aggregators=2", "rounds=3", method="eris+dsc")
    with town(tmp_path / "town", config) as place:
        summaries = play(place)
    for name, summary in summaries.items():
        folder = tmp_path / "town" / "peers" / name
        assert json.loads((folder / "summary.json").read_text()) == summary
        assert [line["round"] for line in lines(folder / "metrics.jsonl")] == [0, 1, 2]
        assert (folder / "model.safetensors").exists()
        assert load_config(folder / "config.toml") == config
        replayed = run(config, tmp_path / f"replay-{name}", replay=folder / "verdicts.jsonl")
        assert replayed.summaries[0]["model_digest"] == summary["model_digest"]
    amber = summaries["amber"]
    assert (amber["ended"], amber["finished"], amber["rounds"]) == ("finished", True, 3)
    assert amber["exposure"]["largest_share_per_round"] == pytest.approx(0.5)  # of the other aggregator
    assert amber["control"]["calls"] > 0


def test_links_are_counted_as_the_kernel_counts_them(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3", "rounds=2", "model.options={n = 600000}")) as place:
        summaries = play(place)
    shards = 2 * 4 * 200_000  # of two rounds, each way over every link
    for name, summary in summaries.items():
        for side in ("dialled", "accepted"):
            assert {link["peer"] for link in summary["links"][side]} == set(summaries) - {name}
            for link in summary["links"][side]:
                assert link["kernel_sent"] == pytest.approx(link["wire_sent"], abs=64)  # but for a goodbye at the end
                assert link["kernel_received"] == pytest.approx(link["wire_received"], abs=64)
                assert shards < link["sent"] < link["kernel_sent"] <= 1.02 * shards
                assert shards < link["received"] < link["kernel_received"] <= 1.02 * shards
        for link in summary["links"]["dialled"]:
            (other,) = [a for a in summaries[link["peer"]]["links"]["accepted"] if a["peer"] == name]
            assert (other["received"], other["sent"]) == (link["sent"], link["received"])


def test_noise_is_accounted_for_and_reproducible_noise_claims_nothing(tmp_path: Path) -> None:
    config = settings("members=3", "rounds=2", "privacy.clip=1.0", "privacy.noise_multiplier=2.0")
    with town(tmp_path, config) as place:
        amber = play(place)["amber"]
    assert amber["privacy"]["rounds"] == 2
    assert amber["privacy"]["value"] > 0
    assert amber["notes"] == ["noise reproducible: no privacy claim"]


def test_shares_of_noise_are_accounted_for_by_observer(tmp_path: Path) -> None:
    noise = ["privacy.masking=pairs", "privacy.noise=shares", "privacy.clip=1.0", "privacy.noise_multiplier=2.0"]
    with town(tmp_path, settings("members=4", "rounds=2", *noise)) as place:
        amber = play(place)["amber"]
    found = amber["privacy"]["observers"]
    assert list(found) == ["outsider", "member", "aggregator with unmaskers"]
    assert found["outsider"] < found["member"] == pytest.approx(amber["privacy"]["value"])
    assert found["member"] < found["aggregator with unmaskers"]
    assert amber["privacy"]["realised"] < found["outsider"]  # four took part, three were promised
    assert "noise_shares(2.0, bound=1.0, colluders=1)" in amber["transforms"]


def test_noise_of_rounds_whose_lines_were_lost_is_accounted_for(tmp_path: Path) -> None:
    config = settings("members=3", "rounds=2", "privacy.clip=1.0", "privacy.noise_multiplier=2.0")
    with town(tmp_path, config) as place:
        node = place.session("amber").node
        node.member.round = 2
        end = RunEnded(2, True, node.model_digest(), 0.0, "finished")
        assert summarise_peer(node, end, rounds=[], verdicts=[])["privacy"]["rounds"] == 2


@pytest.mark.parametrize("method", ["eris", "eris+dsc"])
def test_a_federation_that_was_stopped_goes_on_as_if_nothing_had_happened(tmp_path: Path, method: str) -> None:
    config = settings("members=3", "rounds=6", method=method)
    with town(tmp_path / "town", config, checkpoint_every=2) as place:

        def stop_early(event: Event) -> None:
            if isinstance(event, RoundEnded) and event.round == 2:
                place.coordinator._run.end("stopped by amber")

        stopped = play(place, listeners={"amber": stop_early})
        assert {summary["ended"] for summary in stopped.values()} == {"stopped by amber"}
        assert not any(summary["finished"] for summary in stopped.values())
        place.close()
        place.coordinator = place.open_coordinator()
        finished = play(place)
    assert {s["model_digest"] for s in finished.values()} == {simulated(config, tmp_path / "run")}
    verdicts = lines(tmp_path / "town" / "peers" / "birch" / "verdicts.jsonl")
    assert [line["verdict"]["round"] for line in verdicts] == list(range(6))


def test_a_peer_that_was_interrupted_comes_back_and_has_every_verdict(tmp_path: Path) -> None:
    config = settings("members=4", "rounds=12", "server.min_contributors=1")
    with town(tmp_path / "town", config, checkpoint_every=2) as place:
        again = threading.Event()
        sessions = {name: place.session(name, listeners=[lambda n, name=name: note(name, n)]) for name in place.names}

        def note(name: str, event: Event) -> None:
            if isinstance(event, RoundEnded) and (name, event.round) == ("cedar", 3):
                sessions["cedar"].node.stop("interrupted")
            if isinstance(event, RoundEnded) and (name, event.round) == ("amber", 6):
                assert again.wait(30)  # the others do not finish before it is back

        summaries: dict[str, dict[str, Any]] = {}

        def keep(name: str) -> None:
            summaries[name] = sessions[name].run()

        for name in place.names:
            place.start(name, lambda name=name: keep(name))
        place.wait("cedar")
        assert summaries["cedar"]["ended"] == "interrupted"
        sessions["cedar"] = place.session(
            "cedar", listeners=[lambda event: again.set() if isinstance(event, RunStarted) else None]
        )
        place.start("cedar", lambda: keep("cedar"))
        place.wait()
    assert {summary["ended"] for summary in summaries.values()} == {"finished"}
    assert len({summary["model_digest"] for summary in summaries.values()}) == 1
    for name in ("amber", "cedar"):
        verdicts = tmp_path / "town" / "peers" / name / "verdicts.jsonl"
        assert [line["verdict"]["round"] for line in lines(verdicts)] == list(range(12))
        replayed = run(config, tmp_path / f"replay-{name}", replay=verdicts)
        assert replayed.summaries[0]["model_digest"] == summaries["amber"]["model_digest"]


def test_the_private_root_is_drawn_once_and_kept_from_others(tmp_path: Path) -> None:
    root = private_root_in(tmp_path, "amber")
    assert root == private_root_in(tmp_path, "amber")
    assert root != private_root_in(tmp_path / "elsewhere", "amber")
    assert stat.S_IMODE((tmp_path / PRIVATE_ROOT).stat().st_mode) == 0o600
    (tmp_path / PRIVATE_ROOT).chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        private_root_in(tmp_path, "amber")
    (tmp_path / PRIVATE_ROOT).chmod(0o600)
    (tmp_path / PRIVATE_ROOT).write_text("beef")
    with pytest.raises(ConfigError, match="damaged"):
        private_root_in(tmp_path, "amber")


def test_a_folder_of_another_run_is_refused_and_half_a_line_is_cut_off(tmp_path: Path) -> None:
    with town(tmp_path / "town", settings("members=3")) as place:
        folder = PeerFolder(tmp_path / "amber", place.federation(), "amber")
        folder.open()
        folder.note_metrics({"round": 0, "loss": float("nan")})
        with (folder.path / "metrics.jsonl").open("a") as file:
            file.write('{"round": 1, "lo')
        folder.open()
        assert folder.lines("metrics.jsonl") == [{"round": 0, "loss": None}]
        other = PeerFolder(tmp_path / "amber", place.federation(config=settings("members=3", "seed=9")), "amber")
        with pytest.raises(CheckpointError, match="another run"):
            other.open()


def test_a_hole_in_the_verdicts_is_cut_off_with_all_after_it(tmp_path: Path) -> None:
    with town(tmp_path / "town", settings("members=3", "rounds=4")) as place:
        play(place)
        folder = PeerFolder(tmp_path / "town" / "peers" / "amber", place.federation(), "amber")
        path = folder.path / "verdicts.jsonl"
        first, second, third, fourth = path.read_bytes().splitlines(keepends=True)
        for hole in (b"", bytes(100), bytes(100) + b"\n", b"7\n", second[:-50] + b"\n"):
            path.write_bytes(first + hole + third + fourth)
            folder.open()
            assert path.read_bytes() == first
        pairs = [json.loads(line) for line in (first, second, third)]
        plans = [(read_plain(RoundPlan, pair["plan"]), read_plain(Verdict, pair["verdict"])) for pair in pairs]
        folder.note_verdict(*plans[2])  # what comes after a checkpoint that outlived its lines
        for plan, verdict in [*plans, *plans]:
            folder.note_verdict(plan, verdict)
    assert path.read_bytes() == first + second + third


def test_verdicts_are_on_disk_before_the_checkpoint_that_stands_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, int]] = []  # which file, and how long it was
    fsync, save = os.fsync, peer_folder.save_checkpoint

    def note(file: int) -> None:
        synced.append((os.fstat(file).st_ino, os.fstat(file).st_size))
        fsync(file)

    def check(folder: Path, *checkpoint: Any) -> Path:
        verdicts = (folder.parent / "verdicts.jsonl").stat()
        assert (verdicts.st_ino, verdicts.st_size) in synced
        return save(folder, *checkpoint)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(peer_folder, "save_checkpoint", check)
    with town(tmp_path, settings("members=3", "rounds=3"), checkpoint_every=1) as place:
        play(place)
    assert len(synced) > 3 * 3


def test_a_folder_that_another_process_works_in_is_not_even_mended(tmp_path: Path) -> None:
    with town(tmp_path / "town", settings("members=3")) as place:
        session, folder = place.session("amber", out=tmp_path / "amber"), tmp_path / "amber"
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(half := '{"round":0}\n{"rou')  # a line that is being written
        claim = FolderClaim(folder)
        with pytest.raises(ConfigError, match="another process"):
            session.run()
        claim.release()
    assert (folder / "metrics.jsonl").read_text() == half


def test_a_peer_that_sits_a_round_out_says_so_at_once(tmp_path: Path) -> None:
    with town(tmp_path, settings("members=3")) as place:
        node = place.node("birch")
        able = first_plan(place.federation(), node.recipe)
        shared = SharedAggregator(Aggregator(node.number, node.recipe), lambda outcome, round: None)
        assert [notice.shard for notice in shared.abstain(able)] == [1]
        began = time.monotonic()
        outcome = shared.outcome(able.digest, 1, began + 30.0)
        assert time.monotonic() - began < 1.0
    assert isinstance(outcome, Withheld)
    assert outcome.reason is Reason.RESTARTED
