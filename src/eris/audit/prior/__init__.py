"""Attacks that know what pictures look like: ROG (a trained enhancer) and GGL (a generator).

What they need that is no code is fetched or trained once by `eris data get`: `rog-cifar10`, `rog-mnist`, `ggl-mnist`,
`progan-128`, `dcgan-64`. Everything here needs torch, so nothing is imported before an attack is asked for by name.
"""

from __future__ import annotations

__all__: list[str] = []
