"""Test the theory's Gaussian assumption, and measure how much one coordinate can reveal (C_max).

The bound on leakage assumes that one coordinate of a member's update, given its data, is Gaussian. The randomness comes
from the choice of batches. So one member's round is repeated from the same model with other batches, and every
coordinate is tested; chance is what the same test says of Gaussian numbers. For comparison there is also what the paper
shows, the distribution of the coordinates of one weight vector, which is a different thing.

Every round that is tested leaves a file of transcripts that `eris bounds --transcripts` reads.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.atomic_file import write_atomically
from eris.audit.json_file import write_json
from eris.config import Config, load_config
from eris.errors import RunStopped
from eris.events import Event, Listener, RoundStarted, RunEnded
from eris.local.spec import Vector
from eris.local.task import Task
from eris.planner import capacity_from_transcripts
from eris.seeds import Seed, private_root
from eris.simulate.run import resume, run
from eris.tasks import build_task

__all__ = ["CHANGES", "NOTES", "not_normal", "run_gaussianity"]

CHANGES = ("method=fedavg", "local.batch=8", "local.epochs=1")
"""What this sweep needs besides a preset: batches that can be redrawn, and nobody to attack."""

NOTES = (
    "not_normal is the share of coordinates whose distribution over redrawn batches differs from a Gaussian at the 5 % "
    "level; chance is the same test on Gaussian numbers",
    "weights describes the coordinates of one weight vector, as the paper's histogram does; that is not the "
    "distribution of a single coordinate",
    "C_max is ½ ln(variance between members / variance between redraws), in nats. The largest of many noisy ratios "
    "overestimates it, and it is infinite where batches change nothing; capacity_of_moving omits those coordinates",
)
_LEVEL = 0.05
_TRIALS = 20_000  # Gaussian columns that set the test's threshold
_BARS = 61

Rows = NDArray[np.float32]


def run_gaussianity(
    base: Sequence[str],
    out: Path,
    *,
    draws: int = 32,
    probes: int = 4,
    listeners: Sequence[Listener] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Train, test some rounds on the way, write sweep-gaussianity.json and return a point for each tested round.

    Calling it again with the same arguments resumes where it stopped.

    Args:
        base: the settings, which should include `CHANGES`.
        out: the folder for the results.
        draws: how often one member's round is repeated with other batches.
        probes: how many rounds to test, spread evenly over the training.
        listeners: hear the events of the training.
        stopped: asked whether to stop.
    """
    config = load_config(changes=base)
    task = build_task(config.model_dump(mode="json", exclude_none=True))
    rounds = sorted({round(place * (config.rounds - 1) / max(1, probes - 1)) for place in range(probes)})
    probe = _Probe(task, config, out / "transcripts", rounds, draws)
    if not probe.complete:
        _train(config, task, out / "runs" / "gaussianity", [probe, *listeners], stopped)
    else:
        for listener in listeners:
            listener(RunEnded(config.rounds, True, "", 0.0))
    seed = private_root(config.seed, 0).child("gaussianity")
    points = [_point(number, probe.path(number), seed) for number in rounds]
    facts = {"sweep": "gaussianity", "axis": "round", "settings": list(base), "notes": NOTES}
    write_json(out / "sweep-gaussianity.json", {**facts, "draws": draws, "points": points})
    return points


def not_normal(samples: Rows, seed: Seed) -> float:
    """Return the share of columns that a test of skewness and kurtosis distinguishes from a Gaussian at 5 %.

    >>> from eris.seeds import public_root
    >>> coins = (np.arange(640).reshape(32, 20) * 7 % 3 == 0).astype(np.float32)
    >>> not_normal(coins, public_root(1))
    1.0
    """
    drawn = seed.child("null").generator().standard_normal((len(samples), _TRIALS))
    threshold = np.quantile(_jarque_bera(drawn), 1 - _LEVEL)
    return float((_jarque_bera(samples.astype(np.float64)) > threshold).mean())


