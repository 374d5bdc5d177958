"""What the experiments share: the four data sets with the paper's settings, and the rows of its tables.

The paper's n counts half of what a client holds (the audit removes the other half), so `data.samples` is 2n.

>>> MNIST.rounds(8), CIFAR10.rounds(4), CIFAR10.rounds(128), IMDB.rounds(16, "biased")
(140, 80, 140, 12)
>>> round(1 / MNIST.keep(120) - 1, 1), round(1 / CIFAR10.keep(140) - 1, 1)
(26.6, 170.1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eris.paper.experiment import Experiment, Measure, Panel, Point, Settings, Size, Treatment

__all__ = [
    "CIFAR10", "CNN", "DATA_SETS", "ERIS", "ERIS_DSC", "ERIS_SOTERIA", "FEDAVG", "IMDB", "MIN_LEAKAGE", "MNIST",
    "SHATTER", "SMALL", "BySize", "DataSet", "ldp", "panel_of", "panels_of", "priprune", "rows_of", "smoke_panel",
    "soteria", "summary_rows",
]  # fmt: skip

Setting = Literal["unbiased", "noniid", "biased"]

_SGD: Settings = ("local.optimizer=sgd", "local.lr=0.01", "local.momentum=0.9", "local.keep_state=true")
_ADAM: Settings = ("local.optimizer=adam", "local.lr=5e-5", "local.keep_state=true")
_SAMPLES = (4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class DataSet:
    """A data set of the paper with its model and all settings that the text or its released code give."""

    name: str  # in the tables
    key: str  # of its table by sample size
    data: Settings
    members: int
    members_noniid: int
    batch: int  # of several local steps
    unbiased: Sequence[int]  # rounds for n = 4, 8, …
    biased: Sequence[int]
    alpha: float
    factor: float  # DSC keeps 1/(factor · log₂ T)
    factor_biased: float
    omega: str  # as printed
    epsilons: tuple[float, float]
    prunes: tuple[float, float, float]
    optimizer: Settings = _SGD
    offline: Settings = ()  # the substitute where the original is unavailable, or takes too long
    stand_in: str = ""
    samples: tuple[int, ...] = field(default=(4, 8, 16, 32, 64, 128))

    def rounds(self, n: int, setting: Setting = "unbiased") -> int:
        """Return the number of rounds for the printed n."""
        table = self.biased if setting == "biased" else self.unbiased
        return table[_SAMPLES.index(n)]

    def keep(self, rounds: int, setting: Setting = "unbiased") -> float:
        """Return the share of coordinates that DSC keeps, which depends on the number of rounds."""
        factor = self.factor_biased if setting == "biased" else self.factor
        return 1.0 / (factor * math.log2(rounds)) if factor > 0 else -factor


MNIST = DataSet(
    "MNIST", "mnist", ("data.name=mnist", "model.name=lenet5"),
    members=50, members_noniid=25, batch=64,
    unbiased=(120, 140, 200, 250, 250, 250), biased=(80, 100, 200, 180, 180, 180, 160),
    alpha=0.2, factor=4, factor_biased=2, omega="ω≈30",
    epsilons=(10, 1), prunes=(0.01, 0.05, 0.1),
)  # fmt: skip
CIFAR10 = DataSet(
    "CIFAR-10", "cifar10", ("data.name=cifar10", "model.name=resnet9"),
    members=50, members_noniid=25, batch=64,
    unbiased=(80, 140, 140, 140, 140, 140), biased=(60, 80, 100, 140, 100, 100, 100),
    alpha=0.2, factor=24, factor_biased=2, omega="ω≈170",
    epsilons=(10, 1), prunes=(0.01, 0.05, 0.1),
    offline=("data.name=cifar10", "model.name=lenet5", "model.options={channels=3, size=32}"),
    stand_in="LeNet-5 (0.08 M) for ResNet-9 (1.65 M)",
)  # fmt: skip


def _but_the_last(layers: int, name: str) -> str:
    """Return the setting that freezes a transformer's embeddings and all its layers but the last."""
    return ",".join(["embed", *(f"{name}.{place}." for place in range(layers - 1))])


