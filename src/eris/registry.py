"""Look things up by name: methods, compressors, rules, data sets, models, …

A thing may be given by its **name**, by its path **module:name**, or as an **object** from Python. Installed packages
add names of their own by declaring an **entry point** (group ``eris.methods``, ``eris.compressors``, …):

    [project.entry-points."eris.compressors"]
    half = "my_package.compressors:half"

Looking up a name loads only that thing, so a broken package does no harm until its name is used.

>>> colours = Registry("colour", "eris.colours", {"red": 0xFF0000, "green": 0x00FF00})
>>> colours.find("red") == colours.find(0xFF0000)
True
>>> colours.find("gren")
Traceback (most recent call last):
    ...
eris.errors.ConfigError: there is no colour 'gren': did you mean green?
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from eris.errors import ConfigError, ErisError, MissingExtra

__all__ = [
    "BUILT_IN",
    "Lazy",
    "Listed",
    "Ready",
    "Registry",
    "call_with_options",
    "described_options",
    "first_sentence",
    "imported",
    "options_of",
]

T = TypeVar("T")

BUILT_IN, HERE = "built in", "registered in this process"
_EXTRAS = {"torch": "torch", "grpc": "network", "transformers": "text"}


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `eris list`: a name, what it is, where it comes from and, if it cannot be used, why not."""

    name: str
    about: str
    origin: str
    problem: str = ""
    options: str = ""  # the options it takes, and what each must be


@dataclass(frozen=True, slots=True)
class Lazy:
    """A built-in thing that is imported only when it is used: it needs a heavy library, or few people need it."""

    path: str
    about: str


def _anything(thing: object) -> str:
    del thing
    return ""


def first_sentence(thing: object) -> str:
    """Return the first line of a thing's documentation."""
    text = inspect.getdoc(thing) or ""
    return text.strip().partition("\n")[0].strip()


