"""examples/text: the paper's text tasks, with models from the hub, and stand-ins where it cannot be reached."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

import eris
from eris.config import load_config
from eris.data import Dataset, Texts
from eris.data.cache import manifest_of
from eris.errors import ConfigError
from eris.models.registry import PRETRAINED_KINDS
from eris.tasks import check_task

transformers = pytest.importorskip("transformers")

FOLDER = Path(__file__).parents[2] / "examples" / "text"
FILES = sorted(FOLDER.glob("*.toml"))
SMALL = ["members=3", "rounds=1", "data.samples=4", "data.test_samples=4", "data.validation=0", "workers=1"]


def read(name: str) -> dict:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_a_sound_configuration(path):
    config = load_config(tomllib.loads(path.read_text(encoding="utf-8")))
    check_task(config)
    stands_in = config.model.name in PRETRAINED_KINDS
    assert ("stand-in for" in path.read_text()) == stands_in
    assert stands_in or "Offline: " in path.read_text()


@pytest.mark.parametrize(
    ("stand_in", "real"), [("imdb-minilm", "imdb-distilbert"), ("cnn-dailymail-smollm2", "cnn-dailymail-gpt-neo")]
)
def test_a_stand_in_differs_in_its_model_alone(stand_in, real):
    one, other = (read(f"{name}.toml") for name in (stand_in, real))
    for table in (one, other):
        table.pop("model")
        table["data"].pop("test_samples", None)
        table["local"].pop("device", None)
    assert one == other


def in_the_layout_of_the_hub(cache: Path, repository: str, folder: Path, kind: str) -> None:
    """Put a model with weights where a download from the hub would have left it."""
    network = getattr(transformers, kind).from_config(transformers.AutoConfig.from_pretrained(folder))
    network.save_pretrained(folder)
    home = cache / f"models--{repository.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    (home / "snapshots").mkdir()
    folder.rename(home / "snapshots" / ("0" * 40))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    import huggingface_hub.constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: True)
    return cache


def ran(name, data, folder, **options):
    document = read(name)
    document["model"]["options"] |= options
    document["data"].pop("name")
    return eris.Federation(
        document["model"], data, document["method"], changes=SMALL, local=document["local"]
    ).run(folder, report=False)[document["method"]]  # fmt: skip


def test_a_classifier_from_the_hub(hub, classifier_folder, tmp_path):
    in_the_layout_of_the_hub(hub, "distilbert/distilbert-base-uncased", classifier_folder, "AutoModel")
    texts = [f"the film was {'good' if i % 2 else 'bad'}" for i in range(20)]
    split = Texts(texts, labels=np.arange(20) % 2)
    data = Dataset("synthetic-reviews", "made up", ("negative", "positive"), split, split)
    assert 0 <= ran("imdb-distilbert.toml", lambda: data, tmp_path / "run", length=12)["final_accuracy"] <= 1


def test_a_language_model_from_the_hub(hub, language_folder, tmp_path):
    in_the_layout_of_the_hub(hub, "EleutherAI/gpt-neo-1.3B", language_folder, "AutoModelForCausalLM")
    split = Texts(["police said the judge was in court"] * 20, summaries=["judge court"] * 20)
    data = Dataset("synthetic-news", "made up", (), split, split)
    result = ran("cnn-dailymail-gpt-neo.toml", lambda: data, tmp_path / "run", article=10, summary=4, generate=4)
    assert result["final_loss"] > 0


def test_who_is_offline_is_told_of_the_stand_ins(hub):
    with pytest.raises(ConfigError, match=r"cannot be loaded(?s:.*)minilm-l6, smollm2-135m"):
        eris.models.model_by_name("text-classifier", source="distilbert/distilbert-base-uncased")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imdb-minilm", "cnn-dailymail-smollm2"])
def test_stand_ins_run(name, tmp_path):
    document = read(f"{name}.toml")
    if not all(map(manifest_of, (document["data"]["name"], document["model"]["name"]))):
        pytest.skip(f"eris data get {document['data']['name']}, {document['model']['name']}")
    document["model"]["options"] |= (
        {"length": 32} if "length" in document["model"]["options"] else {"article": 40, "summary": 8, "generate": 4}
    )
    tables = {
        key: value for key, value in document.items() if key not in ("members", "rounds", "workers", "method", "seed")
    }
    eris.Federation(method=document["method"], changes=SMALL, **tables).run(tmp_path / "run", report=False)
