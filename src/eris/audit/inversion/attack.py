"""The contract of an attack that recovers samples from an update: a sight goes in, pictures come out.

An attack is registered by name, so that the command and the sweeps find it; an import path will do, so that torch is
only imported by whoever attacks.

>>> class Grey:
...     name = "grey"
...     def recover(self, sight, public, *, mode="mask-aware", seed, labels=None):
...         return Recovered(np.full((1, *public.shape), 0.5, np.float32), np.zeros(1, np.int64))
>>> register_inversion(Grey.name, Grey)
>>> inversion_by_name("grey").name
'grey'
>>> del INVERSIONS["grey"]
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.audit.inversion.sight import Sight
from eris.errors import ConfigError, MissingExtra
from eris.seeds import Seed

if TYPE_CHECKING:
    from eris.audit.inversion.public_model import PublicModel

__all__ = ["INVERSIONS", "Inversion", "Labels", "Mode", "Recovered", "inversion_by_name", "register_inversion"]

Mode = Literal["mask-aware", "zero-filled"]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Recovered:
    """What an attack made of a sight."""

    images: NDArray[np.float32] = field(repr=False)  # samples × channels × height × width, in [0, 1]
    labels: Labels
    loss: float = float("nan")  # of the match at the end
    trace: tuple[float, ...] = field(default=(), repr=False)  # of the match on the way


class Inversion(Protocol):
    """An attack on one sight."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        ...

    def recover(
        self,
        sight: Sight,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the samples of a sight.

        `mask-aware` matches only what was seen; `zero-filled` takes what was not seen for zero, as the published
        attacks do. `labels` tells them to the attack; without, it finds them itself.
        """
        ...


INVERSIONS: dict[str, Callable[..., Inversion] | str] = {
    "boxed": "eris.audit.inversion.boxed:Boxed",
    "dlg": "eris.audit.inversion.dlg:DLG",
    "ggl": "eris.audit.prior.ggl:GGL",
    "idlg": "eris.audit.inversion.dlg:IDLG",
    "inverting-gradients": "eris.audit.inversion.inverting_gradients:InvertingGradients",
    "rank-one": "eris.audit.inversion.rank_one:RankOne",
    "rog": "eris.audit.prior.rog:ROG",
}


def register_inversion(name: str, build: Callable[..., Inversion] | str) -> None:
    """Make an attack known by name; `build`, or what lies at its import path, takes its options as keywords."""
    INVERSIONS[name] = build


def inversion_by_name(name: str, **options: Any) -> Inversion:
    """Return the attack of that name."""
    if name not in INVERSIONS:
        raise ConfigError(f"there is no attack {name!r}", fix=f"use one of {', '.join(sorted(INVERSIONS))}")
    build = _builder(INVERSIONS[name])
    known = inspect.signature(build).parameters
    unknown = [key for key in options if key not in known]
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in known.values()):
        fix = f"use one of {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"the attack {name} has no option {unknown[0]!r}", fix=fix)
    return build(**options)


def _builder(build: Callable[..., Inversion] | str) -> Callable[..., Inversion]:
    if not isinstance(build, str):
        return build
    module, _, attribute = build.partition(":")
    try:
        found: Callable[..., Inversion] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "torch", "torch", "inverting updates") from error
    return found
