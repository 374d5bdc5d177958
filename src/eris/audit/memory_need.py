"""How much memory an audit needs besides the training, computed before it starts.

>>> need = AuditMemory(gradients=6 << 30, updates=1 << 30, references=0)
>>> need.total >> 30, str(need)
(7, 'about 7.5 GB (gradients 6.4 GB, updates 1.1 GB)')
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eris.audit.canaries import PlantedTask
from eris.compose import Composition
from eris.errors import ConfigError
from eris.transforms import Shift

__all__ = ["AuditMemory", "affordable", "memory_need", "require_memory"]

_VALUE = 4
_PROCESS = 1 << 29  # what a process takes before it does anything
_SYSTEM = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class AuditMemory:
    """An audit's memory in bytes, by what it is used for."""

    gradients: int  # of canaries (of one member, or of all where they are few) and of public samples, twice
    updates: int  # of all members, of one round
    references: int  # what observers keep of victims from round to round

    @property
    def total(self) -> int:
        """The total in bytes."""
        return self.gradients + self.updates + self.references

    def __str__(self) -> str:
        parts = {"gradients": self.gradients, "updates": self.updates, "references": self.references}
        named = ", ".join(f"{name} {_sized(part)}" for name, part in parts.items() if part)
        return f"about {_sized(self.total)} ({named})"


def memory_need(planted: PlantedTask, composition: Composition, places: int, *, gradients: bool = True) -> AuditMemory:
    """Return the memory that an audit needs.

    Args:
        planted: the task with its canaries.
        composition: the method that is run.
        places: how many places it looks from, over all victims and observers.
        gradients: whether any attack needs gradients.
    """
    n, members = composition.recipe.spec.n_trainable, planted.task.members
    own = max((len(places) for places in planted.canaries.places), default=0)
    canaries = planted.canaries.count if planted.held_together else own
    public = planted.public.samples(0) if planted.public is not None else 0
    rows = 2 * (canaries + public) if gradients and planted.gradients and planted.copies is None else 0
    if planted.crafted:  # members train on them, whichever attack listens; a member's replace the last one's
        rows = max(rows, 2 * own)
    shifts = any(isinstance(transform, Shift) for transform in composition.recipe.chain.transforms)
    kept = (3 if shifts else 0) + (2 if composition.config.local.keep_state else 0)
    return AuditMemory(_VALUE * n * rows, _VALUE * n * (members + 2), _VALUE * n * kept * places)


def require_memory(need: AuditMemory) -> None:
    """Refuse an audit that needs more memory than this machine has free."""
    available = _available()
    if available is not None and need.total > available:
        raise ConfigError(
            f"the audit needs {need} of memory besides the training, but only {_sized(available)} are free",
            fix="use fewer --canaries or fewer --views; natural samples can do with --losses-only",
        )


def affordable(need: AuditMemory) -> int:
    """Return how many such audits fit on this machine at once, each with half as much again for its training."""
    available = _available()
    return 1 if available is None else max(1, available // max(1, need.total * 3 // 2 + _PROCESS))


def _available() -> int | None:
    """Return the bytes of free memory; None where the system does not say."""
    try:
        lines = dict(line.split(":", 1) for line in _SYSTEM.read_text(encoding="ascii").splitlines())
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None


def _sized(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
