"""Compressors and transforms by name, as configurations write them.

>>> compressor_by_name("rand_k", p=0.01)
rand_k(0.01)
>>> transform_by_name("shift", compressor={"name": "rand_k", "p": 0.01}, gamma="diana")
shift(rand_k(0.01), gamma=diana)
>>> compressor_by_name("rand_j", p=0.01)
Traceback (most recent call last):
    ...
eris.errors.ConfigError: there is no compressor 'rand_j': did you mean 'rand_k'?
>>> compressor_by_name("rand_k", k=10)
Traceback (most recent call last):
    ...
eris.errors.ConfigError: rand_k takes no parameter 'k': use p (a number), independent (true or false)
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from eris.errors import ConfigError
from eris.transforms.clip import clip_by_norm
from eris.transforms.compress import Compress, Compressor
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

Maker = TypeVar("Maker", bound=Callable[..., Any])

COMPRESSORS: dict[str, Callable[..., Compressor]] = {
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
}


def compress(compressor: Compressor) -> Compress:
    """Compress without a shift."""
    return Compress(compressor)


TRANSFORMS: dict[str, Callable[..., Transform]] = {
    make.__name__: make for make in (clip_by_norm, compress, gaussian_noise, normalise_steps, prune, shift)
}

# What the annotations of the factories mean to somebody who writes a configuration.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "float": ((int, float), "a number"),
    "int": ((int,), "a whole number"),
    "bool": ((bool,), "true or false"),
    "Gamma": ((str, int, float), "'paper', 'diana' or a number"),
    "GammaSchedule | None": ((object,), "a function of the round"),
    "Compressor": ((object,), "a compressor: its name, or a table with its name and parameters"),
}


def compressor_by_name(name: str, **parameters: Any) -> Compressor:
    """Return the compressor of that name."""
    make = _maker("compressor", COMPRESSORS, name)
    return make(**_checked(name, make, parameters))


def transform_by_name(name: str, **parameters: Any) -> Transform:
    """Return the transform of that name; a compressor inside it may be given by name too."""
    if "compressor" in parameters:
        parameters = parameters | {"compressor": _inner(parameters["compressor"])}
    make = _maker("transform", TRANSFORMS, name)
    return make(**_checked(name, make, parameters))


def _inner(given: Any) -> Any:
    if isinstance(given, str):
        return compressor_by_name(given)
    if isinstance(given, Mapping):
        parameters = dict(given)
        return compressor_by_name(str(parameters.pop("name", "")), **parameters)
    return given


def _maker(kind: str, makers: Mapping[str, Maker], name: str) -> Maker:
    if name not in makers:
        near = difflib.get_close_matches(name, makers, n=1)
        fix = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(makers)}"
        raise ConfigError(f"there is no {kind} {name!r}", fix=fix)
    return makers[name]


def _checked(name: str, make: Callable[..., Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters if they are the ones `make` takes, of the kind it takes."""
    wanted = inspect.signature(make).parameters
    takes = ", ".join(f"{key} ({_KINDS[str(p.annotation)][1]})" for key, p in wanted.items()) or "no parameters"
    for key in given:
        if key not in wanted:
            raise ConfigError(f"{name} takes no parameter {key!r}", fix=f"use {takes}")
    for key, parameter in wanted.items():
        if key in given:
            _check_kind(name, key, given[key], str(parameter.annotation))
        elif parameter.default is parameter.empty:
            raise ConfigError(f"{name} needs the parameter {key!r}", fix=f"give {takes}")
    return given


def _check_kind(name: str, key: str, value: Any, annotation: str) -> None:
    types, meaning = _KINDS[annotation]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
        raise ConfigError(f"{key} of {name} is {value!r}", fix=f"give {meaning}")
