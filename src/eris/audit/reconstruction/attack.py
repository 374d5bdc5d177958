"""The protocol and the table of reconstruction attacks: an attack takes an observation and returns pictures.

An attack is registered by name, so that the command and the sweeps find it. It can be given as an import path, so that
torch is imported only when it is used. Attacks with a trained network (a generator, an enhancer) are in the same table,
with the networks they need.

>>> class Grey:
...     name = "grey"
...     def recover(self, observation, public, *, mode="mask-aware", seed, labels=None):
...         return Recovered(np.full((1, *public.shape), 0.5, np.float32), np.zeros(1, np.int64))
>>> register_reconstruction_attack(Grey.name, Grey)
>>> reconstruction_attack("grey").name
'grey'
>>> del RECONSTRUCTION_ATTACKS["grey"]
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from eris.audit.networks import network_is_here
from eris.audit.reconstruction.observation import UpdateObservation
from eris.errors import ConfigError, MissingExtra
from eris.registry import Registry, first_sentence
from eris.seeds import Seed

if TYPE_CHECKING:
    from eris.audit.reconstruction.public_model import PublicModel

__all__ = [
    "RECONSTRUCTION_ATTACKS",
    "Labels",
    "Mode",
    "ReconstructionAttack",
    "Recovered",
    "RegisteredReconstruction",
    "reconstruction_attack",
    "register_reconstruction_attack",
    "registered",
]

Mode = Literal["mask-aware", "zero-filled"]
Labels = NDArray[np.int64]
Build = Callable[..., "ReconstructionAttack"]


@dataclass(frozen=True, eq=False)
class Recovered:
    """The pictures and labels that an attack recovered from an observation."""

    images: NDArray[np.float32] = field(repr=False)  # samples × channels × height × width, in [0, 1]
    labels: Labels
    loss: float = float("nan")  # of the final match
    trace: tuple[float, ...] = field(default=(), repr=False)  # losses on the way


class ReconstructionAttack(Protocol):
    """An attack that recovers samples from one observation."""

    @property
    def name(self) -> str:
        """The attack's name on the command line."""
        ...

    def recover(
        self,
        observation: UpdateObservation,
        public: PublicModel,
        *,
        mode: Mode = "mask-aware",
        seed: Seed,
        labels: Labels | None = None,
    ) -> Recovered:
        """Recover the samples behind an observation.

        Args:
            observation: what was seen of the update.
            public: the model before the round.
            mode: `mask-aware` matches only what was seen; `zero-filled` takes what was not seen for zero, as the
                published attacks do.
            seed: of the attack's randomness.
            labels: the samples' labels, if the attack is told them; without, it finds them itself.
        """
        ...


@dataclass(frozen=True, slots=True)
class RegisteredReconstruction:
    """An attack in the table: its builder (or the builder's import path), and what it needs besides torch."""

    build: Build | str
    networks: Mapping[str, str] = field(default_factory=dict)  # data set → the trained network for its pictures
    package: str = ""  # of the extra `audit`

    @property
    def about(self) -> str:
        """Describe the attack in one line, for `eris list`."""
        where = self.build if isinstance(self.build, str) else first_sentence(self.build)
        return f"{where} (with a trained network)" if self.networks else where

    def lacks(self, data: str) -> str:
        """Return what is missing to run this attack on pictures of a data set; empty if nothing is."""
        if self.networks and data not in self.networks:
            return f"no network is known for pictures of {data}"
        if self.networks and not network_is_here(self.networks[data]):
            return f"run `eris data get {self.networks[data]}`"
        return 'install "eris-fl[audit]"' if self.package and not find_spec(self.package) else ""

    def builder(self) -> Build:
        """Return the attack's builder, imported if it was given as a path."""
        if not isinstance(self.build, str):
            return self.build
        module, _, attribute = self.build.partition(":")
        try:
            found: Build = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise MissingExtra(error.name or "torch", "torch", "inverting updates") from error
        return found


_HERE = "eris.audit.reconstruction"
_DIGITS = ("mnist-sample", "mnist")

_OURS: dict[str, RegisteredReconstruction] = {
    "boxed": RegisteredReconstruction(f"{_HERE}.boxed:Boxed"),
    "dlg": RegisteredReconstruction(f"{_HERE}.dlg:DLG"),
    "gauss-newton": RegisteredReconstruction(f"{_HERE}.gauss_newton:GaussNewton"),
    "ggl": RegisteredReconstruction(f"{_HERE}.ggl:GGL", dict.fromkeys(_DIGITS, "ggl-mnist"), package="cma"),
    "idlg": RegisteredReconstruction(f"{_HERE}.dlg:IDLG"),
    "inverting-gradients": RegisteredReconstruction(f"{_HERE}.inverting_gradients:InvertingGradients"),
    "rank-one": RegisteredReconstruction(f"{_HERE}.rank_one:RankOne"),
    "rog": RegisteredReconstruction(
        f"{_HERE}.rog:ROG", {**dict.fromkeys(_DIGITS, "rog-mnist"), "cifar10": "rog-cifar10"}
    ),
}


RECONSTRUCTION_ATTACKS: Registry[RegisteredReconstruction | Build] = Registry(
    "attack",
    "eris.reconstructions",
    dict(_OURS),
    refuses=lambda thing: "" if callable(thing) or isinstance(thing, RegisteredReconstruction) else "it builds nothing",
    about=lambda thing: thing.about if isinstance(thing, RegisteredReconstruction) else first_sentence(thing),
)


def registered(name: str) -> RegisteredReconstruction:
    """Return an attack's entry in the table; a third-party attack without one gets an entry with no known needs."""
    found = RECONSTRUCTION_ATTACKS.find(name)
    return found if isinstance(found, RegisteredReconstruction) else RegisteredReconstruction(found)


def register_reconstruction_attack(name: str, build: Build | str, networks: Mapping[str, str] | None = None) -> None:
    """Register an attack by name.

    Args:
        name: the attack's name.
        build: a callable that takes the attack's options as keywords, or its import path.
        networks: the trained network that the attack needs, by data set.
    """
    RECONSTRUCTION_ATTACKS[name] = RegisteredReconstruction(build, networks or {})


def reconstruction_attack(name: str, **options: Any) -> ReconstructionAttack:
    """Build the attack of that name with these options."""
    build = registered(name).builder()
    known_options = inspect.signature(build).parameters
    unknown = [key for key in options if key not in known_options]
    if unknown and not any(each.kind is each.VAR_KEYWORD for each in known_options.values()):
        fix = f"use one of {', '.join(known_options)}" if known_options else "it has none"
        raise ConfigError(f"the attack {name} has no option {unknown[0]!r}", fix=fix)
    return build(**options)
