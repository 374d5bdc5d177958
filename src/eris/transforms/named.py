"""Compressors by name, as configurations write them.

>>> compressor_by_name("rand_k", p=0.01)
rand_k(0.01)
>>> compressor_by_name("rand_j", p=0.01)
Traceback (most recent call last):
    ...
eris.errors.ConfigError: there is no compressor 'rand_j': did you mean rand_k?
>>> compressor_by_name("rand_k", k=10)
Traceback (most recent call last):
    ...
eris.errors.ConfigError: rand_k takes no parameter 'k': use p (a number), independent (true or false)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eris.registry import Registry, call_with_options, described_options
from eris.transforms.compress import Compressor, require_compressor
from eris.transforms.exact import identity
from eris.transforms.half import bf16, fp16
from eris.transforms.natural import natural
from eris.transforms.prune import magnitude_prune
from eris.transforms.quantize import qsgd, qsgd_max, terngrad, uniform
from eris.transforms.sign import sign
from eris.transforms.sparsify import bernoulli, rand_k, stratified_rand_k
from eris.transforms.topk import top_k

__all__ = ["COMPRESSORS", "compressor_by_name", "not_callable"]


def not_callable(thing: object) -> str:
    """Return why this cannot make anything; "" if it can be called with options."""
    return "" if callable(thing) else "it cannot be called with options"


COMPRESSORS: Registry[Callable[..., Compressor]] = Registry(
    "compressor",
    "eris.compressors",
    {
        make.__name__: make
        for make in (
            bernoulli,
            bf16,
            fp16,
            identity,
            magnitude_prune,
            natural,
            qsgd,
            qsgd_max,
            rand_k,
            sign,
            stratified_rand_k,
            terngrad,
            top_k,
            uniform,
        )
    },
    refuses=not_callable,
    options=described_options,
)


def compressor_by_name(name: str, **parameters: Any) -> Compressor:
    """Return the compressor of that name, or of a path `module:name`; what it names is called with the parameters."""
    return require_compressor(call_with_options(name, COMPRESSORS.find(name), parameters))
