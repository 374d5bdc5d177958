"""Sweeps of reconstruction: each attack against the share of the update it sees, and one attack against all defences.

Both use `audit_reconstruction`, which writes every picture as soon as it is recovered; calling a sweep again resumes
it. Attacks that need a trained network are left out if it is missing, unless they are asked for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eris.audit.json_file import write_json
from eris.audit.reconstruction.attack import Mode, registered
from eris.audit.reconstruction.defence import SMALL, Defence
from eris.audit.reconstruction.run import NOTES, RANDOM, Notice, ReconstructionPlan, audit_reconstruction
from eris.audit.side_by_side import Map
from eris.config import load_config
from eris.errors import ConfigError

__all__ = ["DEFENCES", "RECONSTRUCTION_SIZES", "SHARES", "ReconstructionSize", "left_out", "run_defences", "run_shares"]

_HERE = "eris.audit.reconstruction"
_PERCEPTRON = f"model.name={_HERE}.small_networks:SigmoidPerceptron"
_TINY = (f"data.name={_HERE}.small_digits:small_digits", _PERCEPTRON, "model.options={inputs=64}")
_MODELS = {"rank-one": (_PERCEPTRON,)}  # it needs a fully connected first layer, which the small LeNet does not have

SHARES = (1, 2, 4, 8, 16)
"""Numbers of aggregators: one of A sees 1/A of an update."""

_COMPRESSED = "method=fedavg+compression"
DEFENCES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("FedAvg", ("method=fedavg",)),
    ("QSGD, 16 levels", (_COMPRESSED, "compression.compressor=qsgd_max", "compression.options={levels=16}")),
    ("uniform, 16 levels", (_COMPRESSED, "compression.compressor=uniform", "compression.options={levels=16}")),
    ("top-k, 10 %", (_COMPRESSED, "compression.compressor=top_k", "compression.keep=0.1")),
    ("DP, ε = 10", ("method=fedavg-ldp", "privacy.epsilon=10")),
    ("DP, ε = 1,000", ("method=fedavg-ldp", "privacy.epsilon=1000")),
    ("DP, ε = 100,000", ("method=fedavg-ldp", "privacy.epsilon=100000")),
    ("PriPrune, p = 0.1", ("method=priprune", "options.priprune.prune=0.1")),
    ("ERIS, A = 2", ("method=eris", "aggregators=2")),
    ("ERIS, A = 8", ("method=eris", "aggregators=8")),
    ("ERIS, A = 8, blocks of 32", ("method=eris", "aggregators=8", "shards.block=32")),
    ("ERIS, A = 8, batch of 4", ("method=eris", "aggregators=8", "data.samples=4")),
    ("ERIS, A = 8 + DSC, p = 0.2", ("method=eris+dsc", "aggregators=8", "compression.keep=0.2")),
)
"""Each with what makes it; that of random values, which hold no picture, is the last line of the table."""


@dataclass(frozen=True)
class ReconstructionSize:
    """The size of a sweep: how many pictures, which attacks, and the options of each."""

    pictures: int  # for each defence
    attacks: tuple[str, ...]  # of the sweep over shares
    shares: tuple[int, ...]  # numbers of aggregators
    defence_attack: str = "boxed"  # of the sweep over defences
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # by attack
    changes: tuple[str, ...] = ()  # to the small preset's settings
    tiny: bool = False  # whether attacks without a trained network, which fits one size, attack 8 × 8 pictures
    controls: int = 4  # pictures whose update is replaced by random values
    modes: tuple[Mode, ...] = ("mask-aware", "zero-filled")

    def settings(self, attack: str, changes: Sequence[str] = ()) -> list[str]:
        """Return the settings that an attack gets, with further changes."""
        tiny = _TINY if self.tiny and not registered(attack).networks else ()
        return [*SMALL, *tiny, *self.changes, *_MODELS.get(attack, ()), *changes]


RECONSTRUCTION_SIZES = {
    "small": ReconstructionSize(
        pictures=3,
        attacks=("rank-one", "gauss-newton", "boxed", "idlg", "inverting-gradients"),
        shares=(1, 2, 4, 8),
        defence_attack="gauss-newton",
        options={  # a minute or two, not hours
            "boxed": {"restarts": 1},
            "gauss-newton": {"restarts": 2, "before": (0, 300)},
            "inverting-gradients": {"steps": 400},
        },
        tiny=True,
    ),
    "paper": ReconstructionSize(
        pictures=200,
        attacks=("rank-one", "dlg", "idlg", "inverting-gradients", "boxed", "rog", "ggl"),
        shares=SHARES,
        changes=("members=200", "data.name=mnist"),
    ),
}


def run_shares(
    size: ReconstructionSize,
    changes: Sequence[str],
    out: Path,
    *,
    attacks: Sequence[str] = (),
    notice: Notice | None = None,
    each: Map = map,
) -> list[dict[str, Any]]:
    """Attack updates cut into more and more shards; write sweep-reconstruction.json and return its points.

    Args:
        size: how much to attack.
        changes: to the settings.
        out: the folder for the results.
        attacks: the ones to make, instead of those of the size that can be made here.
        notice: told of the progress.
        each: makes the attacks (`eris.audit.side_by_side.in_processes`: several at once).
    """
    points: list[dict[str, Any]] = []
    missing = {} if attacks else left_out(size, changes)
    for name in attacks or [name for name in size.attacks if name not in missing]:
        own = _sharded(size.settings(name, changes), size.shares)
        points += _attacked(size, name, own, out / "runs" / name, notice, each)
    axis = "share of the update that is seen"
    used = [*SMALL, *size.changes, *changes]
    _write(out / "sweep-reconstruction.json", axis, used, points, left_out=missing)
    return points


def left_out(size: ReconstructionSize, changes: Sequence[str]) -> dict[str, str]:
    """Return the attacks of a size that cannot be made here, each with what is missing."""
    data = load_config(changes=[*SMALL, *size.changes, *changes]).data.name
    return {name: lack for name in size.attacks if (lack := registered(name).lacks(data))}


def run_defences(
    size: ReconstructionSize,
    changes: Sequence[str],
    out: Path,
    *,
    attacks: Sequence[str] = (),
    notice: Notice | None = None,
    each: Map = map,
) -> list[dict[str, Any]]:
    """Attack every defence; write sweep-defences.json and return its points, those on random values last.

    The arguments are those of `run_shares`, but without `attacks` there is one: the size's `defence_attack`.
    """
    points: list[dict[str, Any]] = []
    for name in attacks or (size.defence_attack,):
        if name in _MODELS:
            raise ConfigError(f"{name} attacks another model than the others", fix="use idlg, boxed, …")
        base = size.settings(name, changes)
        defences = tuple(Defence(label, load_config(changes=[*base, *own])) for label, own in DEFENCES)
        points += _attacked(size, name, defences, out / "runs" / name, notice, each)
    points.sort(key=lambda point: point["defence"] == RANDOM)
    _write(out / "sweep-defences.json", "defence", [*SMALL, *size.changes, *changes], points)
    return points


def _sharded(base: Sequence[str], shares: Sequence[int]) -> tuple[Defence, ...]:
    members = load_config(changes=base).members
    most = max(shares)
    base = [*base, f"members={max(members, most)}"] if most > members else [*base]
    server = Defence("FedAvg", load_config(changes=[*base, "method=fedavg"]))
    sharded = [
        Defence(f"ERIS A={count}", load_config(changes=[*base, "method=eris", f"aggregators={count}"]))
        for count in shares
        if count > 1
    ]
    return (server, *sharded)


def _attacked(
    size: ReconstructionSize, attack: str, defences: tuple[Defence, ...], out: Path, notice: Notice | None, each: Map
) -> list[dict[str, Any]]:
    plan = ReconstructionPlan(
        defences=defences,
        attacks=(attack,),
        modes=size.modes,
        pictures=size.pictures,
        controls=size.controls,
        options=size.options.get(attack, {}),
    )
    return audit_reconstruction(plan, out, notice=notice, each=each).results


def _write(path: Path, axis: str, settings: Sequence[str], points: list[dict[str, Any]], **facts: Any) -> None:
    facts = {"sweep": path.stem.removeprefix("sweep-"), "axis": axis, "settings": list(settings), **facts}
    write_json(path, {**facts, "notes": NOTES, "points": points})
