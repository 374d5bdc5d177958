"""What a newcomer meets first: an installation without extras, Ctrl-C, completion, and what the metadata claims."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from eris.cli import _require_posix
from eris.cli.exit_code import ExitCode
from eris.errors import ConfigError

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def needed_by(package: str, *extras: str) -> set[str]:
    """Return what a package with some extras cannot do without."""
    closure = runpy.run_path(str(ROOT / "release" / "dependencies.py"))["closure"]
    return set(closure(package, frozenset(extras)))


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with this checkout and what it requires, and no extra."""
    home = tmp_path_factory.mktemp("light")
    venv.create(home, with_pip=False)
    (library,) = home.glob("lib/python3*/site-packages")
    for package in {"eris-fl", *needed_by("eris-fl")}:
        distribution = metadata.distribution(package)
        for top in {file.parts[0] for file in distribution.files or [] if ".." not in file.parts}:
            if not (library / top).exists() and not top.startswith("__editable__") and not top.endswith(".pth"):
                (library / top).symlink_to(Path(str(distribution.locate_file(top))))
    (library / "eris.pth").write_text(str(ROOT / "src"), encoding="utf-8")
    return home / "bin" / "python"


def eris(python: Path | str, *words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80", **variables}
    return subprocess.run(
        [python, "-m", "eris", *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


def test_the_light_environment_has_no_extra(light: Path) -> None:
    for module in ("torch", "matplotlib", "grpc", "cryptography", "scipy"):
        done = subprocess.run([light, "-c", f"import {module}"], capture_output=True, text=True, timeout=60)
        assert "ModuleNotFoundError" in done.stderr, f"{module} can be imported there"


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "compare",
        "audit membership",
        "audit reconstruction",
        "audit sweep aggregators",
    ],
)
def test_without_torch_a_command_says_which_line_installs_it(light: Path, tmp_path: Path, command: str) -> None:
    done = eris(light, *command.split(), cwd=tmp_path)
    assert done.returncode == ExitCode.MISSING_EXTRA
    assert "Traceback" not in done.stderr
    assert re.search(r"error: .*torch: pip install 'eris-fl\[torch\]'", done.stderr), done.stderr


def test_without_torch_a_run_leaves_nothing(light: Path, tmp_path: Path) -> None:
    eris(light, "run", cwd=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["up --peers 3", "certs init ca", "doctor"])
def test_without_the_network_extra_a_command_says_so(light: Path, tmp_path: Path, command: str) -> None:
    done = eris(light, *command.split(), cwd=tmp_path)
    assert done.returncode == ExitCode.MISSING_EXTRA, done.stderr
    assert "pip install 'eris-fl[network]'" in done.stderr


def test_what_needs_no_extra_runs_and_the_name_of_an_extra_is_not_taken_for_a_style(
    light: Path, tmp_path: Path
) -> None:
    settings = ("data.name=synthetic-clouds", "method=eris", "members=4", "rounds=1")
    done = eris(light, "run", *(word for each in settings for word in ("--set", each)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "pip install 'eris-fl[report]'" in done.stdout


def test_ctrl_c_while_modules_are_loaded_shows_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "eris", "--help"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr
        assert any(re.search(r"\brich\.\w+$|\btyper\.\w+$", line) for line in child.stderr)  # in the midst of it
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
    assert "Traceback" not in rest
    assert child.returncode == ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("line", "offered"), [("eris ru", "run"), ("eris audit mem", "membership"), ("eris run --res", "--resume")]
)
def test_a_shell_can_complete(tmp_path: Path, line: str, offered: str) -> None:
    program = "import sys; sys.argv[0] = 'eris'; from eris.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "_ERIS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert offered in done.stdout.split(), (done.stdout, done.stderr)


def test_a_system_where_runs_cannot_be_kept_apart_is_refused() -> None:
    with pytest.raises(ConfigError, match="WSL"):
        _require_posix("win32")
    _require_posix("linux")


def test_the_metadata_claims_no_more_than_was_tested() -> None:
    versions = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: \d\.\d", line)}
    assert versions == {"3.11"}
    assert PROJECT["urls"]["Paper"] in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "Operating System :: POSIX :: Linux" in PROJECT["classifiers"]


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_the_lock_has_every_pin_and_a_hash_for_each() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    wanted = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert pins(lock) == wanted, "constraints.txt has changed: `make lock`"
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}$", lock, re.MULTILINE)) == len(wanted)


def test_everything_that_is_installed_for_development_is_pinned() -> None:
    names = needed_by("eris-fl", "dev")
    assert {canonicalize_name(name) for name in names} - {"eris-fl", "pip"} <= set(
        pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    )


def test_the_notice_names_every_package_that_users_need() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    named = {name for name, _ in re.findall(r"^([a-z0-9-]+) [^:\s]+: (.+)$", notice, re.MULTILINE)}
    wanted = {canonicalize_name(name) for name in needed_by("eris-fl", "all", "hub")}
    assert wanted - {"eris-fl"} <= named, "`make notice`"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0),
        ([{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1"}]}, {"name": "b", "skip_reason": "gone"}], 1),
        ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}], 3),
    ],
)
def test_a_package_that_could_not_be_looked_up_is_no_good_news(entries: list[dict[str, object]], code: int) -> None:
    found = runpy.run_path(str(ROOT / "release" / "advisories.py"))["verdict"](entries)
    assert found == code


def test_the_workflow_tries_the_version_of_the_metadata_and_calls_the_others_experimental() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert {entry["python"] for entry in matrix if not entry["experimental"]} == {"3.11"}
    assert len(matrix) == 3
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    assert {word for step in steps for word in re.findall(r"^make ([a-z-]+)", step)} <= targets
