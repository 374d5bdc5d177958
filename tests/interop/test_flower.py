"""Flower apps as they are: three projects, Flower's own aggregation as the measure, and what is refused, word for word.

Runs where flwr is installed; `make test-stories` installs it into an environment of its own and runs this there.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

from eris.compose import initial_seed
from eris.config import load_config
from eris.errors import ErisError
from eris.interop.flower import FlowerApp, configured, flower_peer, flower_task, parsed_node_config
from eris.seeds import private_root, public_root
from eris.simulate.run import resume, run
from eris.simulate.worker_process import TaskSource

APPS = Path(__file__).parent / "flower_apps"
NAMES = ("messages", "numpy_client", "with_mod")
numbered = itertools.count()

pytestmark = pytest.mark.filterwarnings("ignore")  # what Flower and its libraries deprecate is not ours


def settings(name: str, *changes: str):
    app = FlowerApp.load(APPS / name)
    return configured(app, load_config(changes=["method=eris", "members=3", "rounds=3", "workers=1", *changes]))


def source(name: str) -> TaskSource:
    return TaskSource("eris.interop.flower:flower_task", {"folder": str(APPS / name)})


def ran(name: str, out: Path, *changes: str):
    return run(settings(name, *changes), out, task=source(name))


def test_both_apis_of_flower_end_with_the_same_bits(tmp_path: Path) -> None:
    digests = set()
    for name in ("messages", "numpy_client"):
        result = ran(name, tmp_path / name, 'method=["eris", "fedavg"]')
        digests |= {summary["model_digest"] for summary in result.summaries}
        lines = [json.loads(line) for line in (tmp_path / name / "eris" / "metrics.jsonl").read_text().splitlines()]
        assert lines[-1]["loss"] < lines[0]["loss"]
        assert {"loss", "accuracy"} <= set(lines[0])
    assert len(digests) == 1


def test_it_is_what_flowers_own_fedavg_makes_of_the_answers() -> None:
    from flwr.serverapp.strategy import FedAvg

    config = settings("messages")
    task = flower_task(str(APPS / "messages"), config.model_dump(mode="json"))
    task.rehearse()
    model, weights = task.initial(initial_seed(config.seed)), [task.samples(member) for member in range(3)]
    assert weights == [60, 68, 75]  # of `train`; three quarters of what each node has
    answers, client = [], task._app.client

    def overheard(message, context):
        answers.append(client(message, context))
        return answers[-1]

    object.__setattr__(task._app, "client", overheard)
    object.__setattr__(overheard, "_registered_funcs", client._registered_funcs)
    memories = [task.memory(member) for member in range(3)]
    for number in range(3):
        answers.clear()
        moved = np.zeros_like(model)
        for member in range(3):
            seed = private_root(1, member).child("round", number)
            result = task.train(member, model, memories[member], round=number, seed=seed)
            moved += np.float32(weights[member] / sum(weights)) * result.update
        model = model - moved
        arrays, _ = FedAvg().aggregate_train(number + 1, answers)
        theirs = {name: array.numpy().astype(np.float32) for name, array in arrays.items()}
        assert np.allclose(model, task.spec.flatten(theirs), atol=1e-6, rtol=0)


def test_running_statistics_are_buffers_with_names_and_without() -> None:
    named = flower_task(str(APPS / "messages"), settings("messages").model_dump(mode="json")).spec
    nameless = flower_task(str(APPS / "numpy_client"), settings("numpy_client").model_dump(mode="json")).spec
    assert [tensor.role for tensor in named.tensors] == [tensor.role for tensor in nameless.tensors]
    assert [tensor.name for tensor in named.tensors if tensor.role == "buffer"] == [
        "layers.1.running_mean",
        "layers.1.running_var",
    ]
    assert [tensor.name for tensor in named.tensors if tensor.role == "local"] == ["layers.1.num_batches_tracked"]


def test_a_nodes_state_is_the_members_own_and_begins_anew_with_every_method() -> None:
    config = settings("with_mod")
    task = flower_task(str(APPS / "with_mod"), config.model_dump(mode="json"))
    model = task.initial(initial_seed(1))
    for _method in range(2):
        memories = [task.memory(member) for member in range(2)]
        for number in range(4):
            for member in range(2):
                seed = private_root(1, member).child("round", number)
                result = task.train(member, model, memories[member], round=number, seed=seed)
                assert result.metrics["trained"] == number + 1
                assert result.samples == task.samples(member)
    assert not memories[0]["context"].any() or memories[0]["context"].dtype == np.float32


@pytest.mark.parametrize("changes", [(), ("method=eris+dsc",)], ids=["eris", "dsc"])
def test_a_run_that_was_stopped_ends_as_if_nothing_had_happened(changes, tmp_path: Path) -> None:
    config = settings("with_mod", "rounds=4", *changes)
    whole = run(config, tmp_path / "whole", task=source("with_mod"))
    asked = itertools.count()
    begun = run(config, tmp_path / "cut", task=source("with_mod"), stopped=lambda: next(asked) > 6)
    assert not begun.finished
    again = resume(tmp_path / "cut", task=source("with_mod"))
    assert again.summaries[0]["model_digest"] == whole.summaries[0]["model_digest"]


def test_a_peer_has_its_own_node_config_and_trains_as_a_member_does() -> None:
    config = settings("messages")
    whole = flower_task(str(APPS / "messages"), config.model_dump(mode="json"))
    alone = flower_peer(APPS / "messages", parsed_node_config("partition-id=2 num-partitions=3"))(config, 2)
    start, seed = whole.initial(initial_seed(1)), private_root(1, 2)
    assert np.array_equal(alone.initial(initial_seed(1)), start)
    assert alone.samples(2) == whole.samples(2) == 75
    here, there = (task.train(2, start, task.memory(2), round=0, seed=seed) for task in (alone, whole))
    assert np.array_equal(here.update, there.update)
    assert set(alone.evaluate(start)) == {"loss", "accuracy"}


def test_the_apps_settings_are_the_runs_and_changes_are_checked() -> None:
    config = settings("messages", "model.options.lr=0.2")
    assert config.model.options == {"num-server-rounds": 3, "fraction-train": 1.0, "local-epochs": 1, "lr": 0.2}
    with pytest.raises(ErisError) as told:
        settings("messages", "model.options.momentum=0.2")
    assert str(told.value) == (
        "the app has no setting 'momentum' [key=model.options]: "
        "use one of its own: num-server-rounds, fraction-train, local-epochs, lr"
    )


PROJECT = """
    [project]
    name = "TITLE"
    version = "1.0.0"
    [tool.flwr.app]
    publisher = "eris"
    [tool.flwr.app.components]
    serverapp = "NAME:server"
    clientapp = "NAME:CLIENT"
    [tool.flwr.app.config]
    count = 10