IMDB = DataSet(
    "IMDB", "imdb", ("data.name=imdb", "model.name=text-classifier",
                     'model.options={source="distilbert-base-uncased", length=128}'),
    members=25, members_noniid=10, batch=16,
    unbiased=(22, 20, 18, 18, 14, 14), biased=(16, 16, 12, 10, 8, 6, 4),
    alpha=0.5, factor=2000, factor_biased=1, omega="ω≈8000",
    epsilons=(100, 10), prunes=(0.1, 0.2, 0.3), optimizer=_ADAM,
    offline=("data.name=imdb", "model.name=minilm-l6",
             f'model.options={{length=32, freeze="{_but_the_last(6, "layer")}"}}'),
    stand_in="the last layer of MiniLM-L6 (1.9 M values) for DistilBERT (67 M), 32 tokens of a review for 128",
)  # fmt: skip
CNN = DataSet(
    "CNN/DailyMail", "cnn", ("data.name=cnn_dailymail", "model.name=language-model",
                             'model.options={source="EleutherAI/gpt-neo-1.3B", article=800, summary=128}'),
    members=10, members_noniid=10, batch=8,
    unbiased=(), biased=(),
    alpha=0.5, factor=-0.01, factor_biased=-0.01, omega="ω ≈ 100",
    epsilons=(100, 10), prunes=(0.1, 0.2, 0.3), optimizer=("local.optimizer=adam", "local.lr=5e-5"),
    offline=("data.name=cnn_dailymail", "model.name=smollm2-135m",
             f'model.options={{article=64, summary=32, generate=16, freeze="{_but_the_last(30, "layers")}"}}'),
    stand_in="the last layer of SmolLM2-135M (3.5 M values) for GPT-Neo-1.3B, the beginnings of a sample of 555 pairs "
    "for CNN/DailyMail",
    samples=(16, 32, 64, 128),
)  # fmt: skip
DATA_SETS = (MNIST, CIFAR10, IMDB, CNN)

# Size small, chosen by what a cell costs and by how FedAvg trains (twice the paper's step, so that it learns in fewer
# rounds), not by the results. Intervals need folds: four or more wherever a claim is decided.
SMALL: Mapping[str, Mapping[str, Any]] = {
    "MNIST": {"members": 8, "rounds": 50, "folds": 4, "test_samples": 1000, "evaluate_every": 5, "views": 2,
              "extra": ("local.lr=0.02",)},
    "CIFAR-10": {"members": 8, "rounds": 60, "folds": 3, "test_samples": 1000, "evaluate_every": 5, "views": 2,
                 "losses_only": True, "offline": True, "extra": ("local.lr=0.02",)},
    "IMDB": {"members": 4, "rounds": 4, "folds": 3, "test_samples": 60, "evaluate_every": 2, "views": 1,
             "losses_only": True, "offline": True, "extra": ("local.lr=5e-4",)},
    # Three members because a mean of fewer is refused, and Shatter's graph needs them. Opacus' hooks miss SmolLM2's
    # norms by 0.04 %, which is refused too.
    "CNN/DailyMail": {"members": 3, "rounds": 1, "folds": 1, "test_samples": 2, "views": 1, "losses_only": True,
                      "offline": True, "extra": ("local.micro_batch=2", "privacy.per_sample=loop")},
}  # fmt: skip


FEDAVG = Treatment("FedAvg", ("method=fedavg",))
SHATTER = Treatment("Shatter", ("method=shatter", "options.shatter.virtual_degree=4"))
ERIS = Treatment("ERIS", ("method=eris",))
ERIS_SOTERIA = Treatment("ERIS+DSC, ω = 19", ("method=eris+dsc", "compression.keep=0.05"), "ERIS (+DSC) (ω_SoteriaFL)")
ERIS_DSC = Treatment("ERIS+DSC", ("method=eris+dsc", "compression.keep={keep}"), "ERIS (+DSC)")
MIN_LEAKAGE = Treatment("Min. Leakage", ("method=min-leakage",))


def ldp(epsilon: float, row: str = "FedAvg (ε={0:g},δ)-LDP") -> Treatment:
    """Return the row of FedAvg with noise on the gradients of samples."""
    settings = ("method=fedavg-dpsgd", f"privacy.epsilon={epsilon:g}", "privacy.clip=1.0")
    return Treatment(f"LDP, ε = {epsilon:g}", settings, row.format(epsilon))


def soteria(epsilon: float, row: str = "SoteriaFL (ε={0:g},δ)") -> Treatment:
    """Return the row of SoteriaFL: the same noise as `ldp`, then 5 % of the coordinates against a reference."""
    settings = ("method=soteriafl", "privacy.unit=sample", f"privacy.epsilon={epsilon:g}", "privacy.clip=1.0")
    return Treatment(f"SoteriaFL, ε = {epsilon:g}", settings, row.format(epsilon))


