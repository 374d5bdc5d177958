"""Do one cell of an experiment: an attacked training, a reconstruction, a test of Gaussianity, or a calculation.

Each returns figures by name as plain data: `{"value": …}`, with an interval and a chance level where there are any.
"""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eris.atomic_file import write_atomically
from eris.errors import CheckpointError, ConfigError, ErisError
from eris.plain_json import sayable

__all__ = ["do_cell", "figures_of"]

Options = Mapping[str, Any]
Figures = dict[str, Any]


def do_cell(plain: Mapping[str, Any], path: Path, scratch: Path) -> dict[str, Any]:
    """Do a cell, write its result to its file atomically, and return it; a failure is a result too.

    Args:
        plain: the cell, as `Cell.plain` returns it.
        path: the file for the result.
        scratch: the folder for work in progress; interrupted work resumes from it, and it is removed at the end.
    """
    began, spent = time.perf_counter(), _processor_seconds()
    found: dict[str, Any] = {"cell": {key: plain[key] for key in ("kind", "settings", "options", "label")}}
    try:
        found["figures"] = _done(plain, scratch)
    except (ErisError, ValueError, OSError, RuntimeError, MemoryError) as error:
        found["failed"] = f"{type(error).__name__}: {error}"
    found["seconds"] = round(time.perf_counter() - began, 2)
    found["processor_seconds"] = round(_processor_seconds() - spent, 2)
    found["when"] = time.strftime("%Y-%m-%d")
    found = sayable(found)
    write_atomically(path, (json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    shutil.rmtree(scratch, ignore_errors=True)
    return found


def _done(plain: Mapping[str, Any], scratch: Path) -> Figures:
    """Do the cell, resuming interrupted work; work left by another version of eris is started over."""
    asked = (plain["kind"], plain["settings"], plain["options"], scratch)
    if not scratch.exists():
        return figures_of(*asked)
    try:
        return figures_of(*asked)
    except (CheckpointError, ConfigError):
        shutil.rmtree(scratch)
        return figures_of(*asked)


def figures_of(kind: str, settings: Sequence[str], options: Options, scratch: Path) -> Figures:
    """Return the figures of a cell.

    Args:
        kind: what kind of cell it is.
        settings: of the training or calculation, as `key=value`.
        options: of the measurement.
        scratch: the folder for work in progress.
    """
    return _KINDS[kind](settings, options, scratch)


def _processor_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _training(settings: Sequence[str], options: Options, scratch: Path) -> Figures:
    from eris.config import load_config

    config = load_config(changes=settings)
    if not options.get("audit", True):
        return _accuracy(_trained(config, scratch), scratch)
    from eris.audit.attacks.by_name import STRONGEST
    from eris.audit.membership_run import AuditPlan, audit_method
    from eris.audit.observer import parse_observer

    light = bool(options.get("losses_only", False))
    observers = tuple(parse_observer(text) for text in options.get("observers", ("aggregator",)))
    attacks = ("paper",) if light else ("paper", STRONGEST)
    plan = AuditPlan(
        observers,
        attacks,
        heard=attacks,
        canaries=int(options.get("canaries", 128)),
        views=int(options.get("views", 8)),
        tosses=int(options.get("tosses", 200)),
        losses_only=light,
        **({"coins": options["coins"]} if "coins" in options else {}),
    )
    trial = audit_method(config, scratch, plan)
    summary = json.loads((scratch / "summary.json").read_text(encoding="utf-8"))
    found = _accuracy(summary, scratch)
    for result in trial.results:
        plainly = result.plain()
        name = "" if plainly["observer"] == str(observers[0]) else f"{plainly['observer']}/"
        found |= {f"{name}{key}": figure for key, figure in _attacked(plainly).items()}
    return found


def _attacked(result: Mapping[str, Any]) -> Figures:
    """Return an attack's result: for the paper's attack by the paper's rule, for others the AUC at the last round."""
    figures = result["figures"]
    if result["attack"] == "paper":
        return {"mia": figures["paper_mean"], "seen": {"value": result["visible_share"]}}
    epsilon = result["epsilon"]
    return {
        "auc": {**figures["auc"], "attack": result["attack"]},
        "guesses": figures["accuracy"],
        "epsilon": {"value": epsilon["lower_bound"]},
    }


def _accuracy(summary: Mapping[str, Any], scratch: Path) -> Figures:
    """Return the model's accuracy in the round of lowest validation loss; for summaries, also their ROUGE-1."""
    found = {"accuracy": summary["best_accuracy"], "final_accuracy": summary["final_accuracy"]}
    if summary["best_round"] is not None:
        found["best_round"] = summary["best_round"] + 1
        lines = (scratch / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found["rouge1"] = json.loads(lines[summary["best_round"]]).get("rouge1")
    return {
        **{key: {"value": value} for key, value in found.items() if value is not None},
        "exposure": {"value": summary["exposure"].get("largest_share_per_round")},
        "upload": {"value": summary["bytes"]["up_per_member_round"]},
        "digest": summary["model_digest"],
    }


def _trained(config: Any, scratch: Path) -> dict[str, Any]:
    from eris.simulate.run import resume, run

    result = resume(scratch) if (scratch / "config.toml").exists() else run(config, scratch)
    return result.summaries[0]


_SIMILARITY = {"lpips": "lpips_alexnet", "mse": "mse", "ssim": "ssim"}  # the paper's LPIPS is AlexNet's


def _reconstruction(settings: Sequence[str], options: Options, scratch: Path) -> Figures:
    from eris.audit.observer import parse_observer
    from eris.audit.reconstruction.defence import Defence
    from eris.audit.reconstruction.run import RANDOM, ReconstructionPlan, audit_reconstruction
    from eris.config import load_config

    plan = ReconstructionPlan(
        defences=(Defence("defence", load_config(changes=settings)),),
        observers=(parse_observer(str(options.get("observer", "aggregator"))),),
        attacks=(str(options["attack"]),),
        modes=tuple(options.get("modes", ("zero-filled", "mask-aware"))),
        pictures=int(options["pictures"]),
        controls=int(options.get("controls", 0)),
        options=dict(options.get("attack_options", {})),
        told=bool(options.get("told", False)),
    )
    found: Figures = {}
    for result in audit_reconstruction(plan, scratch).results:
        random, aware = result["defence"] == RANDOM, result["mode"] == "mask-aware"
        name = "random/" if random else "aware/" if aware else ""
        figures: Figures = {key: {"value": result[of]["mean"]} for key, of in _SIMILARITY.items() if of in result}
        figures["recovered"] = {"value": result["recovered"]["rate"], **_limits(result["recovered"])}
        figures["identified"] = {"value": result["identified"]["rate"], **_limits(result["identified"])}
        found |= {f"{name}{key}": figure for key, figure in figures.items()}
        found["seen"] = {"value": result["share"]}
    for key in ("recovered", "identified", *_SIMILARITY):
        if key in found:
            found.setdefault(f"aware/{key}", found[key])  # everything was seen, so both modes are the same
    return found


def _limits(rate: Mapping[str, float]) -> dict[str, float]:
    return {"low": rate["low"], "high": rate["high"]}


def _gaussianity(settings: Sequence[str], options: Options, scratch: Path) -> Figures:
    from eris.audit.gaussianity import run_gaussianity

    points = run_gaussianity(
        settings, scratch, draws=int(options.get("draws", 32)), probes=int(options.get("probes", 4))
    )
    last = points[-1]
    rounds = [
        {
            "round": int(point["label"]),
            "not_normal": point["not_normal"],
            "kurtosis": point["weights"]["excess_kurtosis"],
            "density": [round(value, 4) for value in point["weights"]["density"]],
            "redrawn": [round(value, 4) for value in point["redraws"]["density"]] if point["redraws"] else None,
        }
        for point in points
    ]
    return {
        "not_normal": {"value": last["not_normal"], "chance": last["chance"]},
        "kurtosis": {"value": last["weights"]["excess_kurtosis"]},
        "skewness": {"value": last["weights"]["skewness"]},
        "rounds": rounds,
    }


def _planned(settings: Sequence[str], options: Options, scratch: Path) -> Figures:
    from eris.paper.planned import planned_figures

    del scratch
    return planned_figures(dict(setting.split("=", 1) for setting in settings), options)


_KINDS: dict[str, Callable[[Sequence[str], Options, Path], Figures]] = {
    "training": _training,
    "reconstruction": _reconstruction,
    "gaussianity": _gaussianity,
    "planned": _planned,
}
