"""How many whole batches a layer with ReLU gives away (SPEAR's idea), from all of its rows and from a shard of them.

    python benchmarks/relu_layer.py [--batches 20]

A layer of 40 inputs and 120 units below a classifier, inputs drawn at random. An observer sees the gradient of the
first 120/A units, weights and biases. A batch counts as recovered if every input is found to 10⁻⁶. Random values of the
same size are the chance level. Prints one JSON object: recovered batches, with an exact 95 % interval.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from eris.audit.text.relu_layer import recovered_inputs
from eris.seeds import public_root

INPUTS, UNITS, CLASSES = 40, 120, 5
SHARES, SIZES = (1, 2, 4, 8), (1, 2, 4, 8)


def main() -> None:
    """Measure every share and batch size, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20)
    count = parser.parse_args().batches
    points = [point(share, size, count) for share in SHARES for size in SIZES]
    print(json.dumps({"batches": count, "points": points}, indent=1))


def point(share: int, size: int, count: int) -> dict[str, object]:
    """Return how many of `count` batches of that size are recovered from 1/`share` of the units."""
    found = [recovers(share, size, number, null=False) for number in range(count)]
    null = [recovers(share, size, number, null=True) for number in range(count)]
    return {"A": share, "size": size, "recovered": sum(found), "interval": exact(sum(found), count), "null": sum(null)}


def recovers(share: int, size: int, number: int, *, null: bool) -> bool:
    """Whether one batch is recovered; with `null`, from random values instead of its gradient."""
    generator = np.random.default_rng([share, size, number])
    torch.manual_seed(1000 * number + size)
    inputs = generator.standard_normal((size, INPUTS))
    layer, head = torch.nn.Linear(INPUTS, UNITS).double(), torch.nn.Linear(UNITS, CLASSES).double()
    targets = torch.from_numpy(generator.integers(CLASSES, size=size))
    torch.nn.functional.cross_entropy(head(torch.relu(layer(torch.from_numpy(inputs)))), targets).backward()
    weight, bias = (gradient(values)[: UNITS // share] for values in (layer.weight, layer.bias))
    if null:
        weight, bias = generator.standard_normal(weight.shape), generator.standard_normal(bias.shape)
    made = recovered_inputs(weight, bias, size, public_root(number), draws=20_000)
    return made is not None and bool(max(np.abs(made - row).max(axis=1).min() for row in inputs) < 1e-6)


def gradient(values: torch.Tensor) -> NDArray[np.float64]:
    """Return a parameter's gradient as an array."""
    assert values.grad is not None
    return np.asarray(values.grad.numpy(), np.float64)


def exact(hits: int, count: int) -> list[float]:
    """Return the exact 95 % interval of a share."""
    low = float(beta.ppf(0.025, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, count - hits)) if hits < count else 1.0
    return [round(low, 2), round(high, 2)]


if __name__ == "__main__":
    main()
