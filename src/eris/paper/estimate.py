"""Estimate how long cells will take: the amount of work, times its cost on a known machine, times this one's factor.

All in processor seconds, which a busy machine stretches less than wall-clock time. The costs were fitted to cells that
were run; the time that a folder's finished cells took (`processor_seconds` in their files) corrects the estimate for
the rest, kind by kind. The time left follows from that and from the share of the processors that a run really gets.

>>> from eris.paper.experiment import Cell
>>> planned = Cell("", "", "", "", 0, "planned", (), {})
>>> estimated_seconds([planned]) < 1
True
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from eris.config import Config, load_config
from eris.methods import method_by_name
from eris.paper.experiment import Cell

__all__ = ["Remaining", "corrections", "estimated_seconds", "machine_factor"]

_REFERENCE = 0.041  # seconds of `_bench` on the machine where the costs were measured
_START = 2.0  # for reading data and building networks
_TRAINED = {
    "lenet5": 2e-4,
    "resnet9": 0.008,
    "minilm-l6": 0.05,
    "smollm2-135m": 1.0,
    "text-classifier": 0.15,
    "language-model": 10.0,
}  # for a sample, forward and backward
_SMALLEST = 3e-4
_VECTOR = {
    "lenet5": 0.005,
    "resnet9": 0.05,
    "minilm-l6": 0.5,
    "smollm2-135m": 3.0,
    "text-classifier": 1.5,
    "language-model": 30.0,
}  # for the rest of a member's round
_PUBLIC = 0.4  # for a round of a small network: public samples' gradients, and removing what they explain
_TOGETHER = 0.4  # of the work, where members train in one vectorised call
_FORWARD = 0.35  # of forward and backward
_PER_SAMPLE = 2.5  # factor for noise on gradients of single samples
_ENOUGH = 60.0  # processor seconds of work after which the estimate's error is known
_FROZEN = (0.4, 0.1)  # of the cost of a sample, and of a vector, where all layers but the last are frozen
_PICTURE = {"idlg": 12.0, "dlg": 14.0, "rog": 20.0, "boxed": 30.0, "ggl": 60.0, "inverting-gradients": 25.0}


def estimated_seconds(cells: Sequence[Cell]) -> float:
    """Return the processor seconds that cells will take on this machine; cells with the same key count once."""
    different = {cell.key: cell for cell in cells}
    return machine_factor() * sum(_seconds(cell) for cell in different.values())


@cache
def machine_factor() -> float:
    """Return how much slower this machine is than the one where the costs were measured, by a short benchmark."""
    return max(0.2, min(_bench() for _ in range(3)) / _REFERENCE)


def _bench() -> float:
    """Return the seconds that some single-threaded work takes."""
    values = np.random.default_rng(1).random(200_000)
    began = time.thread_time()
    for _ in range(4):
        np.exp(np.sort(values) - values)
    return time.thread_time() - began


@cache
def _config(settings: tuple[str, ...]) -> Config:
    return load_config(changes=settings)


def _seconds(cell: Cell) -> float:
    if cell.kind == "planned":
        return 0.02
    config = _config(cell.settings)
    if cell.kind == "reconstruction":
        modes = len(cell.options.get("modes", (1, 2)))
        count = int(cell.options["pictures"]) * modes + int(cell.options.get("controls", 0))
        steps = float(cell.options.get("attack_options", {}).get("steps", 300)) / 300
        return _START + count * _PICTURE.get(str(cell.options["attack"]), 20.0) * steps * _of_data(config)
    model = config.model.name
    sample, vector = _TRAINED.get(model, _SMALLEST), _VECTOR.get(model, 0.01)
    if config.model.options.get("freeze"):
        sample, vector = sample * _FROZEN[0], vector * _FROZEN[1]
    sample *= _shorter(config)
    members, rounds, local = config.members, config.rounds, config.local
    held = config.data.samples or 600
    audited = cell.kind == "training" and cell.options.get("audit", True)
    canaries = min(int(cell.options.get("canaries", 128)), held // 2) if audited else 0
    trained = (held - canaries / 2) * (local.epochs if local.steps == 0 else 1) * (1.3 if config.data.validation else 1)
    noisy = _PER_SAMPLE if config.privacy.unit == "sample" or config.methods[0] == "fedavg-dpsgd" else 1.0
    a_round = members * (trained * sample * noisy + vector) * (_TOGETHER if local.cohort > 1 else 1.0)
    if cell.kind == "gaussianity":
        draws = int(cell.options.get("draws", 32)) * int(cell.options.get("probes", 4))
        return _START + rounds * a_round + draws * (trained * sample + vector)
    if audited:
        places = 1 if method_by_name(config.methods[0]).server else int(cell.options.get("views", 8))
        places *= len(cell.options.get("observers", (1,)))
        a_round += members * places * (canaries * sample * _FORWARD + vector)
        if not cell.options.get("losses_only"):
            whole = method_by_name(config.methods[0]).server
            a_round += members * (canaries * sample * 2 + places * vector * 2) + _PUBLIC * (1.0 if whole else 0.4)
    models = members if method_by_name(config.methods[0]).exchange is not None else 1
    tested = (config.data.test_samples or 10_000) * sample * _FORWARD * models
    return _START + rounds * a_round + rounds / config.evaluate_every * tested


def _shorter(config: Config) -> float:
    """Return the length of texts relative to the length at which the costs were measured."""
    options = config.model.options
    if "article" in options:
        return (int(options["article"]) + int(options.get("summary", 128))) / 928
    return int(options["length"]) / 128 if "length" in options else 1.0


def _of_data(config: Config) -> float:
    return 1.0 if config.data.name.startswith("mnist") else 1.6


def corrections(finished: Mapping[str, tuple[Cell, float]]) -> dict[str, float]:
    """Return the factor by which finished cells took longer than expected, for each kind of work with enough of them.

    `finished` maps a cell's key to the cell and the processor seconds it took.
    """
    expected, took = dict[str, float](), dict[str, float]()
    for cell, seconds in finished.values():
        sort = _sort(cell)
        expected[sort] = expected.get(sort, 0.0) + machine_factor() * _seconds(cell)
        took[sort] = took.get(sort, 0.0) + seconds
    return {sort: took[sort] / expected[sort] for sort in took if expected[sort] > _ENOUGH}


def _sort(cell: Cell) -> str:
    """Return a cell's kind of work: estimates for cells of one kind are off by about the same factor."""
    if cell.kind == "planned":
        return cell.kind
    config = _config(cell.settings)
    how = ("losses" if cell.options.get("losses_only") else "attacked") if cell.options.get("audit", True) else "alone"
    how = how if cell.kind == "training" else str(cell.options.get("attack", ""))
    method = config.methods[0] if method_by_name(config.methods[0]).exchange is not None else ""
    return " ".join((cell.kind, config.model.name, config.data.name, how, method))


