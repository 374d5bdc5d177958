"""How large a room may be, how many doors a module may have, and what may stand twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

import eris

SOURCE = Path(eris.__file__).parent
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"
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

TWICE = 6  # equal lines of code, one after another, that need a reason
MOST_TWICE = 10  # with a reason: a signature or some fields, not what a function does
ALLOWED = {
    (
        "audit/reconstruction/attack.py: ReconstructionAttack.recover",
        "audit/reconstruction/dlg.py: DLG.recover",
        "audit/reconstruction/ggl.py: GGL.recover",
        "audit/reconstruction/inverting_gradients.py: InvertingGradients.recover",
        "audit/reconstruction/rank_one.py: RankOne.recover",
        "audit/reconstruction/rog.py: ROG.recover",
        "audit/reconstruction/search.py: LabelledSearch.recover",
    ): "signature of an attack",
    (
        "audit/reconstruction/sweep.py: run_shares",
        "audit/reconstruction/sweep.py: run_defences",
    ): "signature of a sweep",
    ("audit/inference.py: OnePlace.vantages", "audit/observer.py: Observer.vantages"): "signature of an observer",
    ("local/task.py: CohortTask.train_cohort", "local/torch_task.py: TorchTask.train_cohort"): "signature of a task",
    ("peer/node.py: Node.__init__", "peer/session.py: Session.__init__"): "signature: what a peer needs",
    ("protocol/messages.py: UploadHeader", "protocol/messages.py: Upload"): "fields of documents",
    ("transport/link.py: LinkTraffic", "transport/link_account.py: LinkAccount"): "fields of documents",
    ("data/catalogue.py",): "data",
}

NEARLY = 0.02  # of a package's lines: how far the table may be behind


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


class Line(NamedTuple):
    """A line of code, without its comment."""

    number: int
    text: str


class Run(NamedTuple):
    """Some lines of a file, one after another."""

    file: str
    lines: tuple[Line, ...]

    @property
    def place(self) -> str:
        """The file and the lines, for people."""
        return f"{self.file}:{self.lines[0].number}-{self.lines[-1].number}"


def code_of(source: str) -> list[Line]:
    """Return the lines that count: no imports, public names, docstrings, comments or lone punctuation."""
    passed_over = set[int]()
    for node in ast.walk(ast.parse(source)):
        words = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        public = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if words or public or isinstance(node, ast.Import | ast.ImportFrom):
            passed_over |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    stripped = [Line(number, text.split("  # ")[0].strip()) for number, text in enumerate(source.splitlines(), 1)]
    return [
        line for line in stripped
        if line.number not in passed_over and not line.text.startswith("#") and re.search(r"\w", line.text)
    ]  # fmt: skip


def repeated(sources: Mapping[str, str]) -> Iterator[tuple[Run, Run]]:
    """Yield pairs of runs of equal lines, each as long as it goes."""
    code = {file: code_of(source) for file, source in sources.items()}
    windows = defaultdict[tuple[str, ...], list[tuple[str, int]]](list)
    for file, lines in code.items():
        for start in range(len(lines) - TWICE + 1):
            windows[tuple(line.text for line in lines[start : start + TWICE])].append((file, start))
    starts = defaultdict[tuple[str, str, int], set[int]](set)
    for places in windows.values():
        for (file, start), (other, there) in combinations(places, 2):
            if file != other or there - start >= TWICE:
                starts[file, other, there - start].add(start)
    for (file, other, away), equal in sorted(starts.items()):
        for first in sorted(start for start in equal if start - 1 not in equal):
            end = next(start for start in range(first, first + len(equal) + 1) if start not in equal) + TWICE - 1
            yield (
                Run(file, tuple(code[file][first:end])),
                Run(other, tuple(code[other][first + away : end + away])),
            )


def home(run: Run, source: str) -> str:
    """Return the file and the innermost function or class in which a run begins."""
    names, node, line = list[str](), ast.parse(source), run.lines[0].number
    inside: ast.AST | None = node
    while inside is not None:
        inside = next((child for child in ast.walk(inside) if child is not inside and _holds(child, line)), None)
        names += [inside.name] if isinstance(inside, _DEFINITION) else []
    return ": ".join(filter(None, [run.file, ".".join(names)]))


_DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _holds(node: ast.AST, line: int) -> bool:
    return isinstance(node, _DEFINITION) and node.lineno <= line <= (node.end_lineno or 0)


def test_no_six_lines_stand_twice_without_a_reason() -> None:
    sources = {named(path): path.read_text("utf-8") for path in MODULES}
    unexplained, used = list[str](), set[str]()
    for one, other in repeated(sources):
        homes = {home(one, sources[one.file]), home(other, sources[other.file])}
        if len(one.lines) <= MOST_TWICE and any(homes <= set(places) for places in ALLOWED):
            used |= homes
        else:
            where = " and ".join(sorted(homes))
            unexplained.append(f"{one.place} and {other.place} share {len(one.lines)} lines ({where})")
    assert not unexplained, "share these lines, or give a reason in ALLOWED:\n" + "\n".join(unexplained)
    assert {place for places in ALLOWED for place in places} - used == set(), "they repeat nothing any more"


def test_a_copy_is_found_whatever_stands_between_its_lines() -> None:
    lines = [f"value_{number} = work({number})" for number in range(TWICE)]
    copy = "def copied():\n    " + '"""Say more."""\n\n    ' + "  # because\n    # so\n    ".join(lines)
    (pair,) = repeated({"a.py": "import this\n" + "\n".join(lines), "b.py": copy})
    assert [run.place for run in pair] == ["a.py:2-7", "b.py:4-14"]
    assert home(pair[1], copy) == "b.py: copied"
    assert not list(repeated({"a.py": "\n".join(lines[1:]), "b.py": copy}))
    (within,) = repeated({"a.py": "\n".join([*lines, "other = 0", *lines])})
    assert [run.place for run in within] == ["a.py:1-6", "a.py:8-13"]


def rooms() -> dict[str, tuple[int, int]]:
    """Return the files and lines of each package, without those of its sub-packages, and of all."""
    found = {}
    for package in PACKAGES:
        files = list(package.glob("*.py"))
        lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
        found["(top)" if package == SOURCE else named(package)] = len(files), lines
    files, lines = (sum(numbers) for numbers in zip(*found.values(), strict=True))
    return found | {"all": (files, lines)}


def table() -> dict[str, list[int]]:
    """Return what the page says of each package: files before and after, lines before and after."""
    rows = re.findall(r"^\| `?([\w/()]+)`? ((?:\| [\d,]+ ){4})\|$", ARCHITECTURE.read_text("utf-8"), re.M)
    return {name: [int(cell.replace(",", "")) for cell in cells.split("|")[1:]] for name, cells in rows}


def test_the_table_of_packages_is_true() -> None:
    said, wrong = table(), list[str]()
    for name, (files, lines) in rooms().items():
        files_before, files_said, lines_before, lines_said = said.pop(name, [0, 0, 0, 0])
        if files_said != files or abs(lines_said - lines) > NEARLY * lines:
            shown = name if name == "all" else f"`{name}`"
            wrong.append(f"| {shown} | {files_before:,} | {files:,} | {lines_before:,} | {lines:,} |")
    assert not wrong, "docs/architecture.md should say:\n" + "\n".join(wrong)
    assert said == {}, "they are packages no more"
