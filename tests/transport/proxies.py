"""A small HTTP proxy that lets connections out."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from eris.transport.route import Proxy

LOCAL = ("127.0.0.1", 0)


@contextlib.contextmanager
def connect_proxy(allowed: str = "", authorization: str = "") -> Iterator[tuple[Proxy, list[str]]]:
    """A small HTTP proxy that knows CONNECT, on a free port."""
    asked: list[str] = []
    server = socket.create_server(LOCAL)
    server.settimeout(0.1)
    over, threads = threading.Event(), list[threading.Thread]()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        text = head.decode()
        asked.append(text.split()[1])
        if authorization not in text or not asked[-1].startswith(allowed):
            client.sendall(b"HTTP/1.1 407 Proxy Authentication \x1b[31mRequired\r\n\r\n")
            client.close()
            return
        host, port = asked[-1].rsplit(":", 1)
        upstream = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        back = threading.Thread(target=carry, args=(upstream, client))
        back.start()
        carry(client, upstream)
        with contextlib.suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)
        back.join()
        upstream.close()
        client.close()

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = server.accept()
                client.settimeout(None)
                threads.append(threading.Thread(target=serve, args=(client,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield Proxy("127.0.0.1", server.getsockname()[1], "anna:pass word" if authorization else ""), asked
    finally:
        over.set()
        accepting.join()
        server.close()
        for thread in threads:
            thread.join()
