import stat
import sys
import tarfile

import numpy as np
import pytest

from eris.data import Dataset, Texts
from eris.data.packages import Package
from eris.errors import DataError
from eris.models import assembly, pretrained, registry
from eris.seeds import public_root

pytest.importorskip("transformers")


@pytest.fixture
def named(classifier_folder, tmp_path, monkeypatch):
    """A pretrained model called tiny, in a package that a stand-in for npm hands out."""
    registry.model_by_name("text-classifier", source=str(classifier_folder)).network.save_pretrained(classifier_folder)
    (classifier_folder / "code.py").write_text("raise SystemExit")
    with tarfile.open(tmp_path / "tiny.tgz", "w:gz") as tar:
        tar.add(classifier_folder, "package/model")
    client = tmp_path / "bin" / "npm"
    client.parent.mkdir()
    client.write_text(f"#!{sys.executable}\nimport shutil\nshutil.copy({str(tmp_path / 'tiny.tgz')!r}, 'tiny-1.tgz')\n")
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(client.parent))
    monkeypatch.setenv("ERIS_DATA", str(tmp_path / "cache"))
    model = pretrained.Pretrained("tiny", "a test", Package("npm", "tiny", "1", 1), "model.safetensors")
    monkeypatch.setitem(pretrained.PRETRAINED, "tiny", model)
    monkeypatch.setitem(registry.PRETRAINED_KINDS, "tiny", "text-classifier")
    return classifier_folder


def test_fetched_once_then_named_like_any_model(named, tmp_path):
    split = Texts(["good film", "bad film"], labels=np.array([1, 0]))
    data = Dataset("synthetic", "made up", ("bad", "good"), split, split)
    shares = assembly.divide(data, 2, public_root(0))
    with pytest.raises(DataError, match="eris data get tiny"):
        assembly.torch_task(data, shares, "tiny")
    manifest = pretrained.get_pretrained("tiny", lambda what, share: None)
    assert "model.safetensors" in manifest.files
    assert "code.py" not in manifest.files
    task = assembly.torch_task(data, shares, "tiny", {"length": 4})
    weight = task.spec.unflatten(task.initial(public_root(1)))["network.distilbert.embeddings.word_embeddings.weight"]
    saved = registry.model_by_name("text-classifier", source=str(named)).network
    assert np.array_equal(weight, saved.get_input_embeddings().weight.detach().numpy())


def test_damaged_weights_are_noticed(named, tmp_path):
    pretrained.get_pretrained("tiny", lambda what, share: None)
    file = tmp_path / "cache" / "tiny" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        registry.model_by_name("tiny")


def test_every_pretrained_model_is_known_to_the_registry():
    assert set(pretrained.PRETRAINED) == set(registry.PRETRAINED_KINDS)
