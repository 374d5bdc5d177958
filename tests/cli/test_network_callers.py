"""Who stops a run or leaves it goes on record, so it must be certain who that is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eris.cli.networking.options import known_caller
from eris.errors import ConfigError
from eris.transport.authority import Authority
from tests.cli.processes import eris

FILE = """
method = "eris"

[data]
name = "synthetic-quadratic"

[federation]
name = "grove"
coordinator = "127.0.0.1:1"
peers = ["amber", "birch", "cedar"]
"""


@pytest.fixture
def grove(tmp_path: Path) -> Path:
    """A folder with a federation's file and everybody's credentials."""
    (tmp_path / "FEDERATION.toml").write_text(FILE)
    authority = Authority.create(tmp_path / "certs", "grove")
    for name in ("coordinator", "amber", "birch", "cedar"):
        authority.issue(name)
    return tmp_path


def who(grove: Path, name: str | None = None, given: str = "", *, coordinator: bool = False) -> str:
    folder = grove / given if given else None
    with known_caller(grove / "FEDERATION.toml", folder, name, coordinator=coordinator) as (found, _):
        return found


def test_of_several_peers_none_is_taken_for_the_one_who_asks(grove: Path) -> None:
    with pytest.raises(ConfigError, match=r"credentials of amber, birch, cedar; .* --peer NAME"):
        who(grove)
    assert who(grove, "birch") == "birch"
    assert who(grove, given="certs/peers/cedar") == "cedar"
    shutil.rmtree(grove / "certs/peers/birch")
    shutil.rmtree(grove / "certs/peers/cedar")
    assert who(grove) == "amber"


def test_the_coordinator_asks_before_the_peers_where_it_may(grove: Path) -> None:
    assert who(grove, coordinator=True) == "coordinator"
    assert who(grove, "cedar", coordinator=True) == "cedar"
    with pytest.raises(ConfigError, match="the certificate is coordinator's"):
        who(grove, given="certs/peers/coordinator")  # it has nothing to leave
    shutil.rmtree(grove / "certs/peers/coordinator")
    with pytest.raises(ConfigError, match="the request must be made in one name"):
        who(grove, coordinator=True)


def test_the_commands_ask_so(grove: Path) -> None:
    assert "the request must be made in one name" in eris("leave", cwd=grove, code=2)
    assert "cannot connect" in eris("stop", "--yes", cwd=grove, code=10)
