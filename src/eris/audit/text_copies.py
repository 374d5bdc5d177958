"""Perturbed copies of texts, for SPV-MIA: some words are hidden, and a local model fills the gaps.

A text that was trained on sits on a peak: when a few words change, its probability falls more than that of a text that
was not. The score is what the member's own training did to the peak (`Observation.variation`), calibrated with the
public model x^t, which costs the attacker nothing.

Three kinds of models can fill gaps: encoders trained to guess hidden words (BERT and its kin), T5, which writes what
belongs into numbered gaps, and language models (GPT and its kin), which know what comes before a gap but not what comes
after it. They are loaded from a folder or the cache; nothing is sent anywhere.

>>> from eris.seeds import public_root
>>> gaps(12, public_root(1), share=0.3, length=2, apart=1)
[(0, 2), (7, 9)]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eris.audit.canaries import AuditableTask
from eris.errors import ConfigError, InputError
from eris.local.task import Task
from eris.models.text import loaded_text_model, untaught
from eris.seeds import Seed

__all__ = ["Filler", "MaskFiller", "NextFiller", "SpanFiller", "filler_of", "gaps", "perturbed", "perturbed_copies"]

Gap = tuple[int, int]

_OTHERS = "use an encoder such as BERT, a T5, or a language model such as smollm2-135m"


class Filler(Protocol):
    """A model that fills gaps in a text with new words."""

    def fill(self, words: Sequence[str], gaps: Sequence[Gap], seed: Seed) -> list[str]:
        """Return the words with randomly drawn ones in the gaps, each from its first word to before its end."""
        ...


def perturbed(text: str, filler: Filler, seed: Seed, *, share: float = 0.3, length: int = 2, apart: int = 1) -> str:
    """Return the text with `share` of its words replaced, in runs of `length` that are `apart` words or more apart."""
    words = text.split()
    if not words:
        return text
    chosen = gaps(len(words), seed.child("gaps"), share=share, length=length, apart=apart)
    return " ".join(filler.fill(words, chosen, seed.child("words")))


def gaps(words: int, seed: Seed, *, share: float, length: int, apart: int) -> list[Gap]:
    """Choose runs of `length` words, at least `apart` words apart, until they make up `share` of all; at least one."""
    length = min(length, words)
    wanted, free = max(1, round(share * words / length)), [True] * words
    found: list[Gap] = []
    for start in seed.permutation(words - length + 1).tolist():
        if len(found) < wanted and all(free[start : start + length]):
            found.append((start, start + length))
            for place in range(max(0, start - apart), min(words, start + length + apart)):
                free[place] = False
    return sorted(found)


class MaskFiller:
    """Fills each hidden word separately, with an encoder's guess."""

    def __init__(self, network: Any, tokenizer: Any) -> None:
        self._network, self._tokenizer = network.eval(), tokenizer
        self._longest = int(getattr(network.config, "max_position_embeddings", 512))

    def fill(self, words: Sequence[str], gaps: Sequence[Gap], seed: Seed) -> list[str]:
        """Return the words with ones drawn from the network's guesses in the gaps."""
        hidden = [place for start, end in gaps for place in range(start, end)]
        shown = [self._tokenizer.mask_token if place in hidden else word for place, word in enumerate(words)]
        tokens = self._tokenizer(" ".join(shown), return_tensors="pt", truncation=True, max_length=self._longest)
        with torch.inference_mode():
            logits = self._network(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).logits[0]
        masks = (tokens["input_ids"][0] == self._tokenizer.mask_token_id).nonzero()[:, 0]
        guesses = self._drawn(logits[masks].double(), seed)
        filled = list(words)
        for place, token in zip(hidden, guesses, strict=False):  # the end of a text that is too long stays as it is
            filled[place] = self._tokenizer.decode([token]).strip() or filled[place]
        return filled

    def _drawn(self, logits: Tensor, seed: Seed) -> list[int]:
        logits[:, list(self._tokenizer.all_special_ids)] = -torch.inf
        sums = logits.softmax(dim=1).cumsum(dim=1)
        drawn = torch.from_numpy(seed.uniforms(len(logits))).double()[:, None] * sums[:, -1:]
        return torch.searchsorted(sums, drawn).clamp(max=logits.shape[1] - 1)[:, 0].tolist()


class SpanFiller:
    """Fills whole gaps with a T5, which writes what belongs into numbered gaps, up to `longest` tokens in all."""

    def __init__(self, network: Any, tokenizer: Any, *, longest: int = 150) -> None:
        self._network, self._tokenizer, self._longest = network.eval(), tokenizer, longest

    def fill(self, words: Sequence[str], gaps: Sequence[Gap], seed: Seed) -> list[str]:
        """Return the words with what the network writes in the gaps; a gap it leaves empty keeps its words."""
        written = self._written(self._with_numbers(words, gaps), seed)
        filled: list[str] = []
        last = 0
        for number, (start, end) in enumerate(gaps):
            new = written.get(number, "").split()
            filled += [*words[last:start], *(new or words[start:end])]
            last = end
        return [*filled, *words[last:]]

    def _with_numbers(self, words: Sequence[str], gaps: Sequence[Gap]) -> str:
        parts: list[str] = []
        last = 0
        for number, (start, end) in enumerate(gaps):
            parts += [*words[last:start], f"<extra_id_{number}>"]
            last = end
        return " ".join([*parts, *words[last:]])

    def _written(self, text: str, seed: Seed) -> dict[int, str]:
        tokens = self._tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        answer = _sampled(self._network, tokens["input_ids"], seed, self._longest)
        said = self._tokenizer.decode(answer[0], skip_special_tokens=False)
        pieces = re.split(r"<extra_id_(\d+)>", said)
        ends = "|".join(re.escape(token) for token in ("</s>", "<pad>", *self._tokenizer.all_special_tokens))
        return {
            int(number): re.sub(ends, " ", words).strip()
            for number, words in zip(pieces[1::2], pieces[2::2], strict=True)
        }


