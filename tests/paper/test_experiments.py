"""The experiments are those of the paper: how many cells, with which settings."""

from __future__ import annotations

import math

import pytest

from eris.config import load_config
from eris.paper.catalogue import experiment_by_name, experiments_by_name
from eris.paper.cell import figures_of
from eris.paper.estimate import estimated_seconds, machine_factor
from eris.paper.experiment import SIZES
from eris.paper.printed_tables import printed_tables
from eris.paper.result import gather
from eris.paper.run import CellStore

NAMES = [
    "table-utility-privacy",
    "figure-unbiased",
    "table-mnist-few",
    "table-mnist-many",
    "table-cifar10-few",
    "table-cifar10-many",
    "table-imdb-few",
    "table-imdb-many",
    "table-cnn",
    "table-noniid",
    "figure-noniid",
    "table-biased",
    "figure-biased",
    "table-cifar-large",
    "table-pareto",
    "figure-pareto",
    "figure-pareto-shatter",
    "figure-aggregators-compression",
    "figure-collusion",
    "figure-compression-utility",
    "figure-dropout",
    "figure-links",
    "figure-gaussian",
    "figure-reconstruction",
    "table-defences",
    "table-communication",
    "table-communication-text",
    "table-communication-images",
    "figure-distribution-time",
    "figure-rate",
    "table-rates",
]

# rows × points × folds at the paper's size
COUNTS = {
    "table-utility-privacy": 10 * 5 * (6 + 6 + 6 + 4),
    "figure-unbiased": 13 * 5 * (6 + 6 + 6 + 4),
    "table-mnist-few": 13 * 3 * 5,
    "table-mnist-many": 13 * 3 * 5,
    "table-cifar10-few": 13 * 3 * 5,
    "table-cifar10-many": 13 * 3 * 5,
    "table-imdb-few": 13 * 3 * 5,
    "table-imdb-many": 13 * 3 * 5,
    "table-cnn": 13 * 4 * 5,
    "table-noniid": 9 * 5 * (5 + 5 + 4),
    "figure-noniid": 6 * 5 * (5 + 5 + 4),
    "table-biased": 11 * 6 * 5 * 3,
    "figure-biased": 11 * 6 * 5 * 3,
    "table-cifar-large": 5 * 4 * 5,
    "table-pareto": 28 * 3 * 5,
    "figure-pareto": 28 * 3 * 5,
    "figure-pareto-shatter": 29 * 5,
    "figure-aggregators-compression": 5 * 5 + 5 + 5 * 5,
    "figure-collusion": 7 * 5,
    "figure-compression-utility": 6 * 10 * 5,
    "figure-dropout": 2 * 19 * 5,
    "figure-links": 2 * 19 * 5,
    "figure-gaussian": 3,
    "figure-reconstruction": 3 * 3 * 3 * 7,
    "table-defences": 27 * 2,
    "table-communication": 8 * 2,
    "table-communication-text": 11 * 2,
    "table-communication-images": 11 * 2,
    "figure-distribution-time": 7,
    "figure-rate": 7,
    "table-rates": 6,
}


def test_every_table_and_figure_has_a_name():
    assert set(experiments_by_name()) == set(NAMES) == set(COUNTS)


@pytest.mark.parametrize("name", NAMES)
def test_cells_at_the_papers_size(name):
    assert len(experiment_by_name(name).cells("paper")) == COUNTS[name]


@pytest.mark.parametrize("size", SIZES)
def test_settings_of_every_cell_are_settings(size):
    different = {cell.key: cell for each in experiments_by_name().values() for cell in each.cells(size)}
    kept = {cell.settings for cell in different.values() if cell.kind != "planned"}
    for settings in kept:
        load_config(changes=settings)


def cells_of(name, panel, size="paper"):
    found = [cell for cell in experiment_by_name(name).cells(size) if cell.panel == panel]
    return [(cell, load_config(changes=cell.settings)) for cell in found]