def priprune(share: float, row: str = "PriPrune (p={0:g})") -> Treatment:
    """Return the row of PriPrune that withholds this share of an update."""
    return Treatment(
        f"PriPrune, p = {share:g}", ("method=priprune", f"options.priprune.prune={share}"), row.format(share)
    )


def rows_of(data: DataSet) -> tuple[Treatment, ...]:
    """Return the thirteen rows of a table by sample size."""
    cnn = data is CNN
    noisy = [ldp(each, "FedAvg ({0:g},δ)-LDP") if cnn else ldp(each) for each in data.epsilons]
    soterias = [soteria(each, "SoteriaFL (ε={0:g})") if cnn else soteria(each) for each in data.epsilons]
    compressed = Treatment(ERIS_DSC.label, ERIS_DSC.settings, f"ERIS (+DSC) ({data.omega})")
    prunes = [priprune(each) for each in data.prunes]
    return (FEDAVG, *noisy, *soterias, *prunes, SHATTER, ERIS, ERIS_SOTERIA, compressed, MIN_LEAKAGE)


def summary_rows(data: DataSet, *, both: bool = False, sharded: bool = True) -> tuple[Treatment, ...]:
    """Return a data set's rows in a table over all data sets.

    Args:
        data: the data set.
        both: whether the table has rows for both ε.
        sharded: whether it has a row of ERIS without DSC.
    """
    first = data.epsilons[0]
    noisy = [ldp(first, "FedAvg (ε,δ)-LDP")]
    soterias = [soteria(first, "SoteriaFL (ε,δ)")]
    if both:
        order = (data.epsilons[1], first)
        noisy = [ldp(each, f"FedAvg (ε_{place},δ)-LDP") for place, each in enumerate(order, 1)]
        soterias = [soteria(each, f"SoteriaFL (ε_{place},δ)") for place, each in enumerate(order, 1)]
    prunes = [priprune(each, f"PriPrune (p_{place})") for place, each in enumerate(data.prunes, 1)]
    return (FEDAVG, *noisy, *soterias, *prunes, SHATTER, *([ERIS] if sharded else []), ERIS_DSC, MIN_LEAKAGE)


def _base(data: DataSet, setting: Setting, members: int, *, offline: bool) -> Settings:
    local: Settings = ("local.batch=full", "local.epochs=1")
    if setting == "biased" or data is CNN:
        local = (f"local.batch={data.batch}", "local.epochs=2")
    skewed: Settings = ("data.partition=dirichlet", f"data.alpha={data.alpha}") if setting == "noniid" else ()
    which = data.offline if offline and data.offline else data.data
    return (*which, f"members={members}", "data.validation=0.3", *skewed, *local, *data.optimizer, "workers=1")


def panel_of(
    data: DataSet,
    setting: Setting,
    arms: tuple[Treatment, ...],
    *,
    samples: Sequence[int] = (),
    members: int = 0,
    rounds: int = 0,
    folds: int = 5,
    test_samples: int = 0,
    evaluate_every: int = 1,
    views: int = 8,
    canaries: int = 0,
    losses_only: bool = False,
    offline: bool = False,
    printed: str = "",
    column: str = "n={x}",
    rows: str = "{row}",
    extra: Settings = (),
) -> Panel:
    """Return a panel over sample sizes; what is not given is as in the paper.

    Args:
        data: the data set.
        setting: `unbiased` (one local step), `biased` (several) or `noniid`.
        arms: the rows.
        samples: the printed n of each point.
        members: how many members.
        rounds: how many rounds.
        folds: how many folds.
        test_samples: how many test samples.
        evaluate_every: how many rounds between evaluations.
        views: the most places from which an observer looks at a member.
        canaries: the most canaries of a member.
        losses_only: whether the audit builds no gradients.
        offline: whether to use the substitute for the original data.
        printed: the printed table.
        column: the start of its columns' names.
        rows: how its rows are named.
        extra: further settings.
    """
    count = members or (data.members_noniid if setting == "noniid" else data.members)
    points = []
    for n in samples or data.samples:
        turns = rounds or (3 if data is CNN and n == 16 else 2 if data is CNN else data.rounds(n, setting))
        held = n if data is CNN else 2 * n
        values = {"keep": f"{data.keep(turns, setting):.6g}"}
        points.append(Point(n, (f"rounds={turns}", f"data.samples={held}"), values))
    options = {"views": views, "canaries": canaries or max(samples or data.samples), "losses_only": losses_only}
    base = (*_base(data, setting, count, offline=offline), f"evaluate_every={evaluate_every}",
            f"data.test_samples={test_samples}", *extra)  # fmt: skip
    stand_in = data.stand_in if offline else ""
    return Panel(
        data.name,
        base,
        arms,
        tuple(points),
        folds,
        Measure("training", options),
        printed=printed,
        column=column,
        rows=rows,
        stand_in=stand_in,
    )


