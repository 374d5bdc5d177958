"""The rounds a peer could go back to: its checkpoints, seen from the inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Past"]


def _nothing(round: int) -> bool:
    del round
    return False


@dataclass
class Past:
    """What a peer kept; a peer without a folder kept nothing."""

    rounds: Callable[[], list[int]] = list  # rounds that are on disk
    go_back: Callable[[int], bool] = _nothing  # stand at the beginning of one of them; whether it was there
    following: bool = False  # the round that is open is one we took no part in, followed by its verdict
