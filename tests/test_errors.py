from __future__ import annotations

import copy
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from eris import errors
from eris.errors import ErisError, InputError, MissingExtra, PlanError, Reason, Refused

EXAMPLES: list[ErisError] = [
    InputError("weight is negative", fix="give a weight > 0", peer=3, round=7),
    PlanError("no such shard"),
    Refused(Reason.LATE, "the shard was cut", fix="send earlier", shard=2),
    MissingExtra("torch", "torch", "training a network"),
]


def _raise(number: int) -> None:
    raise EXAMPLES[number]


def _kinds() -> list[type[ErisError]]:
    return [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ErisError)]


def test_what_where_and_fix_are_in_the_message() -> None:
    assert str(EXAMPLES[0]) == "weight is negative [peer=3, round=7]: give a weight > 0"
    assert str(EXAMPLES[1]) == "no such shard"
    assert str(EXAMPLES[2]) == "refused (late): the shard was cut [shard=2]: send earlier"
    assert str(EXAMPLES[3]) == "training a network needs the package torch: pip install 'eris-fl[torch]'"


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_a_copy_has_everything(error: ErisError, through: object) -> None:
    again = through(error)  # type: ignore[operator]
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_errors_come_back_whole_from_another_process() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for number, error in enumerate(EXAMPLES):
            caught = pool.submit(_raise, number).exception()
            assert type(caught) is type(error)
            assert str(caught) == str(error)
            assert getattr(caught, "reason", None) == getattr(error, "reason", None)
            assert caught.where == error.where  # type: ignore[union-attr]


def test_every_error_is_in_the_tree_and_in_the_public_names() -> None:
    tree = errors.__doc__ or ""
    for kind in _kinds():
        assert kind.__name__ in tree
        assert kind.__name__ in errors.__all__


def test_the_tree_is_drawn_as_it_grew() -> None:
    assert issubclass(errors.SpecError, InputError)
    assert issubclass(PlanError, InputError)
    direct = {kind.__name__ for kind in _kinds() if kind.__base__ is ErisError}
    assert direct | {"LinkError"} == set(_branches(errors.__doc__ or ""))  # that branch lives with the links


def _branches(tree: str) -> list[str]:
    return [line[8:].split()[0] for line in tree.splitlines() if line.startswith(("    ├── ", "    └── "))]