class _Probe:
    """Writes the transcripts of some rounds as they start: every member's update, and one member's many redraws.

    Args:
        task: what is trained.
        config: has the seed.
        folder: where the files go.
        rounds: which ones to write.
        draws: how often the first member's round is repeated.
    """

    def __init__(self, task: Task, config: Config, folder: Path, rounds: Sequence[int], draws: int) -> None:
        self._task, self._config, self._folder = task, config, folder
        self._rounds, self._draws = tuple(rounds), draws

    @property
    def complete(self) -> bool:
        """Whether every round has its file."""
        return all(self.path(number).exists() for number in self._rounds)

    def path(self, number: int) -> Path:
        """Return the path of a round's transcripts."""
        return self._folder / f"round-{number:04d}.npz"

    def __call__(self, event: Event) -> None:
        """Write the transcripts of a round that starts, if it is one of those to test."""
        if not isinstance(event, RoundStarted) or event.round not in self._rounds or event.model is None:
            return
        if not self.path(event.round).exists():
            self._write(event.round, event.model.copy())

    def _write(self, number: int, model: Vector) -> None:
        seeds = [private_root(self._config.seed, member) for member in range(self._task.members)]
        members = [self._update(member, model, number, seed) for member, seed in enumerate(seeds)]
        redraws = [self._update(0, model, number, seeds[0].child("redrawn", draw)) for draw in range(self._draws)]
        content = io.BytesIO()
        np.savez(content, members=np.stack(members), redraws=np.stack(redraws), model=model)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path(number), content.getvalue())

    def _update(self, member: int, model: Vector, number: int, seed: Seed) -> Vector:
        result = self._task.train(member, model, self._task.memory(member), round=number, seed=seed)
        return result.update[: self._task.spec.n_trainable]


def _train(
    config: Config, task: Task, folder: Path, listeners: Sequence[Listener], stopped: Callable[[], bool]
) -> None:
    options: dict[str, Any] = {"task": task, "listeners": listeners, "stopped": stopped}
    again = (folder / "config.toml").exists()
    result = resume(folder, **options) if again else run(config, folder, **options)
    if not result.finished:
        raise RunStopped("the training was stopped", fix="run the sweep again: it continues")


def _point(number: int, path: Path, seed: Seed) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        members, redraws, model = arrays["members"], arrays["redraws"], arrays["model"]
    moves = redraws.astype(np.float64).std(axis=0) > 0
    moving = redraws[:, moves]
    like = seed.child("like", number).generator().standard_normal((len(redraws), max(1, moving.shape[1])))
    capacity = capacity_from_transcripts(members, redraws)
    of_moving = capacity_from_transcripts(members[:, moves], moving) if moving.size else None
    weights = (model[: members.shape[1]] - members[0]).astype(np.float64)
    return {
        "label": str(number),
        "transcripts": path.name,
        "coordinates": int(members.shape[1]),
        "moving": int(moving.shape[1]),
        "not_normal": not_normal(moving, seed) if moving.size else None,
        "chance": not_normal(like.astype(np.float32), seed),
        "capacity": {"largest": capacity.largest, "mean": capacity.mean, "deterministic": capacity.deterministic},
        "capacity_of_moving": None if of_moving is None else {"largest": of_moving.largest, "mean": of_moving.mean},
        "weights": _spread(weights),
        "redraws": _spread(_pooled(moving)) if moving.size else None,
    }


def _pooled(samples: Rows) -> NDArray[np.float64]:
    """Return all values in one vector, each coordinate scaled to mean 0 and standard deviation 1."""
    exact = samples.astype(np.float64)
    return np.asarray((exact - exact.mean(axis=0)) / exact.std(axis=0)).ravel()


def _spread(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return standard deviation, skewness, excess kurtosis and a histogram in units of the deviation."""
    deviation = float(values.std())
    scaled = (values - values.mean()) / (deviation or 1.0)
    density, edges = np.histogram(scaled, bins=_BARS, range=(-5.0, 5.0), density=True)
    return {
        "deviation": deviation,
        "skewness": float((scaled**3).mean()),
        "excess_kurtosis": float((scaled**4).mean() - 3),
        "density": density.tolist(),
        "edges": edges.tolist(),
    }


def _jarque_bera(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Jarque–Bera statistic n/6·(skewness² + kurtosis²/4) of each column."""
    centred = samples - samples.mean(axis=0)
    variance = (centred**2).mean(axis=0)
    variance[variance == 0] = 1.0
    skewness = (centred**3).mean(axis=0) / variance**1.5
    kurtosis = (centred**4).mean(axis=0) / variance**2 - 3
    return np.asarray(len(samples) / 6 * (skewness**2 + kurtosis**2 / 4))
