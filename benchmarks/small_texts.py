"""Synthetic texts and a language model of a few thousand weights, on which attacks on texts are compared.

Words follow each other as a public chain says: each of forty words has four that it likes to be followed by. So there
is something to learn that all members share, besides the single texts. Some texts keep to it more than others do, so
that they are not equally hard. The network is a GPT-Neo that starts from nothing. What fills gaps in changed copies
knows the chain and draws from it, which is as good as a filler can be.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from eris.audit.canaries import PlantedTask, plant_in
from eris.audit.text_copies import Gap, perturbed_copies
from eris.config import Config
from eris.data import Dataset, Texts
from eris.local.torch_work import LocalWork
from eris.models.assembly import divide, torch_task
from eris.seeds import Seed, public_root

__all__ = ["SMALL_TEXTS", "planted_texts"]

SMALL_TEXTS = (
    "members=8", "rounds=2", "evaluate_every=2", "workers=1", "method=eris", "aggregators=8",
    "local.optimizer=adam", "local.lr=0.001", "local.momentum=0.0", "local.batch=full", "local.epochs=1",
)  # fmt: skip
_WORDS = [a + b for a in ("ba", "de", "ki", "lo", "mu", "na", "po", "ri") for b in ("ck", "ll", "nt", "rs", "zz")]
_SPECIAL = ("<pad>", "<unk>", "</s>")
_TEXTS = 24  # of each member, half of them canaries
_PUBLIC = 64
_ARTICLE, _SUMMARY = 6, 12  # words
_COPIES = 4


class Chain:
    """A language in which the next word depends on the last one; fills gaps by drawing from itself."""

    def __init__(self, seed: Seed) -> None:
        self._liked = seed.child("chain").generator().integers(0, len(_WORDS), (len(_WORDS), 4))

    def text(self, length: int, seed: Seed) -> str:
        """Return a text of so many words; how often one is liked by the word before it differs between texts."""
        often, *draws = seed.uniforms(length + 1)
        words = [int(draws[0] * len(_WORDS))]
        for draw in draws[1:]:
            words.append(self._next(words[-1], draw, often))
        return " ".join(_WORDS[word] for word in words)

    def fill(self, words: Sequence[str], gaps: Sequence[Gap], seed: Seed) -> list[str]:
        """Return the words with newly drawn ones in the gaps, each after the word before it."""
        filled, draws = list(words), iter(seed.uniforms(2 * len(words)))
        for place in (place for start, end in gaps for place in range(start, end)):
            before = _WORDS.index(filled[place - 1]) if place else int(next(draws) * len(_WORDS))
            filled[place] = _WORDS[self._next(before, next(draws), 0.5)]
        return filled

    def _next(self, word: int, draw: float, often: float) -> int:
        """Return a word after another: with the probability `often` a liked one, else any."""
        if draw < often:
            return int(self._liked[word][int(draw / often * self._liked.shape[1])])
        return int((draw - often) / (1 - often) * len(_WORDS))


def planted_texts(config: Config) -> PlantedTask:
    """Return a task on synthetic texts with canaries and their changed copies."""
    public, chain = public_root(config.seed), Chain(public_root(0).child("texts"))
    data = Dataset("synthetic-texts", "synthetic", (), *(
        _split(chain, count, public.child("texts", name))
        for name, count in (("train", config.members * _TEXTS), ("test", _PUBLIC))
    ))  # fmt: skip
    local = config.local
    task: Any = torch_task(
        data, divide(data, config.members, public), "language-model",
        {"source": _network().name, "article": _ARTICLE, "summary": _SUMMARY + 1, "generate": 0},
        work=LocalWork(optimizer=local.optimizer, lr=local.lr, batch=local.batch, epochs=local.epochs),
    )  # fmt: skip
    planted = plant_in(task, config.seed)
    return replace(planted, copies=perturbed_copies(planted.probe, chain, public.child("copies"), copies=_COPIES))


def _split(chain: Chain, count: int, seed: Seed) -> Texts:
    articles, summaries = (
        [chain.text(length, seed.child(part, number)) for number in range(count)]
        for part, length in (("article", _ARTICLE), ("summary", _SUMMARY))
    )
    return Texts(articles, summaries=summaries)


@cache
def _network() -> tempfile.TemporaryDirectory[str]:
    """Write the configuration of a network and a tokenizer of whole words into a folder that goes with the process."""
    import tokenizers
    import transformers

    kept = tempfile.TemporaryDirectory()
    folder = Path(kept.name)
    numbers = {word: number for number, word in enumerate([*_SPECIAL, *_WORDS])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "max_position_embeddings": 40, "window_size": 8}
    drops = {"resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0}
    ends = {"bos_token_id": 2, "eos_token_id": 2, "attention_types": [[["global"], 2]]}
    kind = {"model_type": "gpt_neo", "vocab_size": len(numbers)}
    (folder / "config.json").write_text(json.dumps({**kind, **sizes, **drops, **ends}))
    return kept
