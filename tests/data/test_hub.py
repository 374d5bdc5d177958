import json

import pytest

from eris.data.hub import Hub
from eris.errors import DataError

FAKE = """
import json, pathlib
def snapshot_download(repository, *, local_dir, **options):
    if repository == "nobody/nothing":
        raise SystemExit("404: no such data set")
    pathlib.Path(local_dir, "asked.json").write_text(json.dumps([repository, options]))
"""


@pytest.fixture
def everything_installed(tmp_path, monkeypatch):
    """A huggingface_hub that writes down what it was asked; pyarrow counts as installed."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "huggingface_hub.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def quiet(what, share):
    pass


def test_both_splits_of_one_configuration_are_asked_for(everything_installed):
    content = Hub("ylecun/mnist", "mnist", 18).fetch(everything_installed, quiet)
    repository, options = json.loads((content / "asked.json").read_text())
    assert repository == "ylecun/mnist"
    assert options == {
        "repo_type": "dataset",
        "revision": "refs/convert/parquet",
        "allow_patterns": ["mnist/train/*.parquet", "mnist/test/*.parquet"],
    }


def test_what_the_hub_says_is_passed_on(everything_installed):
    with pytest.raises(DataError, match="404: no such data set"):
        Hub("nobody/nothing", "default", 1).fetch(everything_installed, quiet)


def test_reasons_not_to_ask(everything_installed, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="HF_HUB_OFFLINE"):
        Hub("a/b", "c", 1).fetch(everything_installed, quiet)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"eris-fl\[hub\]"):
        Hub("a/b", "c", 1).fetch(everything_installed, quiet)