class Registry(MutableMapping[str, T], Generic[T]):
    """Things of one kind by name: built-in ones, those of installed packages, and those added in this process.

    Args:
        kind: what one thing is called in errors, such as "compressor".
        group: the entry-point group in which packages declare their own.
        built_in: eris's own things by name.
        refuses: returns briefly why an object is not a thing of this kind; "" if it is one.
        about: returns the line that `eris list` shows about a thing.
        options: returns the options that a thing takes, in one line.

    Names declared by installed packages are part of the mapping; iterating loads none of them.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        built_in: Mapping[str, T | Lazy],
        *,
        refuses: Callable[[Any], str] = _anything,
        about: Callable[[Any], str] = first_sentence,
        options: Callable[[Any], str] = _anything,
    ) -> None:
        self.kind, self.group = kind, group
        self._things: dict[str, T | Lazy] = dict(built_in)
        self._built_in = frozenset(built_in)
        self._refuses, self._about, self._options = refuses, about, options

    def find(self, given: str | T) -> T:
        """Return the thing with this name or path `module:name`; check an object and return it unchanged."""
        if not isinstance(given, str):
            return self._accepted(given, repr(given))
        if ":" in given:
            return self._accepted(imported(given, self.kind), given)
        if given not in self:
            raise ConfigError(f"there is no {self.kind} {given!r}", fix=self.nearest(given))
        return self[given]

    def nearest(self, name: str) -> str:
        """Suggest the name that somebody may have meant."""
        parts = sorted(name.split("+"))
        alike = [known for known in self if sorted(known.split("+")) == parts]
        near = alike or difflib.get_close_matches(name, list(self), n=1)
        if near:
            return f"did you mean {near[0]}?"
        return f"use one of {', '.join(self)}, or module:name" if self else "write package.module:name"

    def lend(self, thing: T) -> str:
        """Register an object under its own name and return that name; refuse a name that is already taken."""
        name = _name_of(thing)
        if name in self and self[name] != thing:
            raise ConfigError(
                f"there is another {self.kind} named {name!r} ({self.origin(name)})", fix="give yours another name"
            )
        self._things[name] = self._accepted(thing, name)
        return name

    def origin(self, name: str) -> str:
        """Say where a name comes from: built in, a package, or this process."""
        if name in self._built_in:
            return BUILT_IN
        if name in self._things:
            return HERE
        return ", ".join(_owner(point) for point in self._points().get(name, ()))

    def usable(self) -> dict[str, T]:
        """Return everything that can be loaded; `listed` says why the rest cannot."""
        found = {}
        for name in self:
            try:
                found[name] = self[name]
            except ErisError:
                continue
        return found

    def listed(self) -> list[Listed]:
        """Return a line for each thing; a plug-in that cannot be used is listed with the reason."""
        lines = [self._line(name) for name in self]
        for name, points in self._points().items():
            if name in self._things:
                lines += [
                    Listed(name, "", _owner(point), f"hidden: {self.origin(name)} has this name") for point in points
                ]
        return lines

    def _line(self, name: str) -> Listed:
        if isinstance(lazy := self._things.get(name), Lazy):
            return Listed(name, lazy.about, self.origin(name))
        try:
            return Listed(name, self._about(self[name]), self.origin(name), options=self._options(self[name]))
        except ErisError as error:
            return Listed(name, "", self.origin(name), error.what)

    def __getitem__(self, name: str) -> T:
        if name in self._things:
            thing = self._things[name]
            return self._accepted(imported(thing.path, self.kind), name) if isinstance(thing, Lazy) else thing
        points = self._points().get(name)
        if not points:
            raise KeyError(name)
        return self._loaded(name, points)

    def __setitem__(self, name: str, thing: T) -> None:
        self._things[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._points()

    def __iter__(self) -> Iterator[str]:
        yield from self._things
        yield from (name for name in self._points() if name not in self._things)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _points(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            if all(point.value != other.value or _owner(point) != _owner(other) for other in found.get(point.name, ())):
                found.setdefault(point.name, []).append(point)
        return found

    def _loaded(self, name: str, points: list[EntryPoint]) -> T:
        if len(points) > 1:
            owners = " and ".join(sorted(_owner(point) for point in points))
            raise ConfigError(
                f"{self.kind} {name!r} is declared by {owners}",
                fix=f"uninstall one of them, or name yours by its path: {points[0].value}",
            )
        try:
            thing = points[0].load()
        except Exception as error:  # other people's modules may raise anything
            raise ConfigError(
                f"{self.kind} {name!r} of {_owner(points[0])} cannot be loaded: {type(error).__name__}: {error}",
                fix=f"fix or uninstall {_owner(points[0])}",
            ) from error
        return self._accepted(thing, f"{name} of {_owner(points[0])}")

    def _accepted(self, thing: Any, given: str) -> T:
        if why := self._refuses(thing):
            raise ConfigError(f"{given} is not a {self.kind}: {why}", fix="docs/extend.md says what it must be")
        return thing  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Ready:
    """A finished thing, for a place that expects a function that makes one."""

    thing: Any

    def __call__(self) -> Any:
        """Return it."""
        return self.thing


def _name_of(thing: Any) -> str:
    """Return an object's name, the same in every process: its repr if it is `Ready`, else its own name.

    >>> _name_of(Ready(1.5)), _name_of(Ready(print)), _name_of(Registry)
    ('1.5', 'print', 'Registry')
    """
    ready, thing = isinstance(thing, Ready), thing.thing if isinstance(thing, Ready) else thing
    said = repr(thing) if ready else getattr(thing, "name", None)
    if not isinstance(said, str) or said.startswith("<"):
        said = str(getattr(thing, "__qualname__", type(thing).__qualname__))
    return said.replace(":", ";")  # a colon would make it a path


def _owner(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def imported(path: str, kind: str) -> Any:
    """Import and return the object at a path `module:name`."""
    module_name, _, attribute = path.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # the user's own modules
    try:
        found: Any = importlib.import_module(module_name)
    except ErisError:
        raise
    except ModuleNotFoundError as error:
        if error.name in _EXTRAS:
            raise MissingExtra(error.name, _EXTRAS[error.name], f"{kind} {path!r}") from error
        raise ConfigError(
            f"{kind} {path!r} cannot be imported: {error}",
            fix=f"start eris in the folder that has {module_name.partition('.')[0]}, or install it",
        ) from error
    except Exception as error:  # other people's modules may raise anything
        raise ConfigError(
            f"{kind} {path!r} cannot be imported: {type(error).__name__}: {error}",
            fix="correct the error in that module, or name another",
        ) from error
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ConfigError(
            f"module {module_name!r} has no {attribute!r}", fix="check the name after the colon"
        ) from error
    return found


# Annotations in the words of a configuration file.
_WORDS: dict[Any, tuple[tuple[type, ...], str]] = {
    float: ((int, float), "a number"),
    int: ((int,), "a whole number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "a string"),
}


def options_of(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function that makes a thing, by name, with annotations resolved if possible."""
    try:
        parameters = inspect.signature(make, eval_str=True).parameters
    except (NameError, TypeError, AttributeError):  # an annotation that only a type checker understands
        parameters = inspect.signature(make).parameters
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: parameter for name, parameter in parameters.items() if parameter.kind not in kinds}


