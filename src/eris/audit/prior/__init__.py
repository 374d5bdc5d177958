"""Attacks that know what pictures look like: ROG (a trained enhancer) and GGL (a generator).

They are registered beside the other inversions. What they need that is no code is fetched or trained once by `eris data
get`: `rog-cifar10`, `rog-mnist`, `ggl-mnist`, `progan-128`, `dcgan-64`. Everything here needs torch, so it is imported
when an attack is built.
"""

from __future__ import annotations

from typing import Any

from eris.audit.inversion.attack import Inversion, register_inversion

__all__: list[str] = []


def _rog(**options: Any) -> Inversion:
    from eris.audit.prior.rog import ROG

    return ROG(**options)


def _ggl(**options: Any) -> Inversion:
    from eris.audit.prior.ggl import GGL

    return GGL(**options)


register_inversion("rog", _rog)
register_inversion("ggl", _ggl)
