"""`eris init --peers`: a federation's file that loads, masked wherever there are peers enough."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eris.cli import join
from eris.compose import check_settings
from eris.config import load_config
from eris.peer.federation_file import load_federation
from tests.cli.processes import eris


@pytest.mark.parametrize(("count", "masking"), [(3, "none"), (4, "pairs"), (7, "pairs")])
def test_masks_are_on_from_four_peers_and_plain_says_what_it_means(tmp_path, count, masking):
    path, names = tmp_path / "FEDERATION.toml", [f"peer-{number}" for number in range(count)]
    said = eris("init", path, "--peers", ",".join(names), "--federation", "town", cwd=tmp_path)
    federation = load_federation(path)
    assert federation.peers == tuple(names)
    assert federation.config.privacy.masking == masking
    assert federation.config.server.encoding == ("fixed" if masking == "pairs" else "float")
    check_settings(federation.config)
    assert federation.config.aggregators == count
    assert federation.floor.max_share == pytest.approx(2 / count, abs=0.016)
    assert federation.floor.min_aggregators == 2
    text = path.read_text(encoding="utf-8").lower()
    assert "each aggregator sees its part of your update" in text
    assert ("its part of each update" in said) == (masking == "none")
    for told in (said, text.replace("\n# ", " ")):
        price = "cannot be named" in told and "median and trimmed mean are refused" in told
        assert price == (masking == "pairs")


@pytest.mark.parametrize(
    ("changes", "told"), [((), True), (("privacy.masking=pairs",), False), (("members=3",), False)]
)
def test_who_joins_plain_shards_is_told_what_they_show(capsys, changes, told):
    config = load_config(changes=["members=4", "method=eris", *changes])
    node = SimpleNamespace(federation=SimpleNamespace(config=config), composition=SimpleNamespace(noise=None))
    join._warn(SimpleNamespace(expiry_warning=lambda: None), SimpleNamespace(node=node), False, alone=True)
    assert ("each aggregator sees its part of your update" in capsys.readouterr().err) is told


def test_what_would_not_load_is_not_written_and_nothing_is_written_over(tmp_path):
    path = tmp_path / "FEDERATION.toml"
    eris("init", path, "--peers", "a,a,b,c", cwd=tmp_path, code=2)
    assert not path.exists()
    path.write_text("mine", encoding="utf-8")
    eris("init", path, "--peers", "a,b,c,d", cwd=tmp_path, code=2)
    assert path.read_text(encoding="utf-8") == "mine"
