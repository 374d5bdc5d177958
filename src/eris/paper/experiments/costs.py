"""Communication tables, distribution time and rates, calculated by the planner under the paper's names."""

from __future__ import annotations

from eris.paper.experiment import Experiment, Measure, Metric, Panel, Point, Treatment
from eris.paper.panels import PANELS, rows
from eris.planner.rates import rates

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 9

_COLUMNS = (
    Metric("upload", "upload", "upload", "MB", digits=2),
    Metric("download", "download", "download", "MB", digits=2),
    Metric("total", "total", "total", "MB", digits=2),
    Metric("time", "time, s", "time", digits=2),
)
_PRINTED = {"cnn-dailymail": "CNN/DailyMail", "imdb": "IMDB", "cifar-10": "CIFAR-10", "mnist": "MNIST"}
_ROWS = (  # as printed; PriPrune's rates are wrong there for the large models
    "FedAvg", "Shatter", "Ako (p=5)", "Q-DPSGD-1 (K_n=0.4)", "PriPrune (0.01)", "PriPrune (0.05)", "PriPrune (0.1)",
    "SoteriaFL", "ERIS", "ERIS (+DSC with ω_SoteriaFL)", "ERIS (+DSC)",
)  # fmt: skip


def _panel(name: str, chosen: tuple[str, ...] = ()) -> Panel:
    arms = tuple(
        Treatment(line.label, (f"row={place}",), _ROWS[place])
        for place, line in enumerate(rows(PANELS[name]))
        if not chosen or line.label.split(" (")[0] in chosen
    )
    base = ("what=communication", f"panel={name}")
    printed = _PRINTED[name]
    return Panel(printed, base, arms, measure=Measure("planned"), printed="communication", rows=f"{printed}: {{row}}")


def _table(name: str, title: str, panels: tuple[Panel, ...]) -> Experiment:
    return Experiment(
        name, title, "what a round moves and how long that takes, as the paper's tables count",
        {"smoke": panels, "small": panels, "paper": panels}, _COLUMNS, shape="planned",
        notes=("The honest forms, and why they differ: `eris plan`, docs/planner.md.",),
    )  # fmt: skip


_MAIN = ("FedAvg", "Shatter", "PriPrune", "SoteriaFL", "ERIS", "ERIS+DSC")
_TIMES = tuple(
    Point(f"K = {members}, A = {aggregators}", (f"members={members}", f"aggregators={aggregators}"))
    for members in (10, 50, 300)
    for aggregators in (2, 25, 50)
    if aggregators <= members
)
_SPEED = Panel(
    "10 M values, 100 Mbit/s", ("what=speed-up", "n=10000000", "rate=12500000"),
    (Treatment("ERIS+DSC, ω = 19", ()),), _TIMES, measure=Measure("planned"),
)  # fmt: skip
_RATES = Panel(
    "n = 61,706, K = 50, m = 64, ω = 19, ε = 10", ("what=rate", "nu=1.0"),
    tuple(Treatment(rate.algorithm, (f"algorithm={rate.algorithm}",))
          for rate in rates(n=1, members=1, samples=1, omega=0, epsilon=1, delta=0.1, nu=1.0)),
    measure=Measure("planned"),
)  # fmt: skip

EXPERIMENTS = (
    _table("table-communication", "Upload and time of a round (main text)",
           tuple(_panel(name, _MAIN) for name in ("cnn-dailymail", "cifar-10"))),
    _table("table-communication-text", "Communication of the language models (appendix)",
           tuple(_panel(name) for name in ("cnn-dailymail", "imdb"))),
    _table("table-communication-images", "Communication of the image models (appendix)",
           tuple(_panel(name) for name in ("cifar-10", "mnist"))),
    Experiment(
        "figure-distribution-time", "Minimum distribution time against clients and model size",
        "how many times faster ERIS+DSC distributes than FedAvg and SoteriaFL",
        dict.fromkeys(("smoke", "small", "paper"), (_SPEED,)),
        (Metric("over_fedavg", "× FedAvg, formula"), Metric("over_soteriafl", "× SoteriaFL, formula"),
         Metric("honest", "× FedAvg, both roles counted")),
        axis="round", shape="planned",
        notes=("The paper's 105 × and 55 × are its formula at K = 10, A = 50 > K, without the clients' own terms.",),
    ),
    Experiment(
        "figure-rate", "Minimum distribution time against the transmission rate",
        "distribution time falls with the rate for all methods alike",
        dict.fromkeys(("smoke", "small", "paper"), (_SPEED,)),
        (Metric("over_fedavg", "× FedAvg, formula"), Metric("honest", "× FedAvg, both roles counted")),
        axis="round", shape="planned",
    ),
    Experiment(
        "table-rates", "Asymptotic utility, with numbers filled in",
        "how each row grows; constants are left out, so rows cannot be compared with each other",
        dict.fromkeys(("smoke", "small", "paper"), (_RATES,)), (Metric("rate", "value without constants", digits=5),),
        shape="planned", notes=("Q-DPSGD-1 with a quantiser's error ν̃ = 1.",),
    ),
)  # fmt: skip