"""
APP = """
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    START = {"w": Array(np.ones(4, "float32"))}
    client, server = ClientApp(), ServerApp()

    def answered(msg, arrays, count=10, **more):
        records = {"arrays": ArrayRecord(dict(arrays)), "metrics": MetricRecord({"num-examples": count})}
        return Message(RecordDict({**records, **more}), reply_to=msg)

    @client.train()
    def train(msg, context):
        return answered(msg, msg.content["arrays"])

    @server.main()
    def main(grid, context):
        FedAvg().start(grid=grid, initial_arrays=ArrayRecord(START))
"""
TRAIN = 'return answered(msg, msg.content["arrays"])'
MAIN = "FedAvg().start(grid=grid, initial_arrays=ArrayRecord(START))"


def project(folder: Path, *, app: str = APP, client: str = "client", more: str = "") -> Path:
    name = f"flower_project_{next(numbered)}"
    text = dedent(PROJECT).replace("NAME", name).replace("TITLE", name.replace("_", "-")).replace(
        "CLIENT", client
    ) + dedent(more)
    (folder / "pyproject.toml").write_text(text)
    (folder / f"{name}.py").write_text(dedent(app))
    return folder


def begun(folder: Path, *changes: str, rounds: int = 1):
    """Do everything that comes before a run's first round, and the first rounds of one member."""
    app = FlowerApp.load(folder)
    config = configured(app, load_config(changes=["method=eris", "members=3", *changes]))
    task = flower_task(str(folder), config.model_dump(mode="json"))
    task.rehearse()
    memory, model = task.memory(0), task.initial(public_root(1))
    for number in range(rounds):
        task.train(0, model, memory, round=number, seed=private_root(1, 0))
    return task


