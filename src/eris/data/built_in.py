"""The sets that are always there: a sample of real digits, and synthetic data made from a seed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BUILT_IN", "BuiltIn"]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A set that does not have to be fetched."""

    name: str
    about: str
    samples: tuple[int, int] | None  # training and test samples; None: so many per member, which the task decides
    edition: str
    source: str


_SEED = "made up from a seed"

BUILT_IN: dict[str, BuiltIn] = {
    each.name: each
    for each in (
        BuiltIn(
            "mnist-sample", "handwritten digits, 28 × 28 grey", (6000, 1000),
            "600 + 100 of each digit", "inside the package",
        ),
        BuiltIn("synthetic", "made-up blobs, 28 × 28 grey", (1000, 250), "synthetic", _SEED),
        BuiltIn(
            "synthetic-clouds", "made-up points of 3 classes, with their own linear model", None,
            "synthetic, 20 points per member or data.samples, 200 to test on", _SEED,
        ),
        BuiltIn(
            "synthetic-quadratic", "made-up quadratics, one per member; model.options = {n = …} values", None,
            "synthetic", _SEED,
        ),
    )
}  # fmt: skip
