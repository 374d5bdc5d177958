from __future__ import annotations

import importlib
import inspect
import pkgutil

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
    if name.count(".") and not inspect.getsource(module).count("\n") > 1:
        return  # a package that only says what it holds
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert hasattr(module, public), f"{name}.__all__ lists {public}, which is not there"
        assert not public.startswith("_")


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip(), f"{name} has no docstring"


def test_the_public_names_are_sorted_and_complete() -> None:
    shown = {name for name, value in vars(eris).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert shown - {"annotations"} == set(eris.__all__)
    assert eris.__all__ == sorted(eris.__all__, key=lambda name: (not name[0].isupper(), name))


def test_every_error_can_be_caught_by_its_public_name() -> None:
    assert set(errors.__all__) <= set(eris.__all__)


@pytest.mark.parametrize("name", eris.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(eris, name)
    if inspect.isclass(value) or callable(value):
        assert inspect.getdoc(value), f"eris.{name} has no docstring"
