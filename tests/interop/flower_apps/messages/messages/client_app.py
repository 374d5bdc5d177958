from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from messages.task import Net, load_data
from messages.task import test as test_net
from messages.task import train as train_net

app = ClientApp()


def _loaded(msg: Message, context: Context):
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    return net, load_data(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train()
def train(msg: Message, context: Context) -> Message:
    net, (loader, _) = _loaded(msg, context)
    loss = train_net(net, loader, context.run_config["local-epochs"], msg.content["config"]["lr"])
    print("trained in round", msg.content["config"]["server-round"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    net, (_, loader) = _loaded(msg, context)
    loss, accuracy = test_net(net, loader)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