class Remaining:
    """The time left of a run, from its unfinished cells and the share of the processors that it gets.

    Args:
        cells: the cells of the run.
        workers: how many run at once.
        corrected: the factors from `corrections`.
    """

    def __init__(self, cells: Sequence[Cell], workers: int, corrected: Mapping[str, float] | None = None) -> None:
        factors = corrected or {}
        self._left = {cell.key: machine_factor() * _seconds(cell) * factors.get(_sort(cell), 1.0) for cell in cells}
        self._workers, self._took, self._ought = workers, 0.0, 0.0
        self._began = time.monotonic()

    def finished(self, cell: Cell, processor_seconds: float) -> None:
        """Record a finished cell."""
        self._ought += self._left.pop(cell.key, 0.0)
        self._took += processor_seconds

    @property
    def processor_seconds(self) -> float:
        """The processor seconds left; after a minute of work the machine's real speed is known."""
        trust = min(1.0, self._ought / _ENOUGH)
        factor = 1.0 if not self._ought else trust * self._took / self._ought + 1 - trust
        return factor * sum(self._left.values())

    @property
    def seconds(self) -> float:
        """The seconds left: at first as if the processors were free, then at the rate so far."""
        idle = self.processor_seconds / self._workers
        passed = time.monotonic() - self._began
        if self._took < _ENOUGH or passed <= 0:
            return idle
        return max(idle, self.processor_seconds * passed / self._took)
