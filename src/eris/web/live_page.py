"""The live page behind a port: one page, one stream of changes, and nothing that a viewer could change.

Whoever knows the address can see the page: the address holds a token, and the port is open to this machine only, unless
a host is named. Changes go out once a second, encoded once for all viewers; while nobody watches, nothing is gathered.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from eris.errors import ConfigError, MissingExtra
from eris.report.theme import DARK, LIGHT
from eris.web.live_facts import LiveFacts

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["LivePage", "page"]

LOOPBACK = "127.0.0.1"
_EVERY = 1.0  # seconds between two batches of changes
_SILENT = 15.0  # seconds after which a line that says nothing keeps proxies from hanging up
_BEHIND = 60  # batches that a viewer may lag behind; then it is cut off, and its page asks for everything again
_MOST = 100  # viewers at the same time


class LivePage:
    """Serves facts at `address` until it is closed; `refresh` is asked for more facts before each batch."""

    def __init__(
        self, facts: LiveFacts, *, host: str = LOOPBACK, port: int = 0, refresh: Callable[[], None] = lambda: None
    ) -> None:
        """Listen at `host`, an address of this machine; port 0 is any free one."""
        uvicorn = _uvicorn()
        self._facts, self._refresh, self._token = facts, refresh, secrets.token_urlsafe(16)
        self._audience: set[asyncio.Queue[bytes]] = set()
        self._socket = _bound(host, port)
        self._gathering, self._loop = asyncio.Lock(), asyncio.new_event_loop()
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host or socket.gethostname()
        self.address = f"http://{shown}:{self.port}/{self._token}/"
        config = uvicorn.Config(
            self._app(), log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=1, ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="eris-web", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send what is left, hang up, and stop serving."""
        with contextlib.suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(3.0)
        self._server.should_exit = True
        self._thread.join(5.0)
        self._socket.close()

    def _serve(self) -> None:
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    # ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────

    def _app(self) -> Starlette:
        from starlette.applications import Starlette
        from starlette.routing import Route

        routes = [Route("/{token}/", self._show), Route("/{token}/events", self._stream)]
        return Starlette(routes=routes, lifespan=self._telling)

    async def _show(self, request: Request) -> Response:
        from starlette.responses import Response

        if not self._knows(request):
            return _nothing_here()
        text, policy = page()
        return Response(text, media_type="text/html", headers={**_CAREFUL, "Content-Security-Policy": policy})

    async def _stream(self, request: Request) -> Response:
        from starlette.responses import PlainTextResponse, StreamingResponse

        if not self._knows(request):
            return _nothing_here()
        if len(self._audience) >= _MOST:
            return PlainTextResponse("too many browsers are watching this page already", 503, headers=_CAREFUL)
        return StreamingResponse(self._said(), media_type="text/event-stream", headers=_CAREFUL)

    def _knows(self, request: Request) -> bool:
        return hmac.compare_digest(request.path_params["token"].encode(), self._token.encode())

    # ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _said(self) -> AsyncIterator[bytes]:
        """Send everything, then the changes."""
        heard = asyncio.Queue[bytes](_BEHIND)
        async with self._gathering:  # so that nothing is sent twice, or to nobody
            await self._tell_changes()
            first = _event("whole", await asyncio.to_thread(self._facts.whole))
            self._audience.add(heard)
        try:
            yield first
            said = first
            while said is not _END:
                said = await asyncio.wait_for(heard.get(), 2 * _SILENT)
                yield said
        except TimeoutError:  # it lags too far behind
            return
        finally:
            self._audience.discard(heard)

    @asynccontextmanager
    async def _telling(self, app: Any) -> AsyncIterator[None]:
        del app
        task = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            task.cancel()

    async def _tell(self) -> None:
        quiet = 0.0
        while True:
            await asyncio.sleep(_EVERY)
            if not self._audience:
                continue
            async with self._gathering:
                said = await self._tell_changes()
            quiet = 0.0 if said else quiet + _EVERY
            if quiet >= _SILENT:
                quiet = 0.0
                self._hand_out(b": still here\n\n")

    async def _end(self) -> None:
        async with self._gathering:
            await self._tell_changes()
        self._hand_out(_END)

    async def _tell_changes(self) -> bool:
        changes = await asyncio.to_thread(self._gather)
        if changes:
            self._hand_out(_event("change", changes))
        return bool(changes)

    def _gather(self) -> dict[str, Any]:
        self._refresh()
        return self._facts.changes()

    def _hand_out(self, said: bytes) -> None:
        for heard in list(self._audience):
            try:
                heard.put_nowait(said)
            except asyncio.QueueFull:
                self._audience.discard(heard)


_END = b"event: end\ndata: {}\n\n"
_CAREFUL = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address is the key
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def page() -> tuple[str, str]:
    """Return the page in one piece, and the policy that lets it run only its own script and ask only us."""
    style, script, frame = (_read(name) for name in ("page.css", "page.js", "page.html"))
    light, dark = (";".join(f"--{name}:{value}" for name, value in colours.items()) for colours in (LIGHT, DARK))
    style = style.replace("/*light*/", light).replace("/*dark*/", dark)
    text = frame.replace("/*style*/", style).replace("/*script*/", script)
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; style-src '{_hash(style)}' 'unsafe-hashes'; script-src '{_hash(script)}'"
    )
    return text, policy


def _read(name: str) -> str:
    return resources.files("eris.web").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def _nothing_here() -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("nothing here: use the whole address that the command printed", 404, headers=_CAREFUL)


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(
            f"the page cannot be served at {host or '*'}:{port}: {error.strerror}", fix="choose another --web-at"
        ) from None


def _uvicorn() -> Any:
    try:
        import starlette.applications
        import uvicorn
    except ImportError as error:
        raise MissingExtra("starlette and uvicorn", "web", "the live page") from error
    del starlette
    return uvicorn
