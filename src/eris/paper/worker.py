"""A worker process that runs cells: for each, it reads a line of JSON and writes a line of JSON.

`eris.paper.run` starts it. If it dies, only its current cell is lost.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from eris.paper.cell import do_cell

__all__ = ["main"]


def main() -> None:
    """Run the cells that come in on standard input until it ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that what a library prints is not taken for an answer
    sys.path.insert(0, str(Path.cwd()))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    for line in sys.stdin:
        asked = json.loads(line)
        found = do_cell(asked["cell"], Path(asked["path"]), Path(asked["scratch"]))
        told = {key: found.get(key) for key in ("failed", "seconds", "processor_seconds")}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


def _end_with(parent: int) -> None:
    """End as soon as the parent process is gone, since a resumed run does the same cell again."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
