from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import arrays_size_mod

from with_mod.task import Net, load_data, test, train


def halved_after_two(msg: Message, context: Context, call_next) -> Message:
    """Halve the step from the third round this node trains in; what it counts with is in the node's state."""
    rounds = context.state.config_records.setdefault("rounds", ConfigRecord({"trained": 0}))
    if msg.metadata.message_type == "train":
        rounds["trained"] += 1
        if rounds["trained"] > 2:
            msg.content["config"]["lr"] /= 2
    return call_next(msg, context)


app = ClientApp(mods=[halved_after_two])


def _loaded(msg: Message, context: Context):
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    return net, load_data(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train(mods=[arrays_size_mod])
def train_here(msg: Message, context: Context) -> Message:
    net, (loader, _) = _loaded(msg, context)
    loss = train(net, loader, context.run_config["local-epochs"], msg.content["config"]["lr"])
    trained = context.state["rounds"]["trained"]
    metrics = MetricRecord({"train_loss": loss, "trained": trained, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    net, (_, loader) = _loaded(msg, context)
    loss, accuracy = test(net, loader)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
