"""The doors: a name, module:name, an object, an installed package; and what is said where one of them does not open."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from eris import Federation, Method, MethodOptions
from eris.aggregate import Median, WeightedMean
from eris.aggregate.choose import RULES, rule_by_name
from eris.cli import _register, app
from eris.cli.list import KINDS, registry_of
from eris.compose import check_settings
from eris.config import load_config
from eris.data.partition import PARTITIONS, Undivided, partition
from eris.errors import ConfigError, DataError
from eris.methods import METHODS, commented_options, method_by_name, with_defaults
from eris.registry import Registry
from eris.report import write_report
from eris.seeds import public_root
from eris.step.choose import optimizer_by_name
from eris.step.schedule import schedule_by_name
from eris.transforms import rand_k
from eris.transforms.named import COMPRESSORS, compressor_by_name

MINE = '''
"""A package of somebody else's."""
from dataclasses import dataclass
from typing import Literal
import eris
from eris.aggregate import WeightedMean
from eris.transforms import half
from eris.transforms.half import fp16

class Strength(eris.MethodOptions):
    strength: float = 1.0

METHOD = eris.Method("mine", "a method of somebody else's", options=Strength)

def small(mode: Literal["plain", "loud"] = "plain", text: str = ""):
    """Sixteen bits, with a text."""
    return fp16()

class Mean(WeightedMean):
    """The mean, by another name."""
    name = "my_mean"

@dataclass(frozen=True)
class Double:
    """Step twice as far."""
    lr: float = 1.0
    name = "double"
    def init(self, n): return {}
    def apply(self, model, direction, state): model -= 2 * direction

def halves(whole, *, first: int = 1):
    import numpy as np
    return np.array_split(np.arange(whole.count), whole.members)

def slower(factor: float = 0.5):
    return lambda round: factor ** round

