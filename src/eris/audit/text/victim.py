"""The attacked models: a member takes one gradient step of a text model on one text.

`TinyTransformer` is our own: a causal language model with learned positions and two layers. With `lora` its first
layer's projections have adapters and nothing else is trained. `Encoder` is a BERT-like network, such as MiniLM, with a
fresh head. An attack knows the weights of either, and the input of the first attention layer for every token and place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.errors import ConfigError

__all__ = ["Encoder", "TextVictim", "TinyTransformer", "Tokens", "flat_gradient", "spans_of", "victim_by_name"]

Tokens = NDArray[np.int64]

_END = 0  # the token after every text


class TextVictim(Protocol):
    """A text model as an attack sees it."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the vocabulary."""
        ...

    @property
    def spanning(self) -> tuple[str, ...]:
        """The trained weights whose gradients' rows lie in the span of the first layer's (projected) inputs."""
        ...

    def trained(self) -> dict[str, Tensor]:
        """Return the weights that the member trains and sends, by name, in the order of the flat vector."""
        ...

    def inputs_at(self, place: int) -> Tensor:
        """Return the first layer's input (as the spanning weights see it) for every token at a place."""
        ...

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the loss of one text."""
        ...


class _Adapted(nn.Module):
    """A linear map that is frozen, with an adapter of low rank beside it: W x + B A x."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5, requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.up = nn.Parameter(torch.zeros(width, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return W x + B A x."""
        return functional.linear(x, self.weight) + functional.linear(functional.linear(x, self.down), self.up)


class _Layer(nn.Module):
    """A transformer layer: attention and a perceptron, each after a normalisation."""

    def __init__(self, width: int, heads: int, lora: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        make = (lambda: _Adapted(width, lora)) if lora else (lambda: nn.Linear(width, width, bias=False))
        self.query, self.key, self.value = make(), make(), make()
        self.out = nn.Linear(width, width, bias=False)
        self.rise, self.fall = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next states; attention is causal."""
        inner = self.before(x)
        query, key, value = (_heads(part(inner), self.heads) for part in (self.query, self.key, self.value))
        # Written out because a search needs second derivatives, which fused attention does not have.
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        mixed = torch.softmax(scores.masked_fill(ahead, float("-inf")), -1) @ value
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y: Tensor = x + self.fall(functional.gelu(self.rise(self.between(x))))
        return y


class TinyTransformer(nn.Module):
    """A causal language model, small enough to be attacked in a second.

    >>> sum(weight.numel() for weight in TinyTransformer().parameters())
    134656
    """

    def __init__(
        self,
        *,
        vocabulary: int = 500,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        context: int = 64,
        lora: int = 0,
    ) -> None:
        super().__init__()
        self.vocabulary, self.lora = vocabulary, lora
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(_Layer(width, heads, lora if number == 0 else 0) for number in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if lora:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(name.endswith((".down", ".up")))

    @property
    def spanning(self) -> tuple[str, ...]:
        """The first layer's projections; with adapters, their half whose gradient is not zero at the start."""
        end = "up" if self.lora else "weight"
        return tuple(f"layers.0.{part}.{end}" for part in ("query", "key", "value"))

    def trained(self) -> dict[str, Tensor]:
        """Return all weights, or the adapters. Embeddings are frozen, as is usual in fine-tuning."""
        frozen = ("words.weight", "places.weight")
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad and name not in frozen}

    def inputs_at(self, place: int) -> Tensor:
        """Return each token's normalised embedding; with adapters, as the adapters of query, key and value see it."""
        inner = self._first.before(self.words.weight + self.places.weight[place])
        if not self.lora:
            return inner.detach()  # type: ignore[no-any-return]
        downs = [getattr(self._first, part).down for part in ("query", "key", "value")]
        return torch.stack([functional.linear(inner, down) for down in downs]).detach()

    def embedded(self, tokens: Tensor) -> Tensor:
        """Return the tokens' own embeddings, before positions are added."""
        return self.words(tokens)  # type: ignore[no-any-return]

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the mean loss of every token but the first, and of the end of the text."""
        return self.loss_of(self.embedded(tokens), functional.one_hot(tokens, self.vocabulary).float())

    def loss_of(self, embedded: Tensor, targets: Tensor) -> Tensor:
        """Return the same loss for embeddings and soft targets, which a search can move."""
        x = (embedded + self.places.weight[: len(embedded)])[None]
        for layer in self.layers:
            x = layer(x)
        logs = torch.log_softmax(self.head(self.norm(x))[0], -1)
        end = functional.one_hot(torch.tensor([_END]), self.vocabulary).to(targets)
        return -(torch.cat([targets[1:], end]) * logs).sum(-1).mean()

    @property
    def _first(self) -> Any:
        return self.layers[0]


class Encoder:
    """A BERT-like network with a fresh head for two classes, by the name of a pretrained model (minilm-l6)."""

    def __init__(self, source: str) -> None:
        from eris.models.text import TextClassifier

        torch.manual_seed(0)  # for the fresh head alone
        self._model = TextClassifier(source=source).eval()
        self._bert = next(iter(self._model.network.children()))
        self.vocabulary = int(self._bert.embeddings.word_embeddings.num_embeddings)

    @property
    def spanning(self) -> tuple[str, ...]:
        """The first layer's projections."""
        return tuple(f"encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key", "value"))

    def trained(self) -> dict[str, Tensor]:
        """Return the weights of the encoder's layers; embeddings are frozen."""
        return {name: weight for name, weight in self._bert.named_parameters() if name.startswith("encoder.")}

    def inputs_at(self, place: int) -> Tensor:
        """Return the embedding layer's output for each token at a place."""
        parts = self._bert.embeddings
        with torch.no_grad():
            summed = parts.word_embeddings.weight + parts.position_embeddings.weight[place]
            normalised: Tensor = parts.LayerNorm(summed + parts.token_type_embeddings.weight[0])
        return normalised

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the loss of one text labelled with the first class."""
        return functional.cross_entropy(self._model(tokens[None]), torch.zeros(1, dtype=torch.int64))


def victim_by_name(name: str, *, lora: int = 0, seed: int = 1) -> TextVictim:
    """Return a victim by name: `tiny`, or an encoder that `eris data get` knows."""
    if name == "tiny":
        torch.manual_seed(seed)
        return TinyTransformer(lora=lora)
    if lora:
        raise ConfigError("adapters can be attacked only on the tiny transformer", fix="leave --lora or --model out")
    return Encoder(name)


def flat_gradient(victim: TextVictim, tokens: Tokens) -> NDArray[np.float32]:
    """Return the gradient of one text as the flat vector that a member would send."""
    weights = victim.trained()
    with torch.enable_grad():
        parts = torch.autograd.grad(victim.loss(torch.from_numpy(tokens)), list(weights.values()))
    return np.concatenate([part.detach().numpy().ravel() for part in parts])


def spans_of(weights: Mapping[str, Tensor]) -> dict[str, slice]:
    """Return where each weight lies in the flat vector."""
    found, start = {}, 0
    for name, weight in weights.items():
        found[name] = slice(start, start + weight.numel())
        start += weight.numel()
    return found


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)
