"""Flower apps as they are: `[tool.flwr.app]` is read, the ClientApp is called in this process, the server is replaced.

    eris run  --flower DIR            every member of a simulation runs the ClientApp
    eris join --flower DIR            so does a peer, with a node config of its own

What a Flower app and eris call by other names:

    arrays of the first message       the model to begin with, and its spec
    train, `fit`                      local training; the update is the model minus what comes back
    num-examples of its answer        the member's weight, fixed for the run
    `context.state`                   the member's memory: saved with its checkpoints, never sent
    config of the first message       what every round's message says, with its `server-round`

The ServerApp is started once and stopped at its first message to a client: that says what to begin with. Its strategy
is never asked; the run's method takes its place. Randomness of the app (random, numpy, torch) is seeded for every
member and round, so that simulation and network end with the same bits.
"""

from __future__ import annotations

from eris.interop.flower.app import FlowerApp, configured, parsed_node_config
from eris.interop.flower.task import FlowerTask, flower_peer, flower_task

__all__ = ["FlowerApp", "FlowerTask", "configured", "flower_peer", "flower_task", "parsed_node_config"]
