from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from numpy_client.task import Net


def server_fn(context: Context):
    lr = context.run_config["lr"]
    strategy = FedAvg(
        fraction_fit=context.run_config["fraction-train"],
        on_fit_config_fn=lambda server_round: {"lr": lr},
        initial_parameters=ndarrays_to_parameters([value.numpy() for value in Net().state_dict().values()]),
    )
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
