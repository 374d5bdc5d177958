from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections import defaultdict
from pathlib import Path

import pytest

import eris
from eris import errors

MODULES = [
    "eris",
    *(found.name for found in pkgutil.walk_packages(eris.__path__, "eris.") if not found.name.endswith("__main__")),
]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_lists_names_that_exist(name: str) -> None:
    module = importlib.import_module(name)
    if len(ast.parse(inspect.getsource(module)).body) == 1:
        return  # a package that only says what it holds
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert hasattr(module, public), f"{name}.__all__ lists {public}, which is not there"
        assert not public.startswith("_")


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip(), f"{name} has no docstring"


def declared() -> dict[str, str]:
    """Return public name → home, as type checkers read it in the package's first lines."""
    body = ast.parse(inspect.getsource(eris)).body
    (checked,) = (node for node in body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_public_names_are_sorted_and_complete() -> None:
    assert set(declared()) == set(eris.__all__)
    assert eris.__all__ == sorted(eris.__all__, key=lambda name: (not name[0].isupper(), name))
    assert set(eris.__all__) <= set(dir(eris))


@pytest.mark.parametrize("name", eris.__all__)
def test_a_public_name_is_fetched_from_the_home_that_type_checkers_know(name: str) -> None:
    assert getattr(eris, name) is getattr(importlib.import_module(declared()[name]), name)


def test_a_name_that_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="FedMagic"):
        eris.FedMagic  # type: ignore[attr-defined]  # noqa: B018


def test_every_error_can_be_caught_by_its_public_name() -> None:
    assert set(errors.__all__) <= set(eris.__all__)


@pytest.mark.parametrize("name", eris.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(eris, name)
    if inspect.isclass(value) or callable(value):
        assert inspect.getdoc(value), f"eris.{name} has no docstring"


def public_classes() -> dict[str, list[str]]:
    root = Path(eris.__path__[0])
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(root).as_posix())
    return found


def test_one_word_is_one_thing() -> None:
    """Whoever greps for a public class finds one."""
    assert {name: homes for name, homes in public_classes().items() if len(homes) > 1} == {}
