"""Set the stage: give each hospital named on the command line a file of patients that only it has."""

import sys
from pathlib import Path

import numpy as np

from eris.data import load

pictures, labels = load("mnist-sample").train.pixels, load("mnist-sample").train.labels
for number, hospital in enumerate(sys.argv[1:]):
    mine = np.arange(number, 300 * (len(sys.argv) - 1), len(sys.argv) - 1)
    np.savez(Path(hospital) / "patients.npz", pictures=pictures[mine], labels=labels[mine])
    print(f"{hospital}: {len(mine)} samples")
