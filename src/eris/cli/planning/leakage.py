"""Theorem 3.2 and the table of rates, number by number."""

from __future__ import annotations

import math
from pathlib import Path

from eris.cli.planning.question import BoundsQuestion, Section
from eris.errors import ConfigError, DataError
from eris.planner import capacity_from_transcripts, gaussian_capacity, leakage, model_size, rates
from eris.planner.leakage import needed_against

__all__ = ["leakage_section", "rates_section"]


def leakage_section(question: BoundsQuestion) -> Section:
    """Answer by Theorem 3.2 and its corollary on collusion."""
    size = model_size(question.model)
    shards: int | list[float] = question.members if question.aggregators is None else question.aggregators
    if question.shards:
        shards = _sizes(question.shards)
    capacity, how = _capacity(question)
    keep = 1 / (1 + question.omega)
    section = Section(
        "leakage", f"Theorem 3.2: leakage, {size.name or 'model'} with {size.values:,} values, p = {keep:.3g}"
    )
    common = {"n": size.values, "rounds": question.rounds, "keep": keep, "shards": shards, "capacity": capacity}
    found = leakage(**common, coalition=question.collude, entropy=question.entropy or math.inf)  # type: ignore[arg-type]
    whole = leakage(**{**common, "shards": 1})  # type: ignore[arg-type]
    number = shards if isinstance(shards, int) else len(shards)
    who = "one aggregator" if question.collude == 1 else f"{question.collude} aggregators"
    section.add("capacity", "C_max, nats", capacity, "capacity", remark=how)
    section.add("coordinates", f"values {who} of {number} see{'s' if question.collude == 1 else ''}", found.coordinates)
    remark = "vacuous: it excludes nothing" if found.vacuous else ""
    section.add("nats", "I(D; view) ≤, nats", found.nats, "leakage", remark=remark)
    section.add("bits", "the same in bits", found.bits)
    section.add("all", "if all collude, nats", whole.nats)
    more, less = needed_against(question.collude, shards=number, keep=keep)
    if question.collude > 1:
        section.add("aggregators_needed", "A that keeps the bound of one", float(more))
        section.add("keep_needed", "or p that keeps it", less)
    return section


def _sizes(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--shards is {text!r}", fix="write sizes like 3,1,1") from error


def _capacity(question: BoundsQuestion) -> tuple[float, str]:
    if question.deterministic:
        return math.inf, "deterministic local work"
    if question.transcripts is not None:
        return _from_transcripts(question.transcripts)
    if question.capacity is not None:
        return question.capacity, "as given"
    if question.snr is None and question.batch == question.samples:
        return math.inf, "full batches: deterministic local work"
    snr = 0.01 if question.snr is None else question.snr
    return gaussian_capacity(snr), f"Gaussian, SNR = {snr:g}" + (" (assumed)" if question.snr is None else "")


def _from_transcripts(path: Path) -> tuple[float, str]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as data:
            found = capacity_from_transcripts(data["members"], data["redraws"])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"transcripts {path} cannot be read: {error}", fix="save arrays `members` and `redraws` with numpy.savez"
        ) from error
    seen = f"{found.coordinates:,} values, {found.members} members, {found.redraws} redraws"
    how = f"largest of {seen}; mean {found.mean:.3g}"
    return found.largest, how + (f"; {found.deterministic:,} values never change" if found.deterministic else "")


def rates_section(question: BoundsQuestion) -> Section:
    """Put numbers into the table of rates."""
    size = model_size(question.model)
    section = Section(
        "rates", f"Rates of the paper's table, without constants (ε = {question.epsilon:g}, δ = {question.delta:g})"
    )
    for rate in rates(
        n=size.values,
        members=question.members,
        samples=question.samples,
        omega=question.omega,
        epsilon=question.epsilon,
        delta=question.delta,
        nu=question.quantiser_error,
    ):
        flaws = ("rate", "eris_rate") if rate.privacy == "none" else ("rate",)
        formula = (
            rate.formula.replace("ν̃", f"ν̃ = {question.quantiser_error:g}: ν̃", 1)
            if "ν̃" in rate.formula
            else rate.formula
        )
        section.add(rate.algorithm, rate.algorithm, rate.value, *flaws, remark=f"{formula}; {rate.privacy}")
    return section
