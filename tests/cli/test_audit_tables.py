"""The tables of `eris audit` at eighty columns: no name and no figure is cut, whatever the longest names are."""

from __future__ import annotations

import io
from itertools import product

import pytest
from rich.console import Console

from eris.audit.attacks.by_name import ATTACKS
from eris.audit.malicious import DEFENCES_AGAINST_LIES
from eris.audit.membership_sweep import SWEEPS
from eris.audit.poisoning import PoisoningPlan
from eris.audit.reconstruction.attack import RECONSTRUCTION_ATTACKS
from eris.audit.reconstruction.defence import small_preset
from eris.audit.reconstruction.sweep import DEFENCES
from eris.audit.text.run import PLANS, TEXT_ATTACKS
from eris.cli.auditing import inference, malicious, poisoning, reconstruction, text
from eris.cli.auditing.answer import ResultsTable
from eris.cli.auditing.tables import gaussianity_table, membership_table, reconstruction_table
from eris.methods import METHODS

OBSERVERS = ("coalition:12", "aggregator", "neighbour")
MODES = ("mask-aware", "zero-filled")
WHOLE = {"value": 1.0, "low": 0.9999, "high": 1.0}


def membership(titles, title):
    auc, epsilon = {**WHOLE, "chance": 0.5, "p_value": 0.0123}, {"lower_bound": 12.34}
    figures = {"visible_share": 1.0, "figures": {"auc": auc}, "epsilon": epsilon}
    results = [{"observer": who, "attack": attack, **figures} for who, attack in product(OBSERVERS, ATTACKS)]
    names = [(name, *pair) for name in titles for pair in product(OBSERVERS, ATTACKS)]
    return membership_table([{"name": name, "results": results} for name in titles], "name", title), names


def reconstructions(defences, observers=OBSERVERS):
    rate = {"rate": 1.0}
    figures = {"share": 1.0, "mse": {"median": 1.2e-12}, "recovered": rate, "identified": rate, "seconds": 1234.5,
               "pictures": 1}  # fmt: skip
    names = list(product(defences, observers, RECONSTRUCTION_ATTACKS, MODES))
    return [dict(zip(("defence", "observer", "attack", "mode"), row, strict=True)) | figures for row in names], names


def of_methods():
    return membership(list(METHODS), "method")


def of_sweeps():
    longest = max((sweep.axis for sweep in SWEEPS.values()), key=len)
    return membership(["contiguous", "coalition"], longest)


def of_reconstruction():
    results, names = reconstructions([defence.label for defence in small_preset()])
    return reconstruction._table(results), names


def of_defences():
    results, names = reconstructions([label for label, _ in DEFENCES], ["aggregator"])
    return reconstruction_table(results), [(defence, attack, mode) for defence, _, attack, mode in names]


def of_texts():
    names = list(product(PLANS, TEXT_ATTACKS))
    cells = [
        {"aggregators": 128, "tokens": 1024, "plan": plan, "attack": attack, "keep": keep, "noise": 0.00001 * keep,
         "sees": 1.0, "recovered": WHOLE, "exact": 1.0}
        for (plan, attack), keep in product(names, (1.0, 0.25))
    ]  # fmt: skip
    return text._table(cells), names


def of_lies():
    names = list(product(("contiguous", "random"), DEFENCES_AGAINST_LIES))
    results = [{"plan": plan, "defence": how, "isolated": WHOLE, "read": 1.0, "fishing": WHOLE} for plan, how in names]
    return malicious._table(results), names


def of_poison():
    names = list(product(PoisoningPlan().attacks, PoisoningPlan().rules))
    return poisoning._table(
        [{"attack": attack, "rule": rule, "accuracy": WHOLE, "backdoor_rate": WHOLE} for attack, rule in names]
    ), names


def of_sources():
    runs = [{"seed": 1234, "observer": who, **WHOLE, "chance": 0.125, "asked": 1024} for who in OBSERVERS]
    return inference._table("source", {"runs": runs, "over_seeds": WHOLE, "chance": 0.125}), [
        (who,) for who in OBSERVERS
    ]


def of_gaussianity():
    point = {"label": "1234", "not_normal": 1.0, "chance": 0.051, "capacity": {"largest": 123.45},
             "capacity_of_moving": {"largest": 123.45, "mean": 12.34},
             "weights": {"deviation": 123.456, "excess_kurtosis": 1234.5}}  # fmt: skip
    return gaussianity_table([point]), [("1234", "123.456", "1234.5")]


TABLES = [
    of_methods,
    of_sweeps,
    of_reconstruction,
    of_defences,
    of_texts,
    of_lies,
    of_poison,
    of_sources,
    of_gaussianity,
]


def printed(table, width=80):
    to = io.StringIO()
    Console(file=to, width=width, color_system=None).print(table)
    return to.getvalue()


@pytest.mark.parametrize("make", TABLES)
def test_nothing_is_cut_at_eighty_columns(make):
    table, names = make()
    shown = printed(table)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    for row in names:
        for name in row:
            assert any(name in line for line in shown.splitlines()), name


@pytest.mark.parametrize("make", TABLES)
def test_every_row_has_all_its_names_and_figures_in_order(make):
    table, names = make()
    words = printed(table).replace("·", " ").replace("─", "").split()
    left = iter(words)
    for row in names:
        for word in " ".join(row).split():
            assert word in left, row  # each after the one before
    assert sorted(words) == sorted(printed(table, 200).replace("─", "").split())


def test_a_single_name_that_is_too_long_is_folded_and_not_cut():
    table = ResultsTable(("method", "AUC"), names=("method",))
    long = "a_module_of_ones_own.with_a_long_name:AndAClassWhoseNameIsLongToo" * 2
    table.add(long, "0.51")
    shown = printed(table)
    assert "…" not in shown
    assert long in "".join(line.split()[0] for line in shown.splitlines()[2:] if line.strip()).replace("─", "")
    assert "0.51" in shown
