"""The objective of a language model that writes summaries, and how they are scored."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from eris.errors import MissingExtra
from eris.local.torch_objective import Score, accuracy_of
from eris.models.text import LanguageModel
from eris.models.tokens import IGNORED

__all__ = ["Summarisation", "rouge1"]


class Summarisation:
    """Cross-entropy of the summary's tokens; with `generate` > 0 also ROUGE-1 of greedily generated summaries."""

    def __init__(self, tokenizer: Any, *, generate: int = 128) -> None:
        if generate and find_spec("rouge_score") is None:  # now, not after the first round
            raise MissingExtra("rouge-score", "text", "the ROUGE-1 of summaries")
        self._tokenizer, self._generate = tokenizer, generate

    def loss(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over all target tokens of the batch."""
        inputs, targets = _trimmed(inputs, targets)
        logits = module(inputs)[:, :-1]
        return functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)

    def losses(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over the target tokens of each sample."""
        inputs, targets = _trimmed(inputs, targets)
        wanted = targets[:, 1:]
        each = functional.cross_entropy(
            module(inputs)[:, :-1].transpose(1, 2), wanted, ignore_index=IGNORED, reduction="none"
        )
        return each.sum(1) / (wanted != IGNORED).sum(1).clamp(min=1)

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Score:
        """Return sums over target tokens, and the sum of ROUGE-1 over the samples."""
        trimmed, wanted = _trimmed(inputs, targets)
        logits, wanted = module(trimmed)[:, :-1].flatten(0, 1), wanted[:, 1:].flatten()
        losses = functional.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="none")
        counted = wanted != IGNORED
        sums = {"hits": (logits.argmax(1) == wanted)[counted].sum()[None], "totals": counted.sum()[None]}
        rouge = self._rouge(module, inputs, targets)
        return Score(losses.double().sum().item(), int(counted.sum()), sums, accuracy_of, rouge)

    def _rouge(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, tuple[float, float]]:
        if not self._generate or not isinstance(module, LanguageModel):
            return {}
        total = 0.0
        for row, wanted in zip(inputs, targets, strict=True):
            begin = int((wanted != IGNORED).int().argmax())
            written = module.continued(row[:begin], self._generate)
            total += rouge1(self._text(written), self._text(wanted[wanted != IGNORED]))
        return {"rouge1": (total, len(inputs))}

    def _text(self, tokens: Tensor) -> str:
        text: str = self._tokenizer.decode(tokens.tolist(), skip_special_tokens=True)
        return text


def _trimmed(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cut off columns that are padding in every row, so that batches of short texts cost less."""
    used = int((targets != IGNORED).any(0).nonzero().max()) + 1
    return inputs[:, :used], targets[:, :used]


def rouge1(candidate: str, reference: str) -> float:
    """Return the F1 of the stemmed words that a summary shares with its reference.

    >>> round(rouge1("Police hunted the bikers", "police are hunting a biker"), 3)
    0.667
    """
    return float(_scorer().score(reference, candidate)["rouge1"].fmeasure)


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # takes seconds to import, so only when something is scored

    return RougeScorer(["rouge1"], use_stemmer=True)
