"""A folder named after the time, for results that were given no other place."""

from __future__ import annotations

import re
import time
from pathlib import Path

__all__ = ["stamped_folder"]


def stamped_folder(ending: str) -> Path:
    """Make runs/TIME-ENDING and return it; of several in one second the later ones get a number as well."""
    path = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^a-z0-9+_-]', '-', ending)}"
    mine, place = path, 1
    while True:
        try:
            mine.mkdir(parents=True)
        except FileExistsError:  # in this process or in another one
            place += 1
            mine = path.with_name(f"{path.name}-{place}")
        else:
            return mine