def described_options(make: Callable[..., Any]) -> str:
    """Describe in one line the options of a function that makes a thing.

    >>> def half(p: float, quick: bool = True): ...
    >>> described_options(half)
    'p: a number; quick = True: true or false'
    """
    given = {name: "" if p.default is p.empty else f" = {p.default!r}" for name, p in options_of(make).items()}
    return "; ".join(f"{name}{given[name]}: {_meaning(p.annotation)}" for name, p in options_of(make).items())


def call_with_options(name: str, make: Callable[..., T], given: Mapping[str, Any], *, word: str = "parameter") -> T:
    """Make a thing with options from a configuration; refuse unknown, missing and mistyped ones.

    `name` is what errors call the thing, `make` makes it, and `word` is what errors call an option.

    `given` are the options.

    >>> def half(p: float, mode: Literal["up", "down"] = "up") -> str: return f"{p} {mode}"
    >>> call_with_options("half", half, {"p": 0.5, "mode": "down"})
    '0.5 down'
    >>> call_with_options("half", half, {"p": 0.5, "mode": "left"})
    Traceback (most recent call last):
        ...
    eris.errors.ConfigError: mode of half is 'left': give 'up' or 'down'
    """
    wanted = options_of(make)
    takes = ", ".join(f"{key} ({_meaning(p.annotation)})" for key, p in wanted.items()) or f"no {word}s"
    for key in given:
        if key not in wanted:
            raise ConfigError(f"{name} takes no {word} {key!r}", fix=f"use {takes}")
    for key, parameter in wanted.items():
        if key in given:
            _check_kind(name, key, given[key], parameter.annotation)
        elif parameter.default is parameter.empty:
            raise ConfigError(f"{name} needs the {word} {key!r}", fix=f"give {takes}")
    return make(**given)


def _meaning(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(repr(choice) for choice in get_args(annotation))
    return _WORDS[annotation][1] if _plain(annotation) else "a value"


def _plain(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation in _WORDS


def _check_kind(name: str, key: str, value: Any, annotation: Any) -> None:
    if get_origin(annotation) is Literal:
        fits = value in get_args(annotation)
    elif _plain(annotation):
        fits = isinstance(value, _WORDS[annotation][0]) and (annotation is bool or not isinstance(value, bool))
    else:
        return
    if not fits:
        raise ConfigError(f"{key} of {name} is {value!r}", fix=f"give {_meaning(annotation)}")