class NextFiller:
    """Fills a gap with what a language model writes after the words before it."""

    def __init__(self, network: Any, tokenizer: Any) -> None:
        self._network, self._tokenizer = network.eval(), tokenizer
        self._longest = int(getattr(network.config, "max_position_embeddings", 512)) // 2

    def fill(self, words: Sequence[str], gaps: Sequence[Gap], seed: Seed) -> list[str]:
        """Return the words with what the network writes in the gaps; if it writes too few, the last ones stay."""
        filled = list(words)
        for number, (start, end) in enumerate(gaps):
            new = self._written(filled[:start], end - start, seed.child(number))
            filled[start : start + len(new)] = new
        return filled

    def _written(self, before: Sequence[str], count: int, seed: Seed) -> list[str]:
        begin = self._tokenizer.bos_token or self._tokenizer.eos_token
        tokens = self._tokenizer(" ".join(before) or begin, return_tensors="pt")["input_ids"][:, -self._longest :]

        def words(answer: Tensor) -> list[str]:
            said = self._tokenizer.decode(answer[0, tokens.shape[1] :], skip_special_tokens=True)
            return list(said.split())

        # A word is complete only when the next one begins.
        answer = _sampled(
            self._network, tokens, seed, min(self._longest, 8 * count), until=lambda answer: len(words(answer)) > count
        )
        return words(answer)[:count]


def _sampled(
    network: Any, tokens: Tensor, seed: Seed, most: int, *, until: Callable[[Tensor], bool] = lambda _: False
) -> Tensor:
    """Generate up to `most` tokens, each drawn from the network's guesses, without touching torch's own generator.

    `until` is shown all tokens so far, and says whether they are enough.
    """
    from transformers import StoppingCriteriaList

    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(int(seed.words(1)[0] >> 1))
        answer: Tensor = network.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            do_sample=True,
            top_p=1.0,
            top_k=0,
            max_new_tokens=most,
            stopping_criteria=StoppingCriteriaList([lambda answer, _, **__: torch.tensor([until(answer)])]),
        )
    return answer


def filler_of(source: str) -> Filler:
    """Return a filler from a local model, given as a folder, a hub id or the name of a pretrained model."""
    from transformers import AutoModelForMaskedLM

    config = loaded_text_model(source, "AutoConfig")
    tokenizer = loaded_text_model(source, "AutoTokenizer")
    if getattr(config, "is_encoder_decoder", False):
        return SpanFiller(loaded_text_model(source, "AutoModelForSeq2SeqLM"), tokenizer)
    kind = "AutoModelForMaskedLM"
    if type(config) not in AutoModelForMaskedLM._model_mapping:
        return NextFiller(loaded_text_model(source, "AutoModelForCausalLM"), tokenizer)
    if tokenizer.mask_token is None:
        raise ConfigError(f"{source} has no token for a hidden word", fix=_OTHERS)
    if untaught(source, kind):
        raise ConfigError(f"{source} was not trained to guess hidden words: its head has no weights", fix=_OTHERS)
    return MaskFiller(loaded_text_model(source, kind), tokenizer)


def perturbed_copies(probe: AuditableTask, filler: Filler, seed: Seed, *, copies: int = 10) -> AuditableTask:
    """Return a task whose samples are `copies` perturbed copies of each of the probe's samples, one after another."""
    from eris.data.dataset import Texts
    from eris.local.torch_task import TorchTask
    from eris.models.tokens import SummaryTokens

    task: Task = probe
    if not isinstance(task, TorchTask) or not isinstance(examples := task.pool, SummaryTokens):
        raise InputError("only texts with summaries can be perturbed", fix="audit a language model on such data")
    texts: list[str] = []
    summaries: list[str] = []
    places: list[NDArray[np.int64]] = []
    assert examples.split.summaries is not None
    for member in range(task.members):
        begin = len(texts)
        for sample, place in enumerate(task.places(member).tolist()):
            texts += [examples.split.texts[place]] * copies
            own = seed.child("member", member, "sample", sample)
            summary = examples.split.summaries[place]
            summaries += [perturbed(summary, filler, own.child(copy)) for copy in range(copies)]
        places.append(np.arange(begin, len(texts), dtype=np.int64))
    changed = replace(examples, split=Texts(texts, summaries=summaries))
    return task.on(changed, places)
