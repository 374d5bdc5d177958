"""Logs for people or for programs: a line each, with run, round, shard and peer where they are known."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eris.errors import ErisError
from eris.printable import printable

__all__ = ["JsonLines", "start_logging"]

Context = Callable[[], Mapping[str, Any]]
_PLACES = ("run", "round", "shard", "peer")


def start_logging(*, as_json: bool, quiet: bool, context: Context = dict, also: Iterable[logging.Handler] = ()) -> None:
    """Send the package's logs to standard error; `context` adds what every line should carry.

    `quiet` is for standard error alone: handlers that listen `also` hear more.
    """
    handler = logging.StreamHandler()
    if as_json:
        handler.setFormatter(JsonLines(context))
    else:
        handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    log = logging.getLogger("eris")
    handler.setLevel(logging.WARNING if quiet else logging.INFO)
    log.handlers[:] = [handler, *also]
    log.setLevel(logging.INFO if also else handler.level)
    log.propagate = False


class _Lines(logging.Formatter):
    """A line for people, without control characters from other parties."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Return the line."""
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object a line.

    >>> record = logging.LogRecord("eris", logging.WARNING, "", 0, "late: %s", (ErisError("slow", shard=3),), None)
    >>> line = json.loads(JsonLines(lambda: {"run": "demo"}).format(record))
    >>> line["level"], line["message"], line["run"], line["shard"]
    ('warning', 'late: slow [shard=3]', 'demo', 3)
    """

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._context(),
            **_places(record.args),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _places(arguments: object) -> dict[str, Any]:
    """Return where it happened, from the errors among a record's arguments."""
    errors = [value for value in arguments if isinstance(value, ErisError)] if isinstance(arguments, tuple) else []
    return {key: error.where[key] for error in errors for key in _PLACES if key in error.where}
