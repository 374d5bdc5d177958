"""The attacked models: a member takes one gradient step of a text model on one text.

`TinyTransformer` is our own: a causal language model with learned positions and two layers. With `lora` its first
layer's projections have adapters and nothing else is trained. `Encoder` is a BERT-like network, such as MiniLM, with a
fresh head; with `lora` PEFT puts adapters on query and value of all its layers. An attack knows the weights of either,
adapters included, and the input of the first attention layer for every token and place.

An adapter adds B A x to a frozen W x. Training starts with B = 0, so in the first round the gradient of A is zero and
only that of B says anything; `train_before` takes steps on other texts, after which both do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.errors import MissingExtra
from eris.seeds import Seed

__all__ = [
    "Encoder", "TextVictim", "TinyTransformer", "Tokens", "flat_gradient", "gradients_of_each", "spans_of",
    "train_before", "victim_by_name",
]  # fmt: skip

Tokens = NDArray[np.int64]

_END = 0  # the token after every text
_LENGTH_BEFORE, _RATE_BEFORE = 16, 1e-3  # of the texts trained on before the attacked one, and of Adam


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

    @property
    def table(self) -> Tensor:
        """Each token's own embedding, before positions are added."""
        return self.words.weight

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the mean loss of every token but the first, and of the end of the text."""
        return self(self.table[tokens], functional.one_hot(tokens, self.vocabulary).float())  # type: ignore[no-any-return]

    def forward(self, embedded: Tensor, targets: Tensor) -> Tensor:
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


class Encoder(nn.Module):
    """A BERT-like network with a fresh head for two classes, by the name of a pretrained model (minilm-l6).

    Args:
        source: the pretrained model.
        lora: the rank of adapters on query and value, which are then trained alone; 0 trains the layers themselves.
    """

    def __init__(self, source: str, *, lora: int = 0) -> None:
        from eris.models.text import TextClassifier

        super().__init__()
        torch.manual_seed(0)  # for the fresh head and adapters
        self.network = TextClassifier(source=source).eval().network
        self.network.set_attn_implementation("eager")  # fused attention has no second derivatives
        self.lora = lora
        if lora:
            _adapt(self.network, lora)
        self.vocabulary = len(self.table)

    @property
    def spanning(self) -> tuple[str, ...]:
        """The first layer's projections; with adapters, their half whose gradient is not zero at the start."""
        first, end = ".layer.0.attention.self.", ".lora_B.default.weight" if self.lora else ".weight"
        parts = ("query", "value") if self.lora else ("query", "key", "value")
        wanted = tuple(f"{first}{part}{end}" for part in parts)
        return tuple(name for name in self.trained() if name.endswith(wanted))

    def trained(self) -> dict[str, Tensor]:
        """Return the weights of the encoder's layers, or the adapters; embeddings and head are frozen."""
        kind = ".lora_" if self.lora else ".encoder."
        return {name: weight for name, weight in self.network.named_parameters(prefix="network") if kind in name}

    @property
    def table(self) -> Tensor:
        """Each token's own embedding, before positions are added."""
        return self._bert.embeddings.word_embeddings.weight  # type: ignore[no-any-return]

    def inputs_at(self, place: int) -> Tensor:
        """Return the embedding layer's output for each token; with adapters, as those of query and value see it."""
        parts = self._bert.embeddings
        with torch.no_grad():
            summed = self.table + parts.position_embeddings.weight[place]
            normalised: Tensor = parts.LayerNorm(summed + parts.token_type_embeddings.weight[0])
            if not self.lora:
                return normalised
            weights = self.trained()
            downs = [weights[name.replace(".lora_B.", ".lora_A.")] for name in self.spanning]
            return torch.stack([functional.linear(normalised, down) for down in downs])

    def loss(self, tokens: Tensor) -> Tensor:
        """Return the loss of one text labelled with the first class."""
        return self(self.table[tokens], tokens)  # type: ignore[no-any-return]

    def forward(self, embedded: Tensor, _: Tensor) -> Tensor:
        """Return the same loss for embeddings, which a search can move; no token is a target here."""
        logits = self.network(inputs_embeds=embedded[None]).logits
        return functional.cross_entropy(logits, torch.zeros(1, dtype=torch.int64))

    @property
    def _bert(self) -> Any:
        return next(iter(self.network.children()))


def _adapt(network: nn.Module, rank: int) -> None:
    """Put fresh adapters on query and value of every layer, where they are usual for encoders, and freeze the rest."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as error:
        raise MissingExtra("peft", "text", "adapters on a pretrained model") from error
    settings = LoraConfig(r=rank, lora_alpha=rank, lora_dropout=0.0, target_modules=["query", "value"])
    inject_adapter_in_model(settings, network)
    for name, weight in network.named_parameters():
        weight.requires_grad_(".lora_" in name)


def victim_by_name(name: str, *, lora: int = 0, seed: int = 1) -> TinyTransformer | Encoder:
    """Return a victim by name: `tiny`, or an encoder that `eris data get` knows."""
    if name == "tiny":
        torch.manual_seed(seed)
        return TinyTransformer(lora=lora)
    return Encoder(name, lora=lora)


def train_before(victim: TinyTransformer | Encoder, steps: int, seed: Seed) -> None:
    """Take steps of Adam on other texts, as earlier rounds would, so that no half of an adapter is zero any more."""
    weights = list(victim.trained().values())
    optimizer = torch.optim.Adam(weights, lr=_RATE_BEFORE)
    for step in range(steps):
        text = torch.from_numpy(seed.child("text", step).integers(victim.vocabulary, count=_LENGTH_BEFORE))
        with torch.enable_grad():
            gradients = torch.autograd.grad(victim.loss(text), weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        optimizer.step()
        optimizer.zero_grad()


def flat_gradient(victim: TextVictim, tokens: Tokens) -> NDArray[np.float32]:
    """Return the gradient of one text as the flat vector that a member would send."""
    weights = victim.trained()
    with torch.enable_grad():
        parts = torch.autograd.grad(victim.loss(torch.from_numpy(tokens)), list(weights.values()))
    return np.concatenate([part.detach().numpy().ravel() for part in parts])


def gradients_of_each(victim: TinyTransformer | Encoder, embedded: Tensor, targets: Tensor) -> list[Tensor]:
    """Return the gradients of several texts of one length, text by text: one stack for each trained weight."""
    weights = {name: weight.detach() for name, weight in victim.trained().items()}

    def loss(weights: dict[str, Tensor], embedded: Tensor, targets: Tensor) -> Tensor:
        return torch.func.functional_call(victim, weights, (embedded, targets))  # type: ignore[no-any-return]

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, embedded, targets)
    return [found[name] for name in weights]


def spans_of(weights: Mapping[str, Tensor]) -> dict[str, slice]:
    """Return where each weight lies in the flat vector."""
    found, start = {}, 0
    for name, weight in weights.items():
        found[name] = slice(start, start + weight.numel())
        start += weight.numel()
    return found


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)
