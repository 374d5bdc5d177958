"""All experiments by name, collected from the files in `eris.paper.experiments`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from eris.errors import ConfigError
from eris.paper import experiments
from eris.paper.experiment import Experiment

__all__ = ["experiment_by_name", "experiments_by_name"]


@cache
def experiments_by_name() -> dict[str, Experiment]:
    """Return every experiment by name, in the order of the paper, which each file's `PLACE` gives."""
    modules = [
        importlib.import_module(f"{experiments.__name__}.{found.name}")
        for found in pkgutil.iter_modules(experiments.__path__)
    ]
    files = sorted((module for module in modules if hasattr(module, "EXPERIMENTS")), key=lambda module: module.PLACE)
    return {experiment.name: experiment for module in files for experiment in module.EXPERIMENTS}


def experiment_by_name(name: str) -> Experiment:
    """Return the experiment of that name."""
    known = experiments_by_name()
    if name not in known:
        raise ConfigError(f"there is no experiment {name!r}", fix=f"use one of {', '.join(known)}, or all")
    return known[name]
