"""docs/notebooks: each is run from its first cell to its last, in a folder and a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
BOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=800, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in book.cells:
        outputs = cell.get("outputs", [])
        assert not [output for output in outputs if output.get("name") == "stderr" and "Traceback" in output["text"]]
    assert any(
        output.get("data", {}) or output.get("text") for cell in book.cells for output in cell.get("outputs", [])
    )


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_the_stored_outputs_are_those_of_one_clean_run(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    counts = [cell["execution_count"] for cell in book.cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
