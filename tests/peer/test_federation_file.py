"""FEDERATION.toml: what is in it, what its digest says, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eris.cli.networking.local_federation import LocalFederation
from eris.config import load_config
from eris.errors import CheckpointError, ConfigError
from eris.peer.federation_file import FederationFile, load_federation, parse_address
from tests.peer.town import settings

FILE = """
method = "eris"

[federation]
name = "grove"
coordinator = "10.0.0.5:7443"
peers = ["amber", "birch", "cedar"]
"""


def loaded(folder: Path, text: str) -> FederationFile:
    (folder / "FEDERATION.toml").write_text(text)
    return load_federation(folder / "FEDERATION.toml")


def test_members_are_the_peers_and_the_order_gives_their_numbers(tmp_path: Path) -> None:
    federation = loaded(tmp_path, FILE)
    assert (federation.config.members, federation.config.aggregators) == (3, 3)
    assert [federation.number(name) for name in federation.peers] == [0, 1, 2]
    assert federation.coordinator == ("10.0.0.5", 7443)


def test_the_digest_stands_for_everything_but_where_the_coordinator_is(tmp_path: Path) -> None:
    digest = loaded(tmp_path, FILE).digest
    assert loaded(tmp_path, FILE.replace("10.0.0.5", "10.0.0.6")).digest == digest
    for change in (('"cedar"', '"dogwood"'), ("method", "seed = 2\nmethod"), ("name =", "round = 60.0\nname =")):
        assert loaded(tmp_path, FILE.replace(*change)).digest != digest


FOUR = FILE.replace('"cedar"', '"cedar", "dogwood"')


@pytest.mark.parametrize("privacy", ["", "[privacy]\nunit = 'member'\n"])
def test_four_peers_must_say_whether_shards_are_masked(tmp_path: Path, privacy: str) -> None:
    """Nobody shows aggregators its values because a line was missing."""
    with pytest.raises(ConfigError, match="each aggregator sees its part of your update") as refused:
        loaded(tmp_path, FOUR + privacy)
    assert refused.value.fix.count("masking = ") == 2
    assert {'masking = "pairs"', 'masking = "none"'} <= set(re.findall(r'masking = "\w+"', refused.value.fix))


@pytest.mark.parametrize("masking", ["none", "pairs"])
def test_either_word_is_enough_and_the_plain_one_changes_no_digest(tmp_path: Path, masking: str) -> None:
    federation = loaded(tmp_path, FOUR + f'[privacy]\nmasking = "{masking}"\n')
    assert federation.config.privacy.masking == masking
    silent = load_config(changes=["method=eris", "members=4", "aggregators=4"])
    said_nothing = FederationFile(federation.settings.model_dump(), silent)
    assert (federation.digest == said_nothing.digest) is (masking == "none")


@pytest.mark.parametrize(
    "change", [('"eris"', '"eris+masked"'), ('"eris"', '"fedavg"'), ("[fed", '[server]\nrule = "median"\n[fed')]
)
def test_where_there_is_no_choice_nothing_need_be_said(tmp_path: Path, change: tuple[str, str]) -> None:
    """It is in the method's name, there is one server, or nothing could be masked; nor with three peers (above)."""
    loaded(tmp_path, FOUR.replace(*change))


def test_what_it_writes_it_reads(tmp_path: Path) -> None:
    federation = loaded(tmp_path, FILE)
    assert loaded(tmp_path, federation.dump()).digest == federation.digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[federation]", "[elsewhere]"), r"no table \[federation\]"),
        (('"cedar"', '"birch"'), "listed twice"),
        (("method", "members = 5\nmethod"), "5, but 3 peers are listed"),
        (('"eris"', '["eris", "fedavg"]'), "one method at a time"),
        (("[federation]", "[faults]\nlink_failure = 0.1\n[federation]"), "a real network has its own"),
        (("10.0.0.5:7443", "10.0.0.5"), "use host:port"),
        (("name =", "nam ="), "federation"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assert loaded(tmp_path, FILE.replace(*change)).coordinator


def test_addresses_of_both_families() -> None:
    assert parse_address("[2001:db8::1]:7443", key="x") == ("2001:db8::1", 7443)
    assert parse_address("host.example.org:1", key="x") == ("host.example.org", 1)
    for text in ("7443", "host:", "host:99999", ":7443"):
        with pytest.raises(ConfigError, match="host:port"):
            parse_address(text, key="x")


def test_what_never_began_is_laid_out_anew(tmp_path: Path) -> None:
    LocalFederation.create(tmp_path / "up", settings("members=11"))
    assert len(LocalFederation.create(tmp_path / "up", settings("members=3")).peers) == 3
    assert len(LocalFederation.open(tmp_path / "up").peers) == 3


def test_a_federation_on_one_machine_is_laid_out_once(tmp_path: Path) -> None:
    local = LocalFederation.create(tmp_path / "up", settings("members=11"))
    assert local.peers[:2] == ("peer-00", "peer-01")
    assert (local.credentials("peer-10") / "key.pem").stat().st_mode & 0o777 == 0o600
    assert local.place("127.0.0.1:5000").digest == load_federation(local.file).digest
    played = tmp_path / "up" / "peers" / "peer-00" / "verdicts.jsonl"
    played.parent.mkdir(parents=True)
    played.write_text("{}\n")
    with pytest.raises(ConfigError, match="already"):
        LocalFederation.create(tmp_path / "up", settings("members=3"))
    again = LocalFederation.open(tmp_path / "up")
    assert (again.peers, again.config.digest) == (local.peers, local.config.digest)
    with pytest.raises(CheckpointError, match="no federation made by `eris up`"):
        LocalFederation.open(tmp_path)


def test_settings_that_cannot_be_leave_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="faults"):
        LocalFederation.create(tmp_path / "up", settings("members=3", "faults.link_failure=0.5"))
    assert not (tmp_path / "up").exists()


@pytest.mark.parametrize(
    ("members", "asked", "consequence"),
    [
        (5, {"max_share": 0.5}, "--max-share 0.5 lets one peer see more than 40% of every update"),
        (2, {"max_share": 0.9}, "--max-share 0.9 lets one peer see more than 50% of every update"),
        (5, {"min_aggregators": 1}, "--min-aggregators 1 lets fewer than 2 peers see it all"),
        (5, {"max_share": 0.4}, ""),
        (5, {"max_share": 0.2, "min_aggregators": 5}, ""),
        (5, {}, ""),
    ],
)
def test_a_floor_below_the_federations_needs_a_word_that_names_the_consequence(
    members: int, asked: dict[str, float], consequence: str
) -> None:
    names = [f"peer-{number}" for number in range(members)]
    federation = FederationFile(
        {"name": "town", "coordinator": "h:1", "peers": names},
        settings(f"members={members}", "server.min_contributors=1"),
    )
    given = {"min_aggregators": None, "max_share": None, **asked}
    if consequence:
        with pytest.raises(ConfigError, match="weaker than the federation's") as refused:
            federation.floor_of(**given, may_be_weaker=False)
        assert consequence in refused.value.what
        assert "--show-more-than-agreed" in refused.value.fix
    floor = federation.floor_of(**given, may_be_weaker=True)
    assert floor.min_aggregators == asked.get("min_aggregators", 2)
    assert floor.max_share == asked.get("max_share")
