"""Pictures recovered from updates: LPIPS against the visible share, and the table of 27 defences.

Zero-filled attacks take what they do not see for zero, as the published ones do; mask-aware ones match what they see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eris.paper.experiment import LPIPS, Experiment, Measure, Metric, Panel, Point, Settings, Size, Treatment

__all__ = ["EXPERIMENTS", "PLACE"]

PLACE = 8.5

_RECOVERED = Metric("recovered", "recovered", "", "%")
_IDENTIFIED = Metric("identified", "identified", "", "%")
_BOTH = (
    Treatment("zero-filled", ("method=eris",)),
    Treatment("mask-aware", ("method=eris",), "-", prefix="aware/"),
    Treatment("random gradients", ("method=eris",), "-", prefix="random/"),
)
_LENET = "model.name=eris.audit.reconstruction.small_networks:SigmoidLeNet"
_PICTURES = {"MNIST": "mnist", "CIFAR-10": "cifar10", "LFW": "lfw"}
_FITTING = {  # the small network's options for each data set
    "cifar10": ("model.options={channels=3, size=32}",),
    "lfw": ("model.options={channels=3, size=32, classes=5749}",),
    "scrapshots": ("model.options={size=64, classes=30}",),
}


def _base(data: str, members: int, *extra: str) -> Settings:
    return (f"data.name={data}", _LENET, f"members={members}", "rounds=1", "workers=1", "data.samples=1",
            "data.validation=0.0", "data.test_samples=100", "local.batch=full", "local.lr=0.1", "local.momentum=0.0",
            *extra)  # fmt: skip


def _share(visible: float) -> Point:
    """Return a point that shows this share of an update: one aggregator of A, or nine of ten."""
    value = f"{100 * visible:.4g}"
    if 0.5 < visible < 1:
        return Point(float(value), ("aggregators=10",), options={"observer": f"coalition:{round(10 * visible)}"})
    return Point(float(value), (f"aggregators={round(1 / visible)}",))


def _panel(
    label: str, attack: str, shares: Sequence[float], pictures: int, members: int, options: Mapping[str, Any],
    data: str = "", stand_in: str = "",
) -> Panel:  # fmt: skip
    name = data or _PICTURES[label]
    measure = Measure("reconstruction", {
        "attack": attack, "pictures": pictures, "controls": min(pictures, 2 if pictures < 10 else 4),
        "attack_options": dict(options),
    })  # fmt: skip
    points = tuple(_share(each) for each in shares)
    base = (*_base(name, members), *_FITTING.get(name, ()))
    return Panel(f"{label}, {attack}", base, _BOTH, points, 1, measure, printed="figure-reconstruction",
                 column="{x} %", rows=f"{label} {attack}", stand_in=stand_in)  # fmt: skip


def _with_whole(panel: Panel) -> tuple[Panel, Panel]:
    """Return a panel together with its first point: the whole update, which a server sees."""
    arms = tuple(replace(arm, settings=("method=fedavg",)) for arm in panel.arms)
    return replace(panel, arms=arms, points=(Point(100.0, options={"observer": "server"}),)), panel


_SHARES = (0.9, 0.5, 0.25, 0.125, 0.0625, 0.03125)
_FEW = (0.9, 0.5, 0.125)

_QUICK = {"steps": 60}
_SHAPE: dict[Size, tuple[Panel, ...]] = {
    "smoke": _with_whole(
        _panel("MNIST", "idlg", (0.5,), 1, 4, {"steps": 2}, "mnist-sample", "smoke: two steps on one digit")
    ),
    "small": (
        *_with_whole(_panel("MNIST", "idlg", _FEW, 4, 10, {})),
        _panel("MNIST", "boxed", (0.5,), 4, 10, {"steps": 150}),
        _panel("CIFAR-10", "idlg", (0.5,), 2, 10, {}),
        _panel("LFW", "idlg", (0.5,), 2, 10, {}, "scrapshots", "173 face snapshots for LFW"),
    ),
    "paper": tuple(
        panel
        for label in _PICTURES
        for attack in ("dlg", "idlg", "rog")
        for panel in _with_whole(_panel(label, attack, _SHARES, 200, 200, {}))
    ),
}


def _compressed(label: str, compressor: str, row: str, *settings: str) -> Treatment:
    return Treatment(label, ("method=fedavg+compression", f"compression.compressor={compressor}", *settings), row)


_DP = "DP-SGD (clip={clip}, σ=10^{{{power}}})"
_DEFENCES = (
    Treatment("FedAvg", ("method=fedavg",)),
    *(_compressed(f"QSGD, s = {s}", "qsgd_max", f"QSGD (s={s})", f"compression.options={{levels={s}}}")
      for s in (16, 8, 4)),
    *(_compressed(f"uniform, s = {s}", "uniform", f"Uniform Quantization (s={s})",
                  f"compression.options={{levels={s}}}") for s in (16, 8, 4)),
    *(_compressed(f"top-k, {sparsity:.0%} zero", "top_k", f"Top-k Sparsification (sparsity={sparsity:.2f})",
                  f"compression.keep={1 - sparsity:.2f}") for sparsity in (0.90, 0.98, 0.99)),
    *(Treatment(f"DP, C = {clip}, σ = 1e{power}",
          ("method=fedavg-ldp", f"privacy.clip={clip}.0", f"privacy.noise_multiplier={10.0**power / 2:g}"),
          _DP.format(clip=clip, power=power)) for clip in (10, 1) for power in (-4, -3, -2)),
    *(Treatment(f"PriPrune, p = {share:g}", ("method=priprune", f"options.priprune.prune={share}"),
                f"PriPrune (p={row})")
      for share, row in ((1e-5, "10^{-5}"), (1e-3, "10^{-3}"), (0.1, "0.1"))),
    *(Treatment(f"ERIS, A = {count}", ("method=eris", f"aggregators={count}"), f"ERIS (A={count})")
      for count in (2, 4, 8)),
    *(Treatment(f"ERIS+DSC, ω = {omega}, A = {count}",
          ("method=eris+dsc", f"aggregators={count}", f"compression.keep={1 / (1 + omega):.4g}"),
          f"ERIS (+DSC) (ω={omega}, A={count})") for omega, count in ((1, 2), (4, 2), (9, 2), (49, 50))),
    Treatment("random gradients", ("method=fedavg",), "Random Gradients", prefix="random/"),
)  # fmt: skip


def _defences(
    label: str, attack: str, data: str, *, pictures: int, members: int, column: str = "",
    arms: tuple[Treatment, ...] = _DEFENCES, stand_in: str = "", options: Mapping[str, Any] | None = None,
    model: Settings = (),
) -> Panel:  # fmt: skip
    measure = Measure("reconstruction", {
        "attack": attack, "pictures": pictures, "controls": min(pictures, 4), "modes": ["zero-filled", "mask-aware"],
        "attack_options": dict(options or {}),
    })  # fmt: skip
    return Panel(label, (*_base(data, members), *model), arms, (Point(),), 1, measure, printed="defences",
                 column=column, stand_in=stand_in)  # fmt: skip


_SMOKE_ARMS = tuple(arm for arm in _DEFENCES if arm.label in ("FedAvg", "ERIS, A = 2", "random gradients"))
_TABLE: dict[Size, tuple[Panel, ...]] = {
    "smoke": (_defences("idlg", "idlg", "mnist-sample", pictures=1, members=4, arms=_SMOKE_ARMS,
                        stand_in="smoke: two steps on one digit", options={"steps": 2}),),
    "small": (_defences("ROG", "idlg", "mnist-sample", pictures=2, members=50, column="ROG",
                        stand_in="iDLG on digits for ROG on CIFAR-10", options=_QUICK),),
    "paper": (
        _defences("ROG", "rog", "cifar10", pictures=200, members=200, column="ROG",
                  model=("model.name=eris.audit.reconstruction.small_networks:TwoConvolutions",)),
        _defences("GGL", "ggl", "imagenet-folder", pictures=50, members=50, column="GGL", options={"steps": 300},
                  model=("model.name=resnet18",)),
    ),
}  # fmt: skip

EXPERIMENTS = (
    Experiment(
        "figure-reconstruction", "LPIPS against the visible share", "reconstruction fails for A ≥ 2",
        _SHAPE, (LPIPS, _RECOVERED, _IDENTIFIED), axis="visible, %", shape="lines", logarithmic=True,
        notes=("The paper's attacks are zero-filled; mask-aware ones match only what they see.",
               "The printed LFW values of ROG carry a constant of 0.051."),
    ),
    Experiment(
        "table-defences", "Reconstruction under 27 defences", "ERIS defends better than compression, noise and pruning",
        _TABLE, (LPIPS, _RECOVERED, _IDENTIFIED),
        notes=("Printed ERIS+DSC rows show min(1/A, 1/(1+ω)) of an update, ours 1/(A(1+ω)).",
               "DP clips whole updates here, single tensors there.",
               "Printed GGL values of all rows but the last lie within 0.665 and 0.696, ± 0.05."),
    ),
)  # fmt: skip
