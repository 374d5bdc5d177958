from collections import OrderedDict

import torch
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from numpy_client.task import Net, load_data, test, train


class FlowerClient(NumPyClient):
    def __init__(self, net, loaders, epochs):
        self.net, (self.trained_on, self.tested_on), self.epochs = net, loaders, epochs

    def _load(self, parameters):
        named = zip(self.net.state_dict(), parameters, strict=True)
        self.net.load_state_dict(OrderedDict((name, torch.tensor(value)) for name, value in named))

    def fit(self, parameters, config):
        self._load(parameters)
        loss = train(self.net, self.trained_on, self.epochs, config["lr"])
        values = [value.cpu().numpy() for value in self.net.state_dict().values()]
        return values, len(self.trained_on.dataset), {"train_loss": loss}

    def evaluate(self, parameters, config):
        self._load(parameters)
        loss, accuracy = test(self.net, self.tested_on)
        return loss, len(self.tested_on.dataset), {"accuracy": accuracy}


def client_fn(context: Context):
    loaders = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return FlowerClient(Net(), loaders, context.run_config["local-epochs"]).to_client()


app = ClientApp(client_fn)
