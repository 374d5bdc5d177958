"""What `import eris` brings along, seen from a fresh interpreter. Modules are counted, not seconds: clocks flake."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "cryptography", "datasets", "google.protobuf", "grpc", "matplotlib", "opacus", "pandas", "PIL", "ray", "scipy",
    "torch", "torchvision", "transformers",
}  # fmt: skip
CORE = (
    "eris.aggregate", "eris.errors", "eris.local.numpy_task", "eris.local.spec", "eris.local.task", "eris.protocol",
    "eris.protocol.aggregator", "eris.protocol.coordinator", "eris.protocol.member", "eris.seeds", "eris.shards.plan",
    "eris.shards.policy", "eris.step", "eris.transforms",
)  # fmt: skip


def loaded_after(statement: str) -> set[str]:
    """Return the names of all modules that a fresh interpreter has loaded after the statement."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(done.stdout))


def test_import_eris_is_light() -> None:
    loaded = loaded_after("import eris")
    assert "eris" in loaded
    assert not HEAVY & loaded


@pytest.mark.parametrize("module", CORE)
def test_the_core_is_light(module: str) -> None:
    assert not HEAVY & loaded_after(f"import {module}")


def test_the_command_line_answers_without_the_heavy_libraries() -> None:
    loaded = loaded_after("import eris.cli\neris.cli._register()")
    assert not (HEAVY | {"numpy", "pydantic"}) & loaded  # else `eris --help` would take half as long again


def test_a_heavy_import_would_be_noticed() -> None:
    assert "scipy" in loaded_after("import eris, scipy")