def panels_of(
    setting: Setting,
    arms: Callable[[DataSet], tuple[Treatment, ...]],
    sizes: Mapping[str, Mapping[str, Any]],
    where: Callable[[DataSet], Mapping[str, Any]],
) -> tuple[Panel, ...]:
    """Return a panel for each data set that has an entry in `sizes`.

    Args:
        setting: as in `panel_of`.
        arms: returns a data set's rows.
        sizes: the arguments of `panel_of`, by data set.
        where: returns the arguments that say where a data set's values are printed.
    """
    chosen = [data for data in DATA_SETS if data.name in sizes]
    return tuple(panel_of(data, setting, arms(data), **{**sizes[data.name], **where(data)}) for data in chosen)


@dataclass(frozen=True)
class BySize:
    """The trainings of a table and its figure in every size.

    Args:
        setting: as in `panel_of`.
        small: the arguments of `panel_of` in size small, by data set.
        paper: the same in the paper's size.
        extra: the setting's changes in the smoke test.
    """

    setting: Setting
    small: Mapping[str, Mapping[str, Any]]
    paper: Mapping[str, Mapping[str, Any]]
    extra: Settings

    def table(
        self, title: str, shows: str, arms: Callable[[DataSet], tuple[Treatment, ...]], notes: tuple[str, ...]
    ) -> Experiment:
        """Return the table of means over sample sizes.

        Args:
            title: what is varied.
            shows: what the table asks.
            arms: returns a data set's rows.
            notes: printed below.
        """
        sizes = self._panels(arms, lambda data: {"printed": self.setting, "column": data.name})
        title = f"{title}, means over sample sizes"
        return Experiment(f"table-{self.setting}", title, shows, sizes, axis="n", averaged=True, notes=notes)

    def figure(
        self,
        title: str,
        arms: Callable[[DataSet], tuple[Treatment, ...]],
        where: Callable[[DataSet], Mapping[str, Any]] = lambda _: {},
    ) -> Experiment:
        """Return the figure of the same trainings.

        Args:
            title: what is varied.
            arms: returns a data set's rows.
            where: returns the arguments that say where a data set's values are printed; by default they are not.
        """
        shows, sizes = "the same trainings as curves over n", self._panels(arms, where)
        return Experiment(f"figure-{self.setting}", f"{title} by sample size", shows, sizes, axis="n", shape="lines")

    def _panels(
        self, arms: Callable[[DataSet], tuple[Treatment, ...]], where: Callable[[DataSet], Mapping[str, Any]]
    ) -> dict[Size, tuple[Panel, ...]]:
        return {
            "smoke": (smoke_panel((FEDAVG, ERIS_DSC), extra=self.extra),),
            "small": panels_of(self.setting, arms, self.small, where),
            "paper": panels_of(self.setting, arms, self.paper, where),
        }


def smoke_panel(arms: tuple[Treatment, ...], *, name: str = "MNIST", keep: float = 0.2, extra: Settings = ()) -> Panel:
    """Return a panel that takes the same path in seconds: a few members on the digits that come with eris.

    Args:
        arms: the rows.
        name: of the data set that it stands for.
        keep: the share of coordinates that DSC keeps.
        extra: further settings.
    """
    base: Settings = (
        "data.name=mnist-sample", "model.name=lenet5", "members=6", "data.validation=0.3", "data.test_samples=100",
        "local.batch=full", *_SGD, "workers=1", "rounds=2", "evaluate_every=1", "data.samples=16", *extra,
    )  # fmt: skip
    measure = Measure("training", {"views": 2, "canaries": 8, "losses_only": True, "tosses": 50})
    return Panel(name, base, arms, (Point(8, (), {"keep": f"{keep}"}),), 1, measure,
                 stand_in="smoke: 6,000 digits, 6 members, 2 rounds")  # fmt: skip