def test_images_with_one_step():
    rounds = {"MNIST": (120, 140, 200, 250, 250, 250), "CIFAR-10": (80, 140, 140, 140, 140, 140)}
    factor, models = {"MNIST": 4, "CIFAR-10": 24}, {"MNIST": "lenet5", "CIFAR-10": "resnet9"}
    for panel, by_n in rounds.items():
        for cell, config in cells_of("figure-unbiased", panel):
            n = int(cell.point)
            assert (config.members, config.aggregators, config.data.samples) == (50, 50, 2 * n)
            assert config.rounds == by_n[(4, 8, 16, 32, 64, 128).index(n)]
            local = config.local
            assert (local.batch, local.epochs, local.steps, local.lr, local.momentum) == ("full", 1, 0, 0.01, 0.9)
            assert local.keep_state
            assert (config.data.validation, config.model.name) == (0.3, models[panel])
            assert config.privacy.accounting == "per-round"
            if cell.arm == "ERIS+DSC":
                assert config.compression.keep == pytest.approx(
                    1 / (factor[panel] * math.log2(config.rounds)), rel=1e-4
                )
            if cell.arm == "ERIS+DSC, ω = 19":
                assert config.compression.keep == 0.05


def test_rows_of_the_tables_by_samples():
    arms = {cell.arm: config for cell, config in cells_of("table-mnist-few", "MNIST")}
    assert len(arms) == 13
    assert {arms[f"LDP, ε = {each}"].privacy.epsilon for each in (1, 10)} == {1, 10}
    assert (arms["LDP, ε = 1"].method, arms["LDP, ε = 1"].privacy.clip) == ("fedavg-dpsgd", 1)
    assert arms["SoteriaFL, ε = 1"].privacy.unit == "sample"
    assert {arms[f"PriPrune, p = {p}"].options["priprune"]["prune"] for p in ("0.01", "0.05", "0.1")} == {
        0.01,
        0.05,
        0.1,
    }
    assert arms["Shatter"].options["shatter"]["virtual_degree"] == 4
    text = {cell.arm for cell, _ in cells_of("table-imdb-few", "IMDB")}
    assert {"LDP, ε = 10", "LDP, ε = 100", "PriPrune, p = 0.1", "PriPrune, p = 0.2", "PriPrune, p = 0.3"} <= text


def test_texts():
    for cell, config in cells_of("figure-unbiased", "IMDB"):
        assert config.members == config.aggregators == 25
        assert config.rounds == (22, 20, 18, 18, 14, 14)[(4, 8, 16, 32, 64, 128).index(int(cell.point))]
        assert (config.local.optimizer, config.local.lr) == ("adam", 5e-5)
    for cell, config in cells_of("table-cnn", "CNN/DailyMail"):
        assert (config.members, config.data.samples, config.local.epochs, config.local.batch) == (10, cell.point, 2, 8)
        assert 2 <= config.rounds <= 4


def test_label_skew_and_several_steps():
    skewed = {panel: cells_of("table-noniid", panel)[0][1] for panel in ("MNIST", "CIFAR-10", "IMDB")}
    assert [(c.members, c.data.partition, c.data.alpha) for c in skewed.values()] == [
        (25, "dirichlet", 0.2), (25, "dirichlet", 0.2), (10, "dirichlet", 0.5),
    ]  # fmt: skip
    biased = {panel: cells_of("table-biased", panel) for panel in ("MNIST", "CIFAR-10", "IMDB")}
    assert [c[0][1].local.batch for c in biased.values()] == [64, 64, 16]
    assert {c.local.epochs for found in biased.values() for _, c in found} == {2}
    assert sorted({(int(cell.point), c.rounds) for cell, c in biased["CIFAR-10"]}) == [
        (4, 60), (8, 80), (16, 100), (32, 140), (64, 100), (128, 100),
    ]  # fmt: skip
    dsc = [(c.rounds, c.compression.keep) for cell, c in biased["IMDB"] if cell.arm == "ERIS+DSC"]
    assert all(keep == pytest.approx(1 / math.log2(rounds), rel=1e-4) for rounds, keep in dsc)
    large = cells_of("table-cifar-large", "CIFAR-10")
    assert sorted({int(cell.point) for cell, _ in large}) == [64, 128, 256, 415]