NUMBER = 7
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Put modules and what a package would declare where Python finds them."""

    def put(name: str, text: str, points: dict[str, dict[str, str]] | None = None) -> Path:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, each in (points or {}).items()
            for line in [f"[{group}]", *(f"{k} = {v}" for k, v in each.items())]
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        return tmp_path

    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield put
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_path_stands_for_everything_with_a_name(package):
    package("mine", MINE)
    assert method_by_name("mine:METHOD").name == "mine"
    assert repr(compressor_by_name("mine:small", mode="loud", text="x")) == "fp16()"
    assert rule_by_name("mine:Mean").name == "my_mean"
    assert optimizer_by_name("mine:Double", lr=0.5).lr == 0.5
    assert schedule_by_name("mine:slower", factor=0.25)(2) == 0.0625
    shares = partition(10, 2, public_root(1), kind="mine:halves", options={"first": 2})
    assert sorted(np.concatenate(shares.train)) == list(range(10))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: compressor_by_name("mine:small", mode="soft"), "mode of mine:small is 'soft': give 'plain' or 'loud'"),
        (lambda: compressor_by_name("mine:small", text=3), "text of mine:small is 3: give a string"),
        (lambda: compressor_by_name("mine:NUMBER"), "mine:NUMBER is not a compressor: it cannot be called"),
        (lambda: compressor_by_name("mine:halves", first=1), "needs the parameter 'whole'"),
        (lambda: rule_by_name("mine:small"), "has no name, coordinate_wise"),
        (lambda: optimizer_by_name("mine:Mean"), "has no init, apply"),
        (lambda: method_by_name("mine:Mean"), "mine:Mean is not a method"),
        (lambda: method_by_name("mine:nothing"), "module 'mine' has no 'nothing'"),
        (lambda: method_by_name("nobody:METHOD"), "No module named 'nobody'"),
        (lambda: method_by_name("broken:METHOD"), "cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_a_path_that_leads_nowhere_is_one_sentence(package, call, says):
    package("mine", MINE)
    package("broken", "1 / 0")
    with pytest.raises(ConfigError) as told:
        call()
    assert says in str(told.value)


def test_an_installed_package_brings_names(package):
    package("mine", MINE, {"eris.methods": {"mine": "mine:METHOD"}, "eris.compressors": {"small": "mine:small"}})
    assert method_by_name("mine").summary == "a method of somebody else's"
    assert "small" in COMPRESSORS
    listed = {line.name: line for line in METHODS.listed()}
    assert listed["mine"].origin == "mine 1.0"
    assert listed["eris"].origin == "built in"
    with pytest.raises(ConfigError, match="did you mean small"):
        compressor_by_name("smal")


def test_a_package_that_raises_is_a_sentence_and_only_where_it_is_used(package):
    package("broken", "1 / 0", {"eris.methods": {"wrong": "broken:METHOD"}})
    assert method_by_name("eris").name == "eris"
    with pytest.raises(ConfigError) as told:
        method_by_name("wrong")
    assert str(told.value) == (
        "method 'wrong' of broken 1.0 cannot be loaded: ZeroDivisionError: division by zero [key=method]: "
        "fix or uninstall broken 1.0"
    )
    (line,) = (line for line in METHODS.listed() if line.name == "wrong")
    assert "ZeroDivisionError" in line.problem


def test_two_packages_with_one_name_are_told_apart_by_path(package):
    package("mine", MINE, {"eris.methods": {"same": "mine:METHOD"}})
    package("other", MINE, {"eris.methods": {"same": "other:METHOD"}})
    with pytest.raises(ConfigError) as told:
        method_by_name("same")
    assert re.fullmatch(
        r"method 'same' is declared by mine 1\.0 and other 1\.0 \[key=method\]: "
        r"uninstall one of them, or name yours by its path: (mine|other):METHOD",
        str(told.value),
    )
    assert method_by_name("other:METHOD").name == "mine"


def test_a_name_of_ours_is_not_taken_over(package):
    package("mine", MINE, {"eris.methods": {"eris": "mine:METHOD"}})
    assert method_by_name("eris").summary == "every aggregator sees one shard"
    assert "hidden: built in has this name" in {line.problem for line in METHODS.listed()}


def test_an_object_of_another_kind_is_refused():
    things = Registry("rule", "eris.none", {}, refuses=lambda thing: "" if callable(thing) else "no")
    with pytest.raises(ConfigError, match="7 is not a rule: no"):
        things.find(7)
    with pytest.raises(ConfigError, match="there is another method named 'eris'"):
        METHODS.lend(Method("eris", "not ours"))


@pytest.mark.parametrize("kind", KINDS)
def test_everything_there_is_can_be_listed(kind):
    lines = registry_of(kind).listed()
    assert not [line for line in lines if line.problem]
    assert [line.name for line in lines] == list(registry_of(kind))
    assert all(line.about for line in lines), [line.name for line in lines if not line.about]


WIDE = {"COLUMNS": "300"}  # a line each


def test_the_command_says_whose_a_thing_is(package):
    package("mine", MINE, {"eris.rules": {"my_mean": "mine:Mean"}})
    if not app.registered_commands:
        _register()
    said = CliRunner().invoke(app, ["list", "rules"], env=WIDE).stdout
    assert any(re.fullmatch(r"my_mean +The mean, by another name\. \(mine 1\.0\)", line) for line in said.splitlines())
    assert re.search(r"^mean +Sum .*[^)]$", said, re.MULTILINE)  # what is built in says nothing of whose it is
    found = json.loads(CliRunner().invoke(app, ["list", "rules", "--json"]).stdout)
    assert ("my_mean", "The mean, by another name.", "mine 1.0") in {
        (line["name"], line["about"], line["origin"]) for line in found
    }
    said = CliRunner().invoke(app, ["list", "compressors", "--options"], env=WIDE).stdout
    assert "p: a number; independent = False: true or false" in said
    assert "mu = 0.01: strength μ" in CliRunner().invoke(app, ["list", "methods", "--options"], env=WIDE).stdout
    assert all(f"{kind} (" in CliRunner().invoke(app, ["list"]).stdout for kind in KINDS)
    with pytest.raises(ConfigError, match="did you mean rules"):
        CliRunner().invoke(app, ["list", "rule"], catch_exceptions=False)


class Wanted(MethodOptions):
    strength: float = 0.5
    need: int


def test_a_methods_options_are_checked_by_their_keys():
    method = Method("wanted", "for this test", options=Wanted)
    given = load_config(changes=["options.wanted.need=3"])
    assert method.settings(given) == Wanted(strength=0.5, need=3)
    assert method.completed(given).options == {"wanted": {"strength": 0.5, "need": 3}}
    for changes, says in [
        ([], "wanted needs options.wanted.need"),
        (["options.wanted.need=x"], "options.wanted.need cannot be 'x'"),
        (["options.wanted.need=1", "options.wanted.strenght=1.0"], "there is no key options.wanted.strenght"),
    ]:
        with pytest.raises(ConfigError, match=says):
            method.settings(load_config(changes=changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["options.priprune.prune=1.5"], r"options.priprune.prune cannot be 1.5 .*a number less than 1"),
        (["options.priprune.keep=1.5"], "there is no key options.priprune.keep"),
        (["options.priprun.prune=0.5"], "there is no method 'priprun'.*did you mean priprune"),
        (["options.eris.prune=0.5"], "eris takes no options"),
        (["method=shatter", "options.shatter.start=new"], "options.shatter.start cannot be 'new'"),
    ],
)
def test_wrong_options_are_refused_by_name(changes, says):
    with pytest.raises(ConfigError, match=says):
        check_settings(load_config(changes=changes))


def test_the_former_table_is_still_read():
    former = {
        "baselines": {
            "prune": 0.2, "soteria_keep": 0.3, "virtual_nodes": 3, "virtual_degree": 5, "partitions": 7,
            "ako_combine": "sum", "degree": 4, "consensus": 0.5, "levels": 7, "start": "own",
        }
    }  # fmt: skip
    config = load_config(former, changes=["options.gossip.degree=2"])
    settings = {name: METHODS[name].settings(config) for name in config.options}
    assert settings["priprune"].prune == settings["priprune-pseudo"].prune == 0.2
    assert settings["soteriafl"].keep == settings["cdp-sgd"].keep == 0.3
    assert (settings["shatter"].virtual_nodes, settings["shatter"].virtual_degree) == (3, 5)
    assert (settings["ako"].partitions, settings["ako"].combine, settings["ako"].start) == (7, "sum", "own")
    assert (settings["qdpsgd"].degree, settings["qdpsgd"].consensus, settings["qdpsgd"].levels) == (4, 0.5, 7)
    assert settings["gossip"].degree == 2  # what the new table says goes first
    with pytest.raises(ConfigError, match=r"no key baselines.prunee.*options.priprune.prune"):
        load_config(changes=["baselines.prunee=0.5"])


def test_what_is_completed_says_every_option_and_reads_back():
    config = with_defaults(load_config(changes=["method=qdpsgd"]), "qdpsgd")
    assert config.options == {"qdpsgd": {"start": "same", "degree": 0, "consensus": 0.9, "levels": 31}}
    assert with_defaults(config, "qdpsgd") == config


def test_init_shows_the_options_of_every_method():
    import tomllib

    live = "\n".join(line.removeprefix("# ") for line in commented_options().splitlines() if "=" in line or "[" in line)
    options = tomllib.loads(live)["options"]
    config = load_config({"options": options})
    check_settings(config)
    assert {
        name for name in METHODS if METHODS[name].settings(config) != METHODS[name].settings(load_config())
    } == set()
    assert "fedprox" in options


CLOUDS = {"data": "synthetic-clouds", "members": 5, "rounds": 3}


def digest(tmp_path, number, **settings):
    result = Federation(**{**CLOUDS, **settings}).run(tmp_path / str(number), report=False)
    return result.summaries[0]["model_digest"]


@pytest.fixture
def lent(monkeypatch):
    """Forget afterwards what a test gave as objects."""
    for registry in map(registry_of, ("methods", "compressors", "rules", "schedules")):
        monkeypatch.setattr(registry, "_things", dict(registry._things))


@pytest.mark.usefixtures("lent")
def test_objects_in_python_do_what_names_do(tmp_path):
    own = Method("of-my-own", "eris by another name")
    plain = digest(tmp_path, 0, method="eris")
    assert digest(tmp_path, 1, method=own) == plain
    assert digest(tmp_path, 2, method=["fedavg", own]) == plain
    compressed = {"method": "eris+dsc", "compression": {"keep": 0.5}}
    named = digest(tmp_path, 3, **compressed)
    assert digest(tmp_path, 4, method="eris+dsc", compression={"compressor": rand_k(0.5)}) == named
    assert digest(tmp_path, 5, method="eris+dsc", compression={"compressor": rand_k, "keep": 0.5}) == named
    median = digest(tmp_path, 6, server={"rule": "median"})
    assert digest(tmp_path, 7, server={"rule": Median()}) == median != plain
    assert digest(tmp_path, 8, server={"rule": Median}) == median
    assert digest(tmp_path, 9, server={"schedule": lambda round: 1.0}) == plain
    assert "of-my-own" in METHODS


def test_a_run_with_a_path_is_written_down_and_gone_on_with(package, tmp_path):
    package("mine", MINE)
    given = {**CLOUDS, "method": "mine:METHOD", "server": {"rule": "mine:Mean"}, "workers": 2}
    federation = Federation(**given, changes=["options.mine.strength=2.0"])
    result = federation.run(tmp_path / "run", report=False)
    assert result["mine"]["model_digest"] == digest(tmp_path, 1, method="eris")
    assert load_config(tmp_path / "run" / "config.toml").options == {"mine": {"strength": 2.0}}
    again = federation.resume(tmp_path / "run", report=False)["mine"]
    assert again["model_digest"] == result["mine"]["model_digest"]


SECTION = """
def words(results, methods):
    return f"<b>{len(methods)} method"
"""


def test_a_section_of_ones_own_is_on_the_page_and_escaped(package, tmp_path):
    package("pages", SECTION)
    folder = Federation(**CLOUDS).run(tmp_path / "run", report=False).path
    page = write_report(folder, ["pages:words"]).read_text()
    assert "<section>&lt;b&gt;1 method</section>" in page
    with pytest.raises(ConfigError, match="there is no report section 'plotz': did you mean plots"):
        write_report(folder, ["plotz"])


def divided_wrongly(whole: Undivided) -> list[np.ndarray]:
    return [np.arange(whole.count)] * whole.members


def too_few(whole: Undivided) -> list[np.ndarray]:
    return [np.arange(whole.count)]


@pytest.mark.parametrize(
    ("divide", "says"), [(divided_wrongly, "to two members"), (too_few, "made 1 parts for 3 members")]
)
def test_a_partition_of_ones_own_must_divide(divide, says, monkeypatch):
    monkeypatch.setitem(PARTITIONS, "wrong", divide)
    with pytest.raises(DataError, match=says):
        partition(12, 3, public_root(1), kind="wrong")


def test_rules_are_still_a_mapping():
    assert RULES["mean"] is WeightedMean
    assert len(RULES) == len(list(RULES))
