"""The cases of benchmarks/network.py with Flower's gRPC server, TLS on, in an environment of its own.

    python flower_server.py CERTIFICATES PEERS N ROUNDS

CERTIFICATES holds ca.pem, certificate.pem and key.pem of `localhost`. Every client is a process of its own and returns
the same vector in every round. Prints the seconds and processor seconds of every round after the first.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
from pathlib import Path

from flower_work import Fixed, Timed, be_quiet
from flwr.client import start_client
from flwr.server import ServerConfig, start_server

LONGEST = 512 * 1024 * 1024  # the longest message that Flower lets pass


def run_client(member: int, n: int, port: int, root: bytes) -> None:
    be_quiet()
    start_client(
        server_address=f"localhost:{port}",
        client=Fixed(member, n).to_client(),
        root_certificates=root,
        grpc_max_message_length=LONGEST,
        max_wait_time=60.0,
    )


def main() -> None:
    folder, (peers, n, rounds) = Path(sys.argv[1]), map(int, sys.argv[2:5])
    be_quiet()
    root, certificate, key = ((folder / f"{name}.pem").read_bytes() for name in ("ca", "certificate", "key"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    clients = [context.Process(target=run_client, args=(k, n, port, root), daemon=True) for k in range(peers)]
    for client in clients:
        client.start()
    strategy = Timed(peers, n)
    start_server(
        server_address=f"127.0.0.1:{port}",
        config=ServerConfig(num_rounds=rounds + 1),
        strategy=strategy,
        grpc_max_message_length=LONGEST,
        certificates=(root, certificate, key),
    )
    strategy.print_rounds()
    for client in clients:
        client.join(20)


if __name__ == "__main__":
    main()
