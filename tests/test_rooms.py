"""How large a room may be, and how many doors a module may have."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import eris

SOURCE = Path(eris.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted({path.parent for path in MODULES})

MOST_FILES = 40
MOST_IMPORTED = 25
MOST_BY_POSITION = 8
BY_POSITION = {
    "wire/frame.py: cls": "one for every frame on a link: 0.4 µs instead of 1.2 with names",
    "wire/frame.py: _LAYOUT.pack": "a struct's fields have no names",
    "cli/planning/costs.py: make_table": "any number of column titles",
    "interop/flower/first_message.py: Metadata": "Flower's, which has renamed some of its arguments",
    "interop/flower/task.py: Metadata": "Flower's, which has renamed some of its arguments",
}


def named(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imported_by(path: Path) -> set[str]:
    """Return the modules of eris that a module names in its imports, those inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "eris":
            inside = SOURCE.parent.joinpath(*str(node.module).split("."))
            for alias in node.names:
                is_module = (inside / f"{alias.name}.py").exists() or (inside / alias.name).is_dir()
                found.add(f"{node.module}.{alias.name}" if is_module else str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "eris"}
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=named)
def test_no_package_has_more_files_than_one_can_overlook(package: Path) -> None:
    assert len(list(package.glob("*.py"))) <= MOST_FILES


def test_no_module_needs_half_the_house() -> None:
    wide = {named(path): len(imported_by(path)) for path in MODULES if len(imported_by(path)) > MOST_IMPORTED}
    assert wide == {}


def test_no_line_assigns_five_things_at_once() -> None:
    wide = [
        f"{named(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) and len(target.elts) >= 5 for target in node.targets)
    ]
    assert wide == []


def test_no_call_passes_more_than_eight_values_by_position() -> None:
    many = {
        f"{named(path)}: {ast.unparse(node.func)}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and len(node.args) > MOST_BY_POSITION
    }
    assert many == set(BY_POSITION)
