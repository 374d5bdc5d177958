import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from eris.errors import InputError, MissingExtra
from eris.report import write_report

from .conftest import verdict, write_method

SAME = (  # under the same name in summary.json and in the page
    "final_accuracy", "best_accuracy", "best_round", "distribution_seconds", "seconds", "rounds", "seed", "members",
    "aggregators", "peak_memory_bytes", "model_digest",
)  # fmt: skip
VOID = {"br", "hr", "img", "link", "meta"}


class Page(HTMLParser):
    """Reads a page strictly: every tag that opens must close in its turn."""

    def __init__(self, path: Path):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[tuple[str, str]] = []  # enclosing tag, text
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.attributes.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.attributes.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))

    def inside(self, tag: str) -> str:
        return " ".join(data for where, data in self.text if where == tag)

    @property
    def words(self) -> str:
        return " ".join(" ".join(data for where, data in self.text if where not in ("script", "style")).split())

    @property
    def figures(self) -> dict:
        return json.loads(self.inside("script"))


def page_of(directory: Path) -> Page:
    return Page(write_report(directory))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of three methods, with its report; for tests that only read."""
    directory = tmp_path_factory.mktemp("finished")
    for method in ("fedavg", "eris", "eris+dsc"):
        write_method(directory / method, method)
    write_report(directory)
    return directory


@pytest.fixture(scope="module")
def page(finished: Path) -> Page:
    return Page(finished / "report.html")


def test_every_figure_of_the_summary_is_in_the_page(finished: Path, page: Page) -> None:
    embedded = {method["name"]: method for method in page.figures["methods"]}
    assert list(embedded) == ["fedavg", "eris", "eris+dsc"]
    for name, figures in embedded.items():
        summary = json.loads((finished / name / "summary.json").read_text())
        for key in SAME:
            assert figures[key] == summary[key], key
        assert figures["upload"] == summary["bytes"]["up_per_member_round"]
        assert figures["download"] == summary["bytes"]["down_per_member_round"]
        assert figures["largest_share"] == summary["exposure"]["largest_share_per_round"]
        assert figures["union_share"] == summary["exposure"]["union_over_rounds"]


def test_curves_are_the_lines_of_the_metrics(finished: Path, page: Page) -> None:
    for figures in page.figures["methods"]:
        lines = [json.loads(line) for line in (finished / figures["name"] / "metrics.jsonl").read_text().splitlines()]
        curve = figures["curve"]
        assert curve["round"] == [line["round"] for line in lines]
        assert curve["accuracy"] == [line["accuracy"] for line in lines]
        assert curve["loss"] == [line["loss"] for line in lines]
        assert curve["uploaded"][-1] == pytest.approx(sum(line["bytes_up"]["member"] for line in lines))
        assert figures["stage_seconds"]["train"] == pytest.approx(sum(line["seconds"]["train"] for line in lines))
        hub = "server" if figures["name"] == "fedavg" else "aggregator"
        assert figures["bytes_per_role"]["down"][hub] == pytest.approx(lines[0]["bytes_down"][hub])
        assert figures["per_class"] == lines[-1]["per_class"]


def test_the_table_shows_the_embedded_figures(run: Path) -> None:
    write_method(run / "eris+dsc", "eris+dsc", final_accuracy=0.8764, distribution_seconds=0.0123)
    page = page_of(run)
    cells = page.inside("td")
    for shown in ("87.6 %", "12.3 ms", "7.21 kB", "0.32 %", "100 %"):
        assert shown in cells


def test_nothing_is_fetched_and_nothing_runs(page: Page) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page.source)
    for tag, attributes in page.attributes:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form"}
        assert not [name for name in attributes if name.startswith("on")]
        assert tag != "script" or attributes["type"] == "application/json"
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")


def test_references_inside_the_plots_lead_to_exactly_one_target(page: Page) -> None:
    ids = Counter(attributes["id"] for _, attributes in page.attributes if "id" in attributes)
    assert [name for name, times in ids.items() if times > 1] == []
    wanted = {(a.get("xlink:href") or "")[1:] for tag, a in page.attributes if tag == "use"}
    wanted |= set(re.findall(r"url\(#([^)]*)\)", page.source))
    assert wanted <= set(ids)


def test_plots_have_words_and_tables_have_headers(page: Page) -> None:
    plots = [attributes for tag, attributes in page.attributes if tag == "svg" and attributes.get("role") == "img"]
    assert len(plots) == 7
    assert all(len(plot["aria-label"] or "") > 40 for plot in plots)
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.attributes if tag == "th")
    assert ("html", {"lang": "en"}) in page.attributes


def test_plots_carry_names_of_colours_only(page: Page) -> None:
    plots = re.findall(r'<svg role="img".*?</svg>', page.source, flags=re.DOTALL)
    assert plots
    for plot in plots:
        assert set(re.findall(r"(?:fill|stroke): (#\w+)", plot)) == set()


def test_the_same_run_gives_the_same_page(run: Path) -> None:
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first
    assert not list(run.glob("*.part"))


EVIL = "</script><script>alert(1)</script><b onclick='x'>&$\\frac{\"`"


def test_no_string_of_a_run_can_become_markup(tmp_path: Path) -> None:
    quoted = json.dumps(EVIL)
    for name in ("one", "two"):
        write_method(
            tmp_path / name, EVIL + name, notes=[EVIL], versions={EVIL: EVIL}, model_digest=EVIL,
            bytes={"up_per_member_round": EVIL},
        )  # fmt: skip
        (tmp_path / name / "config.toml").write_text(f"evil = {quoted}\nmodel = {quoted}\ndata = {quoted}\n")
        metrics = tmp_path / name / "metrics.jsonl"
        metrics.write_text(metrics.read_text().replace('"train"', quoted).replace('"aggregator"', quoted))
        (tmp_path / name / "verdicts.jsonl").write_text(
            verdict(1, lost=(2,)).replace("the aggregator left", quoted[1:-1])
        )
    page = page_of(tmp_path)
    tags = Counter(tag for tag, _ in page.attributes)
    assert tags["script"] == 1
    assert tags["b"] == 0
    assert not [name for _, attributes in page.attributes for name in attributes if name.startswith("on")]
    assert EVIL in page.words
    assert page.figures["methods"][0]["name"] == EVIL + "one"


def test_one_method_in_its_own_folder(tmp_path: Path) -> None:
    write_method(tmp_path, "eris")
    page = page_of(tmp_path)
    assert "ERIS reached 96.4 % accuracy in 30 rounds with 10 members" in page.inside("h1")
    assert (tmp_path / "report.html").is_file()


def test_an_unfinished_run_says_so_and_shows_what_there_is(tmp_path: Path) -> None:
    write_method(tmp_path / "fedavg", "fedavg")
    write_method(tmp_path / "eris", "eris", done=7)
    with (tmp_path / "eris" / "metrics.jsonl").open("a") as file:
        file.write('{"round": 8, "accur')  # the run was stopped in the middle of a line
    page = page_of(tmp_path)
    assert page.inside("h1").startswith("This run is not finished")
    assert "ERIS finished 7 of 30 rounds" in page.inside("h1")
    assert "bit for bit" not in page.inside("h1")
    assert "unreadable line" in page.words
    assert page.figures["methods"][1]["finished"] is False


def test_a_loss_that_rose_is_not_overlooked(tmp_path: Path) -> None:
    write_method(tmp_path, "eris", rounds=2)
    (tmp_path / "metrics.jsonl").write_text('{"round": 0, "loss": 2.25}\n{"round": 1, "loss": 6.8}\n')
    assert "ERIS did not converge: its loss rose from 2.25 to 6.8." in page_of(tmp_path).words


def test_a_run_without_a_single_round(tmp_path: Path) -> None:
    write_method(tmp_path, "eris", done=0)
    page = page_of(tmp_path)
    assert "No round has finished yet." in page.words


@pytest.mark.parametrize("missing", ["config.toml", "metrics.jsonl", "summary.json"])
def test_any_one_file_may_be_missing(tmp_path: Path, missing: str) -> None:
    write_method(tmp_path / "eris", "eris", rounds=2)
    (tmp_path / "eris" / missing).unlink()
    assert "ERIS" in page_of(tmp_path).inside("th")


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "null", "\x00\xff", '{"method": ["a"], "bytes": 3, "notes": "x", "versions": []}']
)
def test_damaged_files_are_named_and_do_not_stop_the_report(tmp_path: Path, damage: str) -> None:
    write_method(tmp_path / "eris", "eris", rounds=2)
    for name in ("summary.json", "exposure.json", "config.toml", "verdicts.jsonl"):
        (tmp_path / "eris" / name).write_text(damage, encoding="latin-1")
    words = page_of(tmp_path).words
    assert "ERIS" in words
    assert not damage or "config.toml " in words


def test_not_a_number_stays_out_of_the_page(run: Path) -> None:
    metrics = run / "eris" / "metrics.jsonl"
    metrics.write_text(re.sub(r'"loss": [\d.]+', '"loss": NaN', metrics.read_text()))
    page = page_of(run)
    assert set(page.figures["methods"][1]["curve"]["loss"]) == {None}


def test_one_round_is_not_in_the_plural(tmp_path: Path) -> None:
    write_method(tmp_path, "eris", rounds=1)
    (tmp_path / "verdicts.jsonl").write_text(verdict(1, lost=(3,)))
    page = page_of(tmp_path)
    assert "10 members · 1 round · seed 0" in page.words
    assert "1 shard lost, 0 committed without some members, in 1 round." in page.words
    assert not re.search(r"(?<!= )\b1 (rounds|shards|members)\b", page.words)


def test_lost_shards_are_shown_with_their_reasons(tmp_path: Path) -> None:
    write_method(tmp_path, "eris")
    lines = [verdict(1), verdict(2, lost=(3, 4)), verdict(3, absent=5)]
    (tmp_path / "verdicts.jsonl").write_text("".join(lines))
    page = page_of(tmp_path)
    faults = page.figures["methods"][0]["faults"]
    assert [(entry["round"], entry["shard"]) for entry in faults["lost"]] == [(2, 3), (2, 4)]
    assert faults["incomplete"] == [[3, 0, 1]]
    assert "2 shards lost, 1 committed without some members, in 3 rounds." in page.words
    assert "the aggregator left" in page.inside("td")


def test_without_losses_there_is_no_section_on_faults(tmp_path: Path) -> None:
    write_method(tmp_path, "eris")
    (tmp_path / "verdicts.jsonl").write_text(verdict(1) + verdict(2))
    assert "Faults" not in page_of(tmp_path).inside("h2")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="eris run --out"):
        write_report(tmp_path)


def test_without_matplotlib_the_error_names_the_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"eris-fl\[report\]"):
        write_report(run)
    assert not (run / "report.html").exists()
