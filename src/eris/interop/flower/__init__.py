"""Run unmodified Flower apps: eris reads `[tool.flwr.app]`, calls the ClientApp in this process, replaces the server.

    eris run  --flower DIR            every member of a simulation runs the ClientApp
    eris join --flower DIR            so does a peer, with a node config of its own

Flower's words and what they are in eris:

    arrays of the first message       the model to begin with, and its spec
    train, `fit`                      local training; the update is the model minus what comes back
    num-examples of its answer        the member's weight, fixed for the run
    `context.state`                   the member's memory: saved with its checkpoints, never sent
    config of the first message       what every round's message says, with its `server-round`

The ServerApp is started once and stopped at its first message to a client, which holds the initial model. Its strategy
is never used; the run's method replaces it. The app's randomness (random, numpy, torch) is seeded for every member and
round, so that simulation and network end with the same bits.
"""

from __future__ import annotations

from eris.interop.flower.app import FlowerApp, configured, parsed_node_config
from eris.interop.flower.task import FlowerTask, flower_peer, flower_task

__all__ = ["FlowerApp", "FlowerTask", "configured", "flower_peer", "flower_task", "parsed_node_config"]
