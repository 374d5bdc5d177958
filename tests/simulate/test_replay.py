"""What a run with faults wrote is enough to run it again."""

from __future__ import annotations

import json

import pytest

from eris.config import load_config
from eris.errors import ConfigError, InputError, RunStopped
from eris.simulate.run import resume, run
from tests.simulate.setting import SMALL

FAULTY = [*SMALL, "method=eris+dsc", "rounds=6", "faults.link_failure=0.3", "faults.aggregator_dropout=0.3"]


def test_a_replay_ends_in_the_digest_of_the_run(tmp_path):
    first = run(load_config(changes=FAULTY), tmp_path / "first").summaries[0]
    assert first["lost_shards"] > 0
    calm = [change for change in FAULTY if not change.startswith("faults")]
    verdicts = tmp_path / "first" / "verdicts.jsonl"
    again = run(load_config(changes=calm), tmp_path / "again", replay=verdicts).summaries[0]
    assert again["model_digest"] == first["model_digest"]
    assert again["lost_shards"] == first["lost_shards"]
    assert (tmp_path / "again" / "verdicts.jsonl").read_bytes() == verdicts.read_bytes()
    without = run(load_config(changes=calm), tmp_path / "calm").summaries[0]
    assert without["model_digest"] != first["model_digest"]


def test_a_replay_may_be_shorter_than_the_configuration(tmp_path):
    run(load_config(changes=FAULTY), tmp_path / "first")
    lines = (tmp_path / "first" / "verdicts.jsonl").read_text().splitlines()
    (tmp_path / "some.jsonl").write_text("\n".join(lines[:2]) + "\n")
    again = run(load_config(changes=FAULTY), tmp_path / "again", replay=tmp_path / "some.jsonl").summaries[0]
    assert again["rounds"] == 2


def test_a_replay_can_be_stopped_and_gone_on_with(tmp_path):
    first = run(load_config(changes=FAULTY), tmp_path / "first").summaries[0]
    calm = [change for change in FAULTY if not change.startswith("faults")]
    asked = iter(range(10**9))
    part = run(
        load_config(changes=calm),
        tmp_path / "again",
        replay=tmp_path / "first" / "verdicts.jsonl",
        stopped=lambda: next(asked) > 20,
    )
    assert not part.finished
    assert resume(tmp_path / "again").summaries[0]["model_digest"] == first["model_digest"]


def test_a_reference_epoch_is_replayed(tmp_path):
    changes = [*FAULTY, "compression.keep=0.5"]
    run(load_config(changes=changes), tmp_path / "first")
    lines = [json.loads(line) for line in (tmp_path / "first" / "verdicts.jsonl").read_text().splitlines()]
    for line in lines[3:]:
        line["plan"]["reference_epoch"] = 1
    path = tmp_path / "epochs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RunStopped, match="computed different values") as stopped:
        run(load_config(changes=changes), tmp_path / "again", replay=path)
    assert stopped.value.where["round"] == 3  # members that begin anew send something else


def test_another_run_is_not_replayed(tmp_path):
    run(load_config(changes=FAULTY), tmp_path / "first")
    verdicts = tmp_path / "first" / "verdicts.jsonl"
    with pytest.raises(RunStopped, match="computed different values"):
        run(load_config(changes=[*FAULTY, "local.lr=0.2"]), tmp_path / "a", replay=verdicts)
    with pytest.raises(ConfigError, match="7 shards, but the configuration has 3"):
        run(load_config(changes=[*FAULTY, "aggregators=3"]), tmp_path / "b", replay=verdicts)
    with pytest.raises(ConfigError, match="one method"):
        run(load_config(changes=[*FAULTY, 'method=["eris", "fedavg"]']), tmp_path / "c", replay=verdicts)


@pytest.mark.parametrize("text", ["", "{}\n", "no json\n"])
def test_what_is_no_record_of_verdicts_is_refused(text, tmp_path):
    (tmp_path / "v.jsonl").write_text(text)
    with pytest.raises(InputError):
        run(load_config(changes=FAULTY), tmp_path / "a", replay=tmp_path / "v.jsonl")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        run(load_config(changes=FAULTY), tmp_path / "a", replay=tmp_path / "v.jsonl")