def test_fronts():
    cells = cells_of("figure-pareto-shatter", "CIFAR-10")
    noise = {(c.privacy.noise_multiplier, c.privacy.clip) for _, c in cells if c.privacy.noise_multiplier}
    assert noise == {(0.001, 10), (0.01, 5), (0.1, 2), (0.3, 1), (0.6, 1), (1, 1)}
    pruned = {c.options["priprune"]["prune"] for _, c in cells if c.method == "priprune"}
    assert pruned == {0.0005, 0.001, 0.005, 0.01, 0.03, 0.05}
    assert {c.data.samples for _, c in cells} == {32}
    assert sum(c.method == "shatter" for _, c in cells) == 5


def test_sweeps_and_failures():
    assert sorted({c.aggregators for _, c in cells_of("figure-aggregators-compression", "aggregators A")}) == [
        10, 20, 30, 40, 50,
    ]  # fmt: skip
    faults = [config.faults for _, config in cells_of("figure-dropout", "MNIST")]
    assert max(each.aggregator_dropout for each in faults) == 0.9
    assert {c.rounds for _, c in cells_of("figure-links", "MNIST")} == {200}
    assert {c.server.normalisation for _, c in cells_of("figure-links", "MNIST")} == {"none", "contributors"}


def test_defences_are_the_27_rows():
    arms = [arm for panel in experiment_by_name("table-defences").sizes["paper"] for arm in panel.arms]
    assert len(arms) == 54
    assert {arm.row or arm.label for arm in arms} == set(printed_tables()["tables"]["defences"])


def test_shares_of_the_update():
    panels = [
        panel for panel in experiment_by_name("figure-reconstruction").sizes["paper"] if panel.label == "MNIST, idlg"
    ]
    shares = [point.value for panel in panels for point in panel.points]
    assert shares == [100, 90, 50, 25, 12.5, 6.25, 3.125]
    printed = printed_tables()["tables"]["figure-reconstruction"]["MNIST idlg"]
    assert {f"{share:g} %|lpips" for share in shares if share != 90} < set(printed)


def test_stand_ins_are_named():
    for experiment in experiments_by_name().values():
        for panel in experiment.sizes["small"]:
            names = " ".join(panel.base)
            if "minilm" in names or "smollm2" in names or "scrapshots" in names or "mnist-sample" in names:
                assert panel.stand_in, (experiment.name, panel.label)


def test_small_fits_into_five_hours_on_two_cores():
    cells = {cell.key: cell for each in experiments_by_name().values() for cell in each.cells("small")}
    factor = machine_factor()
    assert estimated_seconds(list(cells.values())) / factor < 2 * 5 * 3600
    assert max(estimated_seconds([cell]) / factor for cell in cells.values()) < 20 * 60


def test_rows_find_what_is_printed(tmp_path):
    """Without any cell a table still has its printed column, and says that nothing was run."""
    printed = {"table-utility-privacy": 2 * 40, "table-mnist-few": 78, "table-pareto": 168, "table-defences": 27 * 2,
               "table-communication-images": 4 * 22, "table-noniid": 54, "table-biased": 66, "table-cifar-large": 40,
               "figure-dropout": 38, "figure-aggregators-compression": 11, "figure-compression-utility": 60,
    }  # fmt: skip
    for name, count in printed.items():
        result = gather(experiment_by_name(name), "paper", CellStore(tmp_path))
        assert all(row.missing for row in result.rows)
        found = [figure for row in result.rows for figure in row.figures.values() if figure.printed is not None]
        assert len(found) == count, name


def test_an_aggregator_that_is_gone_is_gone_in_both_ways_to_count(tmp_path):
    """So size small has one of them; links differ."""
    digests = {}
    for name in ("figure-dropout", "figure-links"):
        found = [cell for cell in experiment_by_name(name).cells("smoke") if cell.point == 50]
        digests[name] = {
            figures_of(cell.kind, cell.settings, cell.options, tmp_path / cell.key)["digest"] for cell in found
        }
    assert (len(digests["figure-dropout"]), len(digests["figure-links"])) == (1, 2)
