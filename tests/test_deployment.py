"""What deploy/ offers: eris understands every command line in it, and other programs understand the rest."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer import Typer
from typer.main import get_group

from eris.cli import coordinator, join
from eris.cli.exit_code import ExitCode
from eris.coordinate.gauges import CoordinatorGauges
from eris.peer.gauges import PeerGauges

ROOT = Path(__file__).parents[1]
DOCS, DEPLOY = ROOT / "docs", ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (DEPLOY / "compose" / "Dockerfile").read_text(encoding="utf-8")
BUILD = re.findall(r"docker build .+", DOCKERFILE)[0]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = sorted(name for name, entry in COMPOSE["services"].items() if entry["image"] == "eris")
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
RULES = {rule["alert"]: rule for group in ALERTS["groups"] for rule in group["rules"]}
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "eris.json").read_text(encoding="utf-8"))
MANIFESTS = {
    (path.name, document["kind"], document["metadata"]["name"]): document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
}
JOBS = {name: document for (name, kind, _), document in MANIFESTS.items() if kind == "Job"}
WORTH_ANOTHER_TRY = {ExitCode.FAILED, ExitCode.UNREACHABLE, ExitCode.STOPPED, ExitCode.INTERRUPTED}
OF_OTHER_VERBS = {ExitCode.MODELS_DIFFER, ExitCode.PEER_FAILED, ExitCode.UNHEALTHY, ExitCode.NO_PLAN}
OF_PEERS = {ExitCode.BELOW_FLOOR, ExitCode.TASK_FAILED, ExitCode.NO_DATA}
units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(re.sub(r"\\\n\s*", "", unit.read_text(encoding="utf-8")))
    return parser["Service"]


def understood(words: list[str]) -> dict[str, object]:
    """Return what a command line means to eris, without running it; a wrong option is an error."""
    app = Typer()
    for verb in (coordinator, join):
        verb.register(app)
    with get_group(app).commands[words[0]].make_context(words[0], words[1:]) as context:
        return dict(context.params)


@units
def test_the_command_of_a_unit_is_one_that_eris_understands(unit: Path) -> None:
    program, *words = shlex.split(service(unit)["ExecStart"])
    assert Path(program).name == "eris"
    assert understood(words)["log_json"]


@units
def test_a_unit_restarts_what_a_restart_can_help(unit: Path) -> None:
    prevented = {ExitCode(int(code)) for code in service(unit)["RestartPreventExitStatus"].split()}
    wanted = set(ExitCode) - WORTH_ANOTHER_TRY - OF_OTHER_VERBS - {ExitCode.FINISHED}
    assert prevented == (wanted if "peer" in unit.name else wanted - OF_PEERS)
    assert service(unit)["Restart"] == "on-failure"


@units
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text(encoding="utf-8").replace("/opt/eris/bin/eris", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, unit.name.partition(".")[0] in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("name", OURS)
def test_the_command_of_a_service_is_one_that_eris_understands(name: str) -> None:
    entry = COMPOSE["services"][name]
    params = understood(shlex.split(entry["command"]))
    inside = {volume.split(":")[1] for volume in entry["volumes"]}
    kept = params["state"] if name == "coordinator" else params["out"]
    assert {str(params["file"]), str(params["credentials"]), str(kept)} == inside
    port = str(params["listen"]).removeprefix(":")
    assert entry["ports"] == [f"{port}:{port}"]
    assert entry["restart"].startswith("on-failure")


@pytest.mark.parametrize("name", OURS)
def test_a_service_can_write_what_it_must_keep(name: str) -> None:
    entry = COMPOSE["services"][name]
    assert f"--tag {entry['image']} ." in BUILD
    writable = [volume.split(":") for volume in entry["volumes"] if not volume.endswith(":ro")]
    (kept,) = [(volume, inside) for volume, inside in writable if not volume.startswith(".")]
    assert kept[0] in COMPOSE["volumes"]
    made = DOCKERFILE.index(f"install --directory --owner eris --group eris --mode 700 {kept[1]}")
    assert made < DOCKERFILE.index("USER eris")  # a new volume belongs to whom the image's folder belongs to
    credentials = understood(shlex.split(entry["command"]))["credentials"]
    assert name == "coordinator" or [f"./{name}", str(credentials)] in writable


def test_the_image_installs_this_checkout_with_extras_that_it_offers() -> None:
    assert 'ENTRYPOINT ["eris"]' in DOCKERFILE
    place, extras = re.search(r"'(/\w+)\[([\w,]+)\]'", DOCKERFILE).groups()  # type: ignore[union-attr]
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    copied = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    sources = {source for *sources, _ in copied for source in sources}
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= sources
    assert all((ROOT / source).exists() for source in sources)
    assert all(target.startswith(place) for *_, target in copied)


def test_the_user_of_the_image_has_the_number_that_the_build_is_given() -> None:
    argument = re.search(r"--build-arg (\w+)=\$\(id -u\)", BUILD)
    assert argument
    assert f"ARG {argument[1]}=" in DOCKERFILE
    assert f"useradd --create-home --uid ${{{argument[1]}}} eris" in DOCKERFILE
    assert BUILD in (DOCS / "operate.md").read_text(encoding="utf-8")


def known_metrics() -> set[str]:
    control = SimpleNamespace(received=0, sent=0)
    overview = SimpleNamespace(round=0, epoch=0, peers=[], lost={}, control=control, state="training", expires=2e9)
    node: Any = SimpleNamespace(federation=SimpleNamespace(name="cardio"), overview=lambda: overview)
    served = [PeerGauges("cardio", "amber", 0), CoordinatorGauges(node, 0)]
    try:
        return {sample.name for gauges in served for metric in gauges._registry.collect() for sample in metric.samples}
    finally:
        for gauges in served:
            gauges.close()


def test_alerts_and_dashboard_are_about_metrics_that_there_are() -> None:
    asked = [rule["expr"] for rule in RULES.values()]
    asked += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked += [variable["definition"] for variable in DASHBOARD["templating"]["list"]]
    assert set(re.findall(r"eris_\w+", " ".join(asked))) <= known_metrics()
    assert "or absent(eris_coordinator_rounds)" in RULES["ErisStandsStill"]["expr"]  # else nobody hears that it is gone


def test_every_metric_and_every_alert_is_explained_and_no_other() -> None:
    page = (DOCS / "monitor.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(eris_\w+)` \|", page, re.MULTILINE))
    created = {name for name in known_metrics() if not name.endswith("_created")}
    assert explained == {re.sub(r"^(eris_round_seconds)_\w+$", r"\1", name) for name in created}
    assert set(re.findall(r"^\| `(Eris\w+)` \|", page, re.MULTILINE)) == set(RULES)


def test_every_panel_says_what_it_shows_and_has_a_place_of_its_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["description"].endswith((".", "%."))
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"prometheus"}
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
@pytest.mark.parametrize(
    "words", ["check config prometheus.yaml", "check rules alerts.yaml", "test rules tests.yaml"], ids=str
)
def test_prometheus_understands_its_files_and_alerts_fire_when_they_should(words: str) -> None:
    done = subprocess.run(
        ["promtool", *words.split()], cwd=DEPLOY / "prometheus", capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_both_ways() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "tests.yaml").read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    for fires in (True, False):
        assert {case["alertname"] for case in cases if bool(case["exp_alerts"]) == fires} == set(RULES)


@pytest.mark.parametrize(
    ("schema", "file"),
    [("vendor.compose-spec", "deploy/compose/compose.yaml"), ("vendor.github-workflows", ".github/workflows/ci.yml")],
)
def test_a_file_follows_its_schema(schema: str, file: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(ROOT / file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_mounts_what_is_there() -> None:
    for entry in COMPOSE["services"].values():
        for volume in entry["volumes"]:
            source = volume.split(":")[0]
            if source.startswith(".."):
                assert (DEPLOY / "compose" / source).exists(), source
    targets = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    asked = {target for job in targets for config in job["static_configs"] for target in config["targets"]}
    served = {f"{name}{understood(shlex.split(COMPOSE['services'][name]['command']))['metrics']}" for name in OURS}
    assert asked == served | {"node-exporter:9100"}


@pytest.mark.parametrize("document", MANIFESTS.values(), ids=map(" ".join, MANIFESTS))
def test_a_manifest_follows_the_schema_of_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_job_runs_a_command_that_eris_understands_and_repeats_what_that_can_help(name: str) -> None:
    pod = JOBS[name]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    params = understood(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f":{ports['metrics']}" == params["metrics"]
    assert f":{ports['control' if 'control' in ports else 'shards']}" == params["listen"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    for path in (params["file"], params["credentials"], params.get("state") or params["out"]):
        assert {str(each) for each in (path, *path.parents)} & mounted, path  # type: ignore[attr-defined]
    (unit,) = [unit for unit in UNITS if name.removesuffix(".yaml") in unit.name]
    rules = {rule["action"]: rule for rule in JOBS[name]["spec"]["podFailurePolicy"]["rules"]}
    prevented = rules["FailJob"]["onExitCodes"]["values"]
    assert list(map(str, prevented)) == service(unit)["RestartPreventExitStatus"].split()
    selectors = [
        each["spec"]["selector"] for (file, kind, _), each in MANIFESTS.items() if (file, kind) == (name, "Service")
    ]
    assert all(selector == JOBS[name]["spec"]["template"]["metadata"]["labels"] for selector in selectors)


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_key_from_a_secret_is_for_its_owner_alone(name: str, tmp_path: Path) -> None:
    (first,) = JOBS[name]["spec"]["template"]["spec"]["initContainers"]
    secret, state = tmp_path / "secret", tmp_path / "state"
    secret.mkdir()
    state.mkdir()
    for file in ("key.pem", "certificate.pem", "ca.pem", "revoked.pem"):
        (secret / file).write_text("of the secret", encoding="utf-8")
        (secret / file).chmod(0o440)
    script = first["command"][2].replace("/secret", str(secret)).replace("/state", str(state))
    subprocess.run(["sh", "-c", script], check=True, timeout=60)
    key, revoked = state / "credentials" / "key.pem", state / "credentials" / "revoked.pem"
    assert key.stat().st_mode & 0o077 == 0
    revoked.chmod(0o600)
    revoked.write_text("newer", encoding="utf-8")
    subprocess.run(["sh", "-c", script], check=True, timeout=60)  # another pod, the same volume
    assert revoked.read_text(encoding="utf-8") == ("of the secret" if name == "coordinator.yaml" else "newer")
