"""Prepare one training for attacks: what observers saw, the public model, and the originals to score against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eris.audit.observer import Observer
from eris.audit.reconstruction.attack import Labels
from eris.audit.reconstruction.collect import CollectedRound, VictimObservation, collect
from eris.audit.reconstruction.public_model import PublicModel
from eris.config import Config
from eris.data import Dataset, load
from eris.data.catalogue import DATASETS, is_ours
from eris.errors import ConfigError, InputError
from eris.local.spec import Vector
from eris.local.torch_module import spec_of
from eris.models.registry import model_factory

__all__ = ["AttackSetup", "attack_setup", "finished_model", "other_pictures"]

Pictures = NDArray[np.float32]

_LARGE = 100_000  # weights; larger models are attacked in single precision


@dataclass(frozen=True, eq=False)
class AttackSetup:
    """One training, ready to be attacked; pictures are in [0, 1]."""

    seed: int  # of the training
    observations: tuple[VictimObservation, ...]
    public: PublicModel  # before the attacked round
    originals: dict[int, Pictures] = field(repr=False)  # by victim
    labels: dict[int, Labels] = field(repr=False)  # by victim


def attack_setup(
    config: Config,
    observers: Sequence[Observer],
    *,
    pictures: int,
    rounds: int = 1,
    model: Vector | None = None,
    together: bool = False,
) -> AttackSetup:
    """Run a training up to the round that is attacked, and return it ready for attacks.

    Args:
        config: the training.
        observers: who looks.
        pictures: how many pictures to attack; enough members become victims to have that many.
        rounds: how many rounds to run; the last one is attacked.
        model: where the training starts, instead of at the initial model.
        together: whether observations include what was seen in the rounds before.
    """
    victims = _victims(config, pictures)
    scene = collect(config, observers, victims=victims, rounds=rounds, model=model, together=together)
    pixels = _Pixels.of(config)
    originals = {victim: pixels.pictures(inputs) for victim, inputs in scene.originals.items()}
    return AttackSetup(
        config.seed, scene.observations, _public(scene, pixels, originals[0].shape[1:]), originals, scene.labels
    )


def finished_model(folder: Path, config: Config) -> Vector:
    """Return the model that a run ended with."""
    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    if not path.exists():
        raise ConfigError(
            "there is no finished model of one method in this folder",
            fix="give the folder of a finished run, or its config.toml to start afresh",
            path=folder,
        )
    module = model_factory(config.model.name, **config.model.options)()
    return spec_of(module, buffers=config.local.buffers).flatten(load_file(path))


def other_pictures(config: Config, count: int) -> Pictures:
    """Return pictures that were not trained on, from the test split, in a fixed random order."""
    from eris.seeds import public_root

    test: Any = _dataset(config).test
    order = public_root(0).child("candidates").permutation(len(test))[:count]
    return _Pixels.of(config).pictures(test.take(order)[0])


def _dataset(config: Config) -> Any:
    """Return the data set that a configuration names, ours or that of a function elsewhere."""
    if is_ours(config.data.name):
        return load(config.data.name)
    made = DATASETS.find(config.data.name)()
    if not isinstance(made, Dataset):
        raise InputError(
            f"{config.data.name} is not a data set of pictures with a known range", fix="return an eris.data.Dataset"
        )
    return made


def _victims(config: Config, pictures: int) -> int:
    each = config.data.samples or 1
    return max(1, -(-pictures // each))


def _public(scene: CollectedRound, pixels: _Pixels, shape: tuple[int, ...]) -> PublicModel:
    config = scene.config
    channels, height, width = shape
    return PublicModel(
        model_factory(config.model.name, **config.model.options)(),
        scene.model,
        shape=(channels, height, width),
        classes=pixels.classes,
        mean=pixels.mean,
        std=pixels.std,
        buffers=config.local.buffers,
        dtype=torch.float64 if scene.model.size <= _LARGE else torch.float32,
    )


@dataclass(frozen=True)
class _Pixels:
    """The normalisation of a data set's pictures, to undo it, and its number of classes."""

    mean: tuple[float, ...]  # of each channel
    std: tuple[float, ...]
    classes: int

    @classmethod
    def of(cls, config: Config) -> _Pixels:
        dataset = _dataset(config)
        mean, std = getattr(dataset.train, "mean", None), getattr(dataset.train, "std", None)
        if mean is None or std is None:
            raise InputError(f"{config.data.name} has no pictures to recover", fix="audit a data set of pictures")
        return cls(mean, std, len(dataset.classes))

    def pictures(self, inputs: Pictures) -> Pictures:
        """Undo the normalisation: return pictures in [0, 1]."""
        mean, std = (np.array(part, np.float32).reshape(-1, 1, 1) for part in (self.mean, self.std))
        restored: Pictures = np.clip(inputs * std + mean, 0, 1).astype(np.float32)
        return restored
