"""Trackers listen to a run: against real event files, and with one that fails in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest

from eris import Federation
from eris.errors import ConfigError
from eris.interop.trackers import TRACKERS

CLOUDS = {"data": "synthetic-clouds", "members": 5, "rounds": 4}


def curves(folder: Path) -> tuple[dict[str, dict[int, float]], str]:
    """Read event files with TensorBoard's own reader: tag → round → value, and the configuration."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), size_guidance={accumulator.SCALARS: 0})
    found.Reload()
    text = found.Tensors("configuration/text_summary")[0].tensor_proto.string_val[0].decode()
    scalars = found.Tags()["scalars"]
    return {tag: {event.step: event.value for event in found.Scalars(tag)} for tag in scalars}, text


def rounds_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_event_files_have_every_figure_of_every_round(tmp_path):
    pytest.importorskip("tensorboard")
    folder = Federation(**CLOUDS, method=["fedavg", "eris"]).run(tmp_path / "run", track="tensorboard").path
    for method in ("fedavg", "eris"):
        seen, text = curves(folder / "tensorboard" / method)
        written = rounds_of(folder / method)
        assert seen["accuracy"] == pytest.approx({line["round"]: line["accuracy"] for line in written})
        assert seen["loss"] == pytest.approx({line["round"]: line["loss"] for line in written}, rel=1e-6)
        assert set(seen["bytes/total"]) == set(range(4))
        assert 'name = "synthetic-clouds"' in text


def test_the_command_tracks_and_goes_on_tracking(tmp_path):
    pytest.importorskip("tensorboard")
    words = ["--set", "data.name=synthetic-clouds", "--set", "members=5", "--set", "method=eris", "--set", "rounds=3"]
    command = [sys.executable, "-m", "eris", "run", *words, "--track", "tensorboard", "-q", "--out", "run"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=240)
    seen, _ = curves(tmp_path / "run" / "tensorboard" / "eris")
    assert set(seen["accuracy"]) == {0, 1, 2}


class Kept:
    """A tracker in memory."""

    made: ClassVar[list] = []

    def __init__(self, name, folder):
        self.name, self.folder, self.told = name, folder, []
        Kept.made.append(self)

    def settings(self, text):
        self.told.append(("settings", text))

    def figures(self, figures, round):
        self.told.append((round, figures))

    def artefact(self, path):
        self.told.append(("artefact", path))

    def close(self):
        self.told.append(("close", None))


class Failing(Kept):
    def figures(self, figures, round):
        if round == 1:
            raise OSError("the tracker is down")
        super().figures(figures, round)


def test_a_tracker_of_ones_own_hears_everything_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(Kept, "made", [])
    Federation(**CLOUDS, method="eris").run(tmp_path / "run", track=Kept)
    (kept,) = Kept.made
    assert [what for what, _ in kept.told] == ["settings", 0, 1, 2, 3, "artefact", "close"]
    assert kept.told[5][1].name == "report.html"
    assert all(isinstance(value, float) for _, figures in kept.told[1:5] for value in figures.values())
    assert TRACKERS.find(f"{__name__}:Kept") is Kept


def test_a_tracker_that_fails_costs_the_run_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Kept, "made", [])
    plain = Federation(**CLOUDS, method="eris").run(tmp_path / "plain", report=False)
    with pytest.warns(UserWarning, match="Failing failed and is no longer used: OSError: the tracker is down"):
        tracked = Federation(**CLOUDS, method="eris").run(tmp_path / "run", report=False, track=[Failing, Kept])
    failing, kept = Kept.made
    assert [what for what, _ in failing.told] == ["settings", 0]
    assert [what for what, _ in kept.told][:5] == ["settings", 0, 1, 2, 3]
    assert tracked["eris"]["model_digest"] == plain["eris"]["model_digest"]


@pytest.mark.parametrize(
    ("track", "says"),
    [("tensorbord", "did you mean tensorboard"), ("os:sep", "cannot be called"), ("builtins:print", None)],
)
def test_what_is_no_tracker_is_refused(track, says, tmp_path):
    if says is None:
        with pytest.raises(ConfigError, match="a tracker has no settings, figures, artefact, close"):
            Federation(**CLOUDS).run(tmp_path / "run", track=track)
        return
    with pytest.raises(ConfigError, match=says):
        Federation(**CLOUDS).run(tmp_path / "run", track=track)


def test_mlflow_has_figures_settings_and_the_report(tmp_path, monkeypatch):
    """Against a real database: what MLflow's own client reads from it."""
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = Federation(**CLOUDS, method=["fedavg", "eris"]).run(tmp_path / "run", track="mlflow").path
    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    (experiment,) = [each for each in client.search_experiments() if each.name == "eris"]
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"fedavg", "eris"}
    for method, run in runs.items():
        assert run.info.status == "FINISHED"
        assert run.data.params["data.name"] == "synthetic-clouds"
        written = rounds_of(folder / method)
        history = client.get_metric_history(run.info.run_id, "accuracy")
        assert {each.step: each.value for each in history} == {line["round"]: line["accuracy"] for line in written}
        assert len(client.get_metric_history(run.info.run_id, "bytes/total")) == 4
        assert {each.path for each in client.list_artifacts(run.info.run_id)} == {"config.toml", "report.html"}


def test_mlflow_goes_where_its_own_variable_says(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store := f"sqlite:///{tmp_path / 'shared.db'}")
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        Federation(**CLOUDS, method="eris").run(tmp_path / name, track="mlflow", report=False)
    client = MlflowClient(tracking_uri=store)
    known = client.get_experiment_by_name("eris")
    assert len(client.search_runs([known.experiment_id])) == 2
    assert not (tmp_path / "one" / "mlflow.db").exists()


def records_of(path: Path) -> list[bytes]:
    """Read the log that W&B writes: seven bytes, then blocks of 32 KiB with pieces of records, a header each."""
    data, place, found, begun = path.read_bytes(), 7, [], b""
    while place + 7 <= len(data):
        left = 0x8000 - place % 0x8000
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        begun += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            found, begun = [*found, begun], b""
    return found


def test_wandb_writes_a_run_that_can_be_sent_later(tmp_path, monkeypatch):
    """Offline, as it is unless somebody says otherwise: the figures are in the file that `wandb sync` reads."""
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = Federation(**CLOUDS, method="eris").run(tmp_path / "run", track="wandb").path
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    deadline, seen, text = time.monotonic() + 120, {}, ""
    while not any(Record.FromString(data).HasField("exit") for data in records_of(path)):
        assert time.monotonic() < deadline, "a process of W&B writes the file, and has not ended it"
        time.sleep(0.1)
    for data in records_of(path):
        record = Record.FromString(data)
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if "accuracy" in items:
            seen[int(items["_step"])] = float(items["accuracy"])
        text += str(record.config) + str(record.run) + str(record.artifact) + str(record.request)
    assert seen == {line["round"]: line["accuracy"] for line in rounds_of(folder)}
    assert "synthetic-clouds" in text
    assert "report.html" in text
