"""What do two masked sums tell about the member by which they differ? Real roles in one process, members really absent.

    python benchmarks/differencing.py [--seeds 10]

Eight members train softmax regression on 32 noise samples each, 16 of them canaries, one full-batch step a round (the
federation of tests/audit/test_captured_bytes.py). Everybody takes part in round 0; in round 1 one member sends nothing,
each of them once in a run of its own. The attack has both published sums. Beside it: the same attack on the broadcasts
of two whole rounds. The larger the learning rate, the more the others' updates change in between. Prints one JSON
object: AUC over seeds 201, 202, … with 95 % t-intervals; 13 s of processor time. `attackers.py differencing` asks the
same of the small preset.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from eris.audit.intervals import mean_over_seeds
from eris.audit.scoring import area, pooled, standardised
from tests.audit.test_captured_bytes import SHAPE, Tapped, scored
from tests.audit.test_differencing import MEMBERS, WHITENED, scores_of

RATES = (0.05, 0.5, 2.0)


def areas(seed: int) -> tuple[float, float]:
    """Return the AUC from the difference of two sums, and from the broadcasts of as many rounds."""
    there = Tapped(seed).run(2, lost=None)
    scores = [scores_of(Tapped(seed).run(2, lost=None, absent=(1, k)), k) for k in MEMBERS]
    (together,) = pooled([standardised(part[None]) for part in scores])
    coins = np.concatenate([there.problem.canaries.coins[k] for k in MEMBERS])
    return float(area(together, coins[None])[0]), scored(there, there.events, "broadcast", WHITENED)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    count, found = parser.parse_args().seeds, {}
    for rate in RATES:
        SHAPE["lr"] = rate
        difference, broadcast = zip(*(areas(seed) for seed in range(201, 201 + count)), strict=True)
        found[rate] = {"difference": mean_over_seeds(difference), "broadcast": mean_over_seeds(broadcast)}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
