"""Map how much text is recovered from one gradient step, over aggregators, tokens, plans, compression and noise.

Texts are synthetic, drawn at random from the vocabulary: nothing can be guessed, so chance is one over its size. The
observer is the aggregator that has most of the first layer's projections; everybody knows from the plan which one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.audit.intervals import mean_over_seeds
from eris.audit.json_file import write_json
from eris.audit.text.search import TokenSearch
from eris.audit.text.span import SeenGradient, tokens_in_span
from eris.audit.text.victim import (
    Encoder,
    TextVictim,
    TinyTransformer,
    Tokens,
    flat_gradient,
    spans_of,
    train_before,
    victim_by_name,
)
from eris.errors import ConfigError
from eris.seeds import Seed, public_root
from eris.shards.plan import ShardPlan, contiguous, scattered

__all__ = ["PLANS", "TEXT_ATTACKS", "TextCell", "TextPlan", "audit_text"]

TEXT_ATTACKS = ("span", "search")
PLANS = {"contiguous": 0, "blocks of 1024": 1024, "blocks of 32": 32, "random": 1}
NOTES = (
    "recovered: the right token in the right place, averaged over texts; low and high are Student's t over the texts. "
    "Chance is 1 / vocabulary. A text for which the attack has no answer counts as not recovered",
    "exact: the share of texts with every token recovered",
    "texts are synthetic, with tokens drawn at random. Each is trained on for one gradient step with frozen embeddings "
    "(trained embeddings give the words away: only their rows are not zero)",
    "keep: the share of a shard's values that compression sends, unchanged; noise: Gaussian on every coordinate, in "
    "multiples of the gradient's own norm (a noise multiplier with the clipping norm set to that norm)",
    "the attacker knows the number of tokens",
)

Notice = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class TextCell:
    """One point of the map: the settings under which texts are attacked."""

    aggregators: int
    tokens: int
    plan: str
    keep: float = 1.0
    noise: float = 0.0

    def __str__(self) -> str:
        return f"A = {self.aggregators}, {self.tokens} tokens, {self.plan}"


@dataclass(frozen=True)
class TextPlan:
    """The attacked model, the attacks, and the values along each axis of the map."""

    model: str = "tiny"
    lora: int = 0
    attacks: tuple[str, ...] = ("span",)
    aggregators: tuple[int, ...] = (1, 8, 32)
    tokens: tuple[int, ...] = (8, 32)
    plans: tuple[str, ...] = ("contiguous", "blocks of 1024", "random")
    keeps: tuple[float, ...] = (1.0,)
    noises: tuple[float, ...] = (0.0,)
    texts: int = 5
    seed: int = 1
    steps_before: int = 0  # on other texts: where it is 0, half of each adapter has a gradient of zero

    def check(self) -> None:
        """Refuse a plan that cannot be carried out."""
        for known, chosen, what in ((PLANS, self.plans, "plan"), (TEXT_ATTACKS, self.attacks, "attack on texts")):
            if unknown := [name for name in chosen if name not in known]:
                raise ConfigError(f"there is no {what} {unknown[0]!r}", fix=f"use one of {', '.join(known)}")
        if not all(0 < keep <= 1 for keep in self.keeps) or not all(noise >= 0 for noise in self.noises):
            raise ConfigError("a kept share or noise is out of range", fix="use 0 < share ≤ 1 and noise ≥ 0")

    def cells(self) -> Iterator[TextCell]:
        """Yield every point once: with one aggregator all plans are the same."""
        for count, tokens, plan, keep, noise in product(
            self.aggregators, self.tokens, self.plans, self.keeps, self.noises
        ):
            if count > 1 or plan == self.plans[0]:
                yield TextCell(count, tokens, plan if count > 1 else "server", keep, noise)


def audit_text(plan: TextPlan, out: Path, *, notice: Notice = lambda *_: None) -> list[dict[str, Any]]:
    """Attack every point of the map, write text.json and return its results."""
    plan.check()
    victim = victim_by_name(plan.model, lora=plan.lora, seed=plan.seed)
    train_before(victim, plan.steps_before, public_root(plan.seed).child("before"))
    jobs = [(cell, attack) for cell in plan.cells() for attack in plan.attacks]
    results = []
    for number, (cell, attack) in enumerate(jobs):
        notice(number, len(jobs), f"{attack}: {cell}")
        results.append(_result(victim, plan, cell, attack))
    notice(len(jobs), len(jobs), "done")
    write_json(out / "text.json", {"settings": asdict(plan), "notes": NOTES, "results": results})
    return results


def _result(victim: TinyTransformer | Encoder, plan: TextPlan, cell: TextCell, attack: str) -> dict[str, Any]:
    shares, share_seen, began = [], [], time.perf_counter()
    for number in range(plan.texts):
        seed = public_root(plan.seed).child("text", number)
        text = seed.child("tokens", cell.tokens).integers(victim.vocabulary, count=cell.tokens)
        seen = _seen(victim, flat_gradient(victim, text), cell, seed)
        share_seen.append(float(seen.seen.mean()))
        shares.append(_recovered(victim, seen, text, attack, seed))
    return {
        **asdict(cell),
        "attack": attack,
        "sees": float(np.mean(share_seen)),
        "recovered": _over_texts(shares),
        "exact": sum(share == 1 for share in shares) / len(shares),
        "chance": 1 / victim.vocabulary,
        "texts": len(shares),
        "seconds": (time.perf_counter() - began) / len(shares),
    }


def _over_texts(shares: Sequence[float]) -> Mapping[str, float | None]:
    return mean_over_seeds(shares) if len(shares) > 1 else {"value": shares[0], "low": None, "high": None}


def _recovered(victim: TinyTransformer | Encoder, seen: SeenGradient, text: Tokens, attack: str, seed: Seed) -> float:
    """Return the share of tokens that the attack finds at the right place."""
    if attack == "span":
        found = tokens_in_span(victim, seen, len(text))
    else:
        found = TokenSearch().tokens(victim, seen, len(text), seed.child("search"))
    return 0.0 if found is None else float((found == text).mean())


def _seen(victim: TextVictim, gradient: NDArray[np.float32], cell: TextCell, seed: Seed) -> SeenGradient:
    """Return what the best-placed aggregator sees of a gradient."""
    seen = np.zeros(gradient.size, bool)
    seen[_best_shard(victim, _shards(gradient.size, cell, seed.child("plan")))] = True
    if cell.keep < 1:
        seen &= seed.child("kept").uniforms(gradient.size) < cell.keep
    if cell.noise:
        noise = seed.child("noise").generator().standard_normal(gradient.size, dtype=np.float32)
        gradient = gradient + np.float32(cell.noise * np.linalg.norm(gradient)) * noise
    return SeenGradient(gradient, seen)


def _shards(n: int, cell: TextCell, seed: Seed) -> ShardPlan:
    block = PLANS.get(cell.plan, 0)
    return scattered(n, cell.aggregators, seed, block=block) if block else contiguous(n, cell.aggregators)


def _best_shard(victim: TextVictim, plan: ShardPlan) -> NDArray[np.int64]:
    """Return the coordinates of the shard with most of the weights that the attack uses."""
    places = spans_of(victim.trained())
    wanted = np.concatenate([np.arange(places[name].start, places[name].stop) for name in victim.spanning])
    counts = np.bincount(plan.owners_of(wanted), minlength=plan.shards)
    return plan.coordinates(int(counts.argmax()))
