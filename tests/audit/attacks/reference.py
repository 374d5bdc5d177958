"""The attack that ours must not fall behind, written on its own: a stacked, whitened regression of the received shard.

Gradients of one member's canaries are stacked over all rounds, on the observer's coordinates only; so are those of
public samples, whose covariance whitens, and the received values, scaled to a sum of gradients by the sample count. The
coins have the prior N(½, ¼). Nothing is weighted by round and nothing is fitted.
"""

from __future__ import annotations

import numpy as np

RIDGE = 0.01  # of the mean eigenvalue of the public covariance


class StackedRegression:
    """Sums of products over the rounds are all that the stacked regression needs."""

    name = "reference"
    needs = frozenset({"gradients", "public"})
    cumulative = True

    def score(self, seen, memory):
        """Stack one more round and solve again."""
        places = seen.estimate.seen
        mean, public, squares = _public(seen.public, places)
        received = np.float32(seen.samples) * (seen.estimate.fresh_update / np.float32(seen.rate) - mean)
        own = np.vstack([seen.probe.gradients[:, places] - mean, received])
        rows, across = (own @ own.T).astype(np.float64), (own @ public.T).astype(np.float64)
        memory["sums"] = memory.get("sums", 0.0) + np.block([[rows, across], [across.T, squares]])
        return _coins(memory["sums"], len(own) - 1, seen.samples)


def _public(probe, places):
    """Return mean, centred rows and products of the public gradients; all who see these places share them."""
    key = b"reference" + places.tobytes()
    if key not in probe.shards:
        rows = probe.gradients[:, places]
        mean = rows.mean(axis=0)
        centred = rows - mean
        probe.shards[key] = (mean, centred, (centred @ centred.T).astype(np.float64))
    return probe.shards[key]


def _coins(sums, count, samples):
    """Return the expected coins."""
    own, cross, background = (
        sums[: count + 1, : count + 1],
        sums[: count + 1, count + 1 :],
        sums[count + 1 :, count + 1 :],
    )
    public = len(background)
    ridge = RIDGE * np.trace(background) / public / public
    inner = np.linalg.solve(background + public * ridge * np.eye(public), cross.T)
    whitened = (own - cross @ inner) / ridge / max(samples - count / 2, 1)
    return np.linalg.solve(whitened[:count, :count] + 4 * np.eye(count), whitened[:count, count] + 2)
