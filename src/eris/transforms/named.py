"""Compressors and transforms by name, as configurations write them.

>>> compressor_by_name("rand_k", p=0.01)
rand_k(0.01)
>>> transform_by_name("shift", compressor={"name": "rand_k", "p": 0.01}, gamma="diana")
shift(rand_k(0.01), gamma=diana)
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

from collections.abc import Callable, Mapping
from typing import Any

from eris.errors import ConfigError
from eris.registry import Registry, call_with_options, described_options
from eris.transforms.clip import clip_by_norm
from eris.transforms.compress import Compress, Compressor, require_compressor
from eris.transforms.exact import identity
from eris.transforms.half import bf16, fp16
from eris.transforms.natural import natural
from eris.transforms.noise import gaussian_noise
from eris.transforms.normalise import normalise_steps
from eris.transforms.prune import magnitude_prune, prune
from eris.transforms.quantize import qsgd, qsgd_max, terngrad, uniform
from eris.transforms.shift import shift
from eris.transforms.sign import sign
from eris.transforms.sparsify import bernoulli, rand_k, stratified_rand_k
from eris.transforms.topk import top_k
from eris.transforms.transform import Transform

__all__ = ["COMPRESSORS", "TRANSFORMS", "compressor_by_name", "transform_by_name"]


def _not_callable(thing: object) -> str:
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
    refuses=_not_callable,
    options=described_options,
)


def compress(compressor: Compressor) -> Compress:
    """Compress without a shift."""
    return Compress(compressor)


TRANSFORMS: Registry[Callable[..., Transform]] = Registry(
    "transform",
    "eris.transforms",
    {make.__name__: make for make in (clip_by_norm, compress, gaussian_noise, normalise_steps, prune, shift)},
    refuses=_not_callable,
    options=described_options,
)


def compressor_by_name(name: str, **parameters: Any) -> Compressor:
    """Return the compressor of that name, or of a path `module:name`; what it names is called with the parameters."""
    return require_compressor(call_with_options(name, COMPRESSORS.find(name), parameters))


def transform_by_name(name: str, **parameters: Any) -> Transform:
    """Return the transform of that name; a compressor inside it may be given by name too."""
    if "compressor" in parameters:
        parameters = parameters | {"compressor": _inner(parameters["compressor"])}
    made = call_with_options(name, TRANSFORMS.find(name), parameters)
    if not isinstance(made, Transform):
        raise ConfigError(f"{name} made a {type(made).__name__}", fix="return an eris.transforms.Transform")
    return made


def _inner(given: Any) -> Any:
    if isinstance(given, str):
        return compressor_by_name(given)
    if isinstance(given, Mapping):
        parameters = dict(given)
        return compressor_by_name(str(parameters.pop("name", "")), **parameters)
    return given
