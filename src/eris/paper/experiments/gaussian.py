"""Whether weights and updates are Gaussian, as the theorem assumes: three models, histograms by round."""

from __future__ import annotations

from eris.paper.experiment import Experiment, Measure, Metric, Panel, Settings, Treatment
from eris.paper.settings import CIFAR10, IMDB, MNIST, DataSet

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 8

_ARM = Treatment("FedAvg", ("method=fedavg",))
_METRICS = (
    Metric("not_normal", "coordinates told from a Gaussian", "", "%", chance=True),
    Metric("kurtosis", "excess kurtosis of the weights", digits=2),
    Metric("skewness", "skewness of the weights", digits=2),
)


def _panel(
    data: DataSet, label: str, members: int, rounds: int, samples: int, draws: int, extra: Settings = (),
    *, offline: bool = False,
) -> Panel:  # fmt: skip
    which = data.offline if offline else data.data
    base = (*which, f"members={members}", f"rounds={rounds}", f"data.samples={samples}", "data.validation=0.0",
            "local.batch=8", "local.epochs=1", *data.optimizer, "workers=1",
            f"evaluate_every={rounds}", *extra)  # fmt: skip
    measure = Measure("gaussianity", {"draws": draws, "probes": 4})
    return Panel(label, base, (_ARM,), measure=measure, stand_in=data.stand_in if offline else "")


def _panels(*, small: bool) -> tuple[Panel, ...]:
    tests = ("data.test_samples=200",)
    if small:
        return (
            _panel(MNIST, "LeNet-5", 5, 20, 32, 32, tests),
            _panel(CIFAR10, "ResNet-9", 3, 6, 16, 16, tests),
            _panel(IMDB, "MiniLM-L6", 3, 2, 16, 12, tests, offline=True),
        )
    return (
        _panel(MNIST, "LeNet-5", 50, 250, 64, 64),
        _panel(CIFAR10, "ResNet-9", 50, 140, 64, 64),
        _panel(IMDB, "DistilBERT", 25, 18, 64, 32),
    )


_SMOKE = Panel(
    "LeNet-5",
    ("data.name=mnist-sample", "model.name=lenet5", "members=3", "rounds=2", "data.samples=16", "data.validation=0.0",
     "local.batch=8", "local.epochs=1", "workers=1", "evaluate_every=2", "data.test_samples=100"),
    (_ARM,), measure=Measure("gaussianity", {"draws": 8, "probes": 2}), stand_in="smoke: 6,000 digits, 3 members",
)  # fmt: skip

EXPERIMENTS = (
    Experiment(
        "figure-gaussian", "Are weights and updates Gaussian?", "the assumption behind Theorem 3.2",
        {"smoke": (_SMOKE,), "small": _panels(small=True), "paper": _panels(small=False)}, _METRICS,
        shape="histograms",
        notes=("The paper's histogram is of the coordinates of one weight vector. What the theorem needs is the law of "
               "one coordinate given the data; that is tested by redrawing the batches of one round.",),
    ),
)  # fmt: skip