def test_the_smallest_app_there_is(tmp_path: Path) -> None:
    task = begun(project(tmp_path))
    assert task.spec.n == 4
    assert task.evaluate(task.initial(public_root(1))) == {}  # it has no evaluation


REFUSED = {
    "float64 at the start": (
        APP.replace('"float32"', '"float64"'),
        "array 'w' of the ServerApp's first message is float64, but updates are float32: "
        "make the model float32 in the app: eris does not round silently",
    ),
    "float64 in an answer": (
        APP.replace(TRAIN, 'return answered(msg, {"w": Array(np.ones(4))})'),
        "array 'w' of train's answer is float64, but updates are float32: "
        "make the model float32 in the app: eris does not round silently",
    ),
    "changed shapes": (
        APP.replace(TRAIN, 'return answered(msg, {"w": Array(np.ones(5, "float32"))})'),
        "array 'w' of train's answer has shape (5,), but the model's is (4,): "
        "keep its shape: a model keeps its shapes for the whole run",
    ),
    "other arrays": (
        APP.replace(TRAIN, 'return answered(msg, {"v": Array(np.ones(4, "float32"))})'),
        "train's answer does not have the model's arrays: only one side has v, w: "
        "return all arrays that you received, under the same names",
    ),
    "several ArrayRecords": (
        APP.replace(TRAIN, 'return answered(msg, msg.content["arrays"], control=ArrayRecord(START))'),
        "train's answer has 2 ArrayRecords (arrays, control), but eris averages exactly one: "
        "put what is averaged into one, and keep the rest in context.state",
    ),
    "no count": (
        APP.replace('{"num-examples": count}', '{"loss": 0.5}'),
        "the answer does not give the number of examples: "
        "add \"num-examples\": len(…) to its MetricRecord: it is the member's weight",
    ),
    "another count in the second round": (
        APP.replace(TRAIN, 'return answered(msg, msg.content["arrays"], 9 + msg.content["config"]["server-round"])'),
        "the ClientApp trained on 11 examples, but on 10 before [peer=0, round=1]: "
        "keep a member's examples the same for the whole run: their number is its weight",
    ),
    "an error as the answer": (
        APP.replace(TRAIN, 'return Message(Error(code=7, reason="no data today"), reply_to=msg)'),
        "the ClientApp answered with an error: no data today [peer=0, round=0]: correct the app",
    ),
    "code that raises": (
        APP.replace(TRAIN, "return 1 // 0"),
        "the ClientApp's train failed with ZeroDivisionError: integer division or modulo by zero [peer=0, round=0]: "
        "correct the app: it must also run under Flower itself",
    ),
    "too much state": (
        APP.replace(TRAIN, f'context.state["all"] = ArrayRecord({{"a": Array(np.zeros(20000))}}); {TRAIN}'),
        "context.state takes 160,235 bytes, but a member has room for 65,536: "
        "keep less there, or write [tool.eris] state-bytes = 320470 in the app's pyproject.toml",
    ),
    "a mod that adds noise": (
        APP.replace("ClientApp(), ServerApp()", "ClientApp(mods=[LocalDpMod(1.0, 1.0, 1.0, 1e-5)]), ServerApp()"),
        "the app's mod LocalDpMod clips, adds noise or masks, which eris would not account for [folder=FOLDER]: "
        "leave it out and use eris's own settings in [privacy]",
    ),
    "a mod of one function": (
        APP.replace("@client.train()", "@client.train(mods=[fixedclipping_mod])"),
        "the app's mod fixedclipping_mod clips, adds noise or masks, which eris would not account for "
        "[folder=FOLDER]: leave it out and use eris's own settings in [privacy]",
    ),
    "a query": (
        APP + "\n    @client.query()\n    def asked(msg, context):\n        return msg\n",
        "the ClientApp has query.default, which eris never calls [folder=FOLDER]: "
        "leave it out: eris calls only train and evaluate",
    ),
    "an action of its own": (
        APP + '\n    @client.train("twice")\n    def twice(msg, context):\n        return msg\n',
        "the ClientApp has train.twice, which eris never calls [folder=FOLDER]: "
        "leave it out: eris calls only train and evaluate",
    ),
    "nothing to train": (
        APP.replace("@client.train()", "@client.evaluate()"),
        "the ClientApp has no train function [folder=FOLDER]: decorate one with @app.train()",
    ),
    "a ServerApp that fails": (
        APP.replace(MAIN, 'raise OSError("no such database")'),
        "the ServerApp failed before its first message, with OSError: no such database: "
        "correct the ServerApp: eris starts it once to get the initial arrays",
    ),
    "a ServerApp that sends nothing": (
        APP.replace(MAIN, "pass"),
        "the ServerApp ended without a message: make it send a model to train: strategy.start(…)",
    ),
    "a ServerApp that begins with a question": (
        APP.replace(MAIN, 'grid.push_messages([Message(RecordDict(), 1, "query.size")])'),
        "the ServerApp's first message is a 'query.size', but eris sends only 'train' and 'evaluate': "
        "make the strategy begin with training; eris cannot send clients anything else",
    ),
    "a ServerApp with two models": (
        APP.replace(MAIN, 'grid.push_messages([Message(RecordDict({"a": ArrayRecord(START), "b": ArrayRecord(START)}),'
        ' 1, "train")])'),
        "the ServerApp's first message has 2 ArrayRecords (a, b), but eris averages exactly one: "
        "put what is averaged into one, and keep the rest in context.state",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_said_in_a_sentence(case: str, tmp_path: Path) -> None:
    app, sentence = REFUSED[case]
    with pytest.raises(ErisError) as told:
        begun(project(tmp_path, app=app), rounds=2)
    assert str(told.value) == sentence.replace("FOLDER", str(tmp_path))


def test_a_server_app_is_no_client_app(tmp_path: Path) -> None:
    folder = project(tmp_path, client="server")
    with pytest.raises(ErisError) as told:
        FlowerApp.load(folder)
    assert str(told.value).partition("'")[0] == "clientapp = "
    assert str(told.value).endswith(
        f":server' is a ServerApp, not a ClientApp [folder={folder}]: name the ClientApp in [tool.flwr.app.components]"
    )


def test_fednova_wants_steps_that_no_app_tells(tmp_path: Path) -> None:
    with pytest.raises(ErisError) as told:
        begun(project(tmp_path), "server.optimizer=fednova")
    assert str(told.value) == (
        "FedNova divides by local steps, but a Flower app does not say how many it took [key=server.optimizer]: "
        "use server.optimizer = 'fedavg'"
    )


def test_a_folder_without_an_app(tmp_path: Path) -> None:
    with pytest.raises(ErisError) as told:
        FlowerApp.load(tmp_path)
    assert str(told.value) == (
        f"there is no Flower app: pyproject.toml is missing [folder={tmp_path}]: give the folder of the project"
    )
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\n')
    with pytest.raises(ErisError) as told:
        FlowerApp.load(tmp_path)
    assert str(told.value) == (
        f"this is not a Flower app: Missing [tool.flwr.app] section [folder={tmp_path}]: correct its pyproject.toml"
    )


def test_peers_with_other_files_are_told_so(tmp_path: Path) -> None:
    folder = project(tmp_path)
    app = FlowerApp.load(folder)
    config = configured(app, load_config(changes=["members=3"]))
    flower_peer(folder, {})(config, 0)
    (module,) = folder.glob("*.py")
    module.write_text(module.read_text() + "\n# another line\n")
    with pytest.raises(ErisError) as told:
        flower_peer(folder, {})(config, 0)
    assert str(told.value) == (
        f"the app here is {FlowerApp.load(folder).known_as}, but the run is of {app.known_as} [key=model.name]: "
        "use the same files on all peers; `eris run --flower DIR --show-config` prints an app's settings"
    )


def test_more_state_can_be_allowed(tmp_path: Path) -> None:
    app, _ = REFUSED["too much state"]
    begun(project(tmp_path, app=app, more="[tool.eris]\nstate-bytes = 320674\n"), rounds=2)


def test_a_peer_without_a_node_config_is_told_how_to_give_one() -> None:
    with pytest.raises(ErisError) as told:
        flower_peer(APPS / "messages", {})(settings("messages"), 0).rehearse([0])
    assert str(told.value) == (
        "the ClientApp's train failed with KeyError: 'partition-id' [peer=0, round=0]: this peer has no node config: "
        "give --node-config 'partition-id=0 num-partitions=2', or what the app reads"
    )
