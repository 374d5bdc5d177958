"""What a hospital trains: the common network on pictures that are on this machine and nowhere else.

`eris join --task hospital:task` calls `task` with the run's settings and this peer's number.
"""

import numpy as np
from network import Net

from eris.tasks import task_at_home


def task(config, peer):
    """Return the learning problem of this peer: its own samples, the first fifth kept for testing."""
    del peer  # every hospital has its own file, under the same name
    with np.load("patients.npz") as file:
        pictures, labels = file["pictures"].astype(np.float32)[:, None] / 255, file["labels"].astype(np.int64)
    held_out = len(labels) // 5
    return task_at_home(
        config, Net, train=(pictures[held_out:], labels[held_out:]), test=(pictures[:held_out], labels[:held_out])
    )
