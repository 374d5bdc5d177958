"""Gradients of single samples: four ways to clip each and add them up, all equal up to rounding.

| way | how | memory besides the network's own |
|---|---|---|
| ``vmap`` | torch.func, a few samples at a time | single gradients, 2²² values |
| ``hooks`` | Opacus' hooks at every layer | single gradients, 2²⁶ values, or those of one sample |
| ``ghost`` | Opacus' norms without the gradients, then one backward pass with every loss scaled | one gradient |
| ``loop`` | one sample after another | two gradients |

`local/torch_single_gradients.py` computes the gradients of ``vmap`` and the samples of ``loop``; it also serves audits
and tasks, which want the gradients themselves. Here only their clipped sum is wanted, so two of the ways never have
them all at once, and a way that fails is refused instead of replaced by the loop.

Which of them work depends on the network's layers (`way_of`). The loop works for every network, and the others are
compared with it before the first round (`require_equal_norms`).

Opacus takes the first dimension of a layer's input to be the batch. Position numbers, which transformers makes once for
all samples, are therefore expanded to the batch; otherwise the norms would lack them and gradients would be clipped too
little. An embedding's padding row gets no gradient here either.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from eris.errors import ConfigError, ErisError, MissingExtra, ModelError
from eris.local.torch_examples import Batch, count_of, mapped
from eris.local.torch_module import FlatModule, tensors_of
from eris.local.torch_objective import Objective
from eris.local.torch_single_gradients import (
    VALUES_AT_ONCE,
    gradients_together,
    looks_at_values,
    one_sample,
    trainable_names,
)

__all__ = ["WAYS", "ClippedSum", "SampleWay", "clipped_sum", "require_equal_norms", "way_of"]

SampleWay = Literal["vmap", "hooks", "ghost", "loop"]

_KEY = "privacy.per_sample"
_BY_LOOP = 'set privacy.per_sample = "loop"'
_VALUES_AT_ONCE = {"vmap": VALUES_AT_ONCE, "hooks": 1 << 26}  # of all single gradients together
_WORTH_HOOKS = 8  # samples that must fit; with fewer, ghost clipping or the loop need less for the same
_TINY = 1e-12
_TOLERANCE = 1e-4  # of norms; a missed position embedding makes some hundredths


class ClippedSum(NamedTuple):
    """Samples' gradients, clipped and added up, with each sample's norm before clipping and its loss."""

    total: Tensor
    norms: Tensor
    losses: Tensor


def clipped_sum(way: SampleWay, flat: FlatModule, objective: Objective, batch: Batch, bound: float) -> ClippedSum:
    """Clip every sample's gradient to norm `bound` and add them up, as many samples at once as memory allows.

    Args:
        way: how the gradients of single samples are computed.
        flat: the network.
        objective: the loss.
        batch: inputs and targets.
        bound: C.
    """
    size = max(1, _VALUES_AT_ONCE.get(way, 0) // flat.spec.n_trainable) if way != "ghost" else count_of(batch)
    total = torch.zeros(flat.spec.n_trainable, device=flat.device)
    norms, losses = list[Tensor](), list[Tensor]()
    for start in range(0, count_of(batch), size):
        part = mapped(batch, operator.itemgetter(slice(start, start + size)))
        summed = WAYS[way](flat, objective, part, bound)
        total += summed.total
        norms.append(summed.norms)
        losses.append(summed.losses)
    return ClippedSum(total, torch.cat(norms), torch.cat(losses))


def way_of(flat: FlatModule, objective: Objective, wanted: str = "auto") -> SampleWay:
    """Return how to compute the gradients of single samples: as wanted, or as the network's layers allow.

    `flat` is the network, `objective` its loss; `wanted` is a way or auto.
    """
    _require_samples_apart(flat)
    if wanted == "loop":
        return "loop"
    if wanted == "vmap" or (wanted == "auto" and not looks_at_values(flat.module)):
        return "vmap"
    if wanted not in (*get_args(SampleWay), "auto"):
        raise ConfigError(f"{_KEY} is {wanted!r}", fix=f"use auto or one of {', '.join(WAYS)}", key=_KEY)
    hindrance = _hindrance(flat, objective)
    tied = _tied(flat.module)
    if wanted == "auto":
        if hindrance or _opacus_is_missing():
            return "loop"
        if flat.spec.n_trainable * _WORTH_HOOKS <= _VALUES_AT_ONCE["hooks"]:
            return "hooks"
        return "loop" if tied else "ghost"
    if wanted == "ghost" and tied:
        hindrance = f"{tied} is one tensor under several names, so its norm cannot be computed from its parts"
    if hindrance:
        fix = 'leave it at "auto"' if tied else _BY_LOOP
        raise ConfigError(f'{_KEY} is "{wanted}", but {hindrance}', fix=fix, key=_KEY)
    if _opacus_is_missing():
        raise MissingExtra("opacus", "dp", f'{_KEY} = "{wanted}"')
    return "ghost" if wanted == "ghost" else "hooks"


def require_equal_norms(way: SampleWay, flat: FlatModule, objective: Objective, batch: Batch) -> None:
    """Refuse a way that does not give the same norms of these samples' gradients as the loop."""
    if way == "loop":
        return
    with _without_chance(flat.module):
        wanted = clipped_sum("loop", flat, objective, batch, 1.0).norms
        try:
            found = clipped_sum(way, flat, objective, batch, 1.0).norms
        except ErisError:
            raise
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise ModelError(
                f'gradients of single samples cannot be computed by "{way}": {said[0]}', fix=_BY_LOOP, key=_KEY
            ) from error
    if not torch.allclose(found, wanted, rtol=_TOLERANCE, atol=_TINY):
        ratios = ", ".join(f"{ratio:.4f}" for ratio in (found / wanted).tolist())
        raise ModelError(
            f'gradients of single samples computed by "{way}" have norms that are {ratios} of the true ones',
            fix=_BY_LOOP,
            key=_KEY,
        )


def _by_loop(flat: FlatModule, objective: Objective, batch: Batch, bound: float) -> ClippedSum:
    n = flat.spec.n_trainable
    total = torch.zeros(n, device=flat.device)
    norms, losses = [], []
    for place in range(count_of(batch)):
        losses.append(flat.differentiate(objective, *one_sample(batch, place)))
        gradient = flat.flat_gradient[:n]
        norms.append(_norm(gradient[None]).item())
        total.add_(gradient, alpha=min(1.0, bound / (norms[-1] + _TINY)))
    return ClippedSum(total, torch.tensor(norms), torch.tensor(losses))


def _by_vmap(flat: FlatModule, objective: Objective, batch: Batch, bound: float) -> ClippedSum:
    gradients, losses = gradients_together(flat, objective, batch)
    norms = gradients.norm(dim=1)
    return ClippedSum((gradients * _factors(norms, bound)[:, None]).sum(dim=0), norms, losses)


def _by_hooks(flat: FlatModule, objective: Objective, batch: Batch, bound: float) -> ClippedSum:
    count = count_of(batch)
    with _hooked(_hook_kinds()[0], flat.module, count):
        losses = _losses(flat, objective, batch)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        own = tensors_of(flat.module)
        single = [_of_the_batch(name, getattr(own[name], "grad_sample", None), count) for name in trainable_names(flat)]
    norms = torch.stack([_norm(each) for each in single], dim=1).norm(dim=1)
    factors = _factors(norms, bound)
    return ClippedSum(torch.cat([factors @ each for each in single]), norms, losses.detach())


def _by_ghost(flat: FlatModule, objective: Objective, batch: Batch, bound: float) -> ClippedSum:
    count = count_of(batch)
    with _hooked(_hook_kinds()[1], flat.module, count) as hooks:
        losses = _losses(flat, objective, batch)
        losses.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        own = tensors_of(flat.module)
        parts = [_of_the_batch(name, getattr(own[name], "_norm_sample", None), count) for name in trainable_names(flat)]
        norms = torch.cat(parts, dim=1).norm(dim=1)
        hooks.disable_hooks()
        flat.flat_gradient.zero_()
        (losses * _factors(norms, bound)).sum().backward()  # type: ignore[no-untyped-call]
    return ClippedSum(flat.flat_gradient[: flat.spec.n_trainable].clone(), norms, losses.detach())


WAYS: dict[SampleWay, Callable[[FlatModule, Objective, Batch, float], ClippedSum]] = {
    "vmap": _by_vmap,
    "hooks": _by_hooks,
    "ghost": _by_ghost,
    "loop": _by_loop,
}


def _factors(norms: Tensor, bound: float) -> Tensor:
    return (bound / (norms + _TINY)).clamp(max=1.0)


def _norm(rows: Tensor) -> Tensor:
    """Return the norm of each row, summed in float64: over millions of values, float32 would be 10⁻⁴ too small."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms.float()


def _losses(flat: FlatModule, objective: Objective, batch: Batch) -> Tensor:
    losses: Tensor = objective.losses(flat.module, *batch)  # type: ignore[attr-defined]
    if losses.shape != (count_of(batch),):
        raise ModelError(f"the losses of {count_of(batch)} samples have the shape {tuple(losses.shape)}", fix=_BY_LOOP)
    return losses


def _of_the_batch(name: str, found: Any, count: int) -> Tensor:
    """Return one row for each sample; refuse a tensor that does not have one for each."""
    if isinstance(found, Tensor) and len(found) == count:
        return found.reshape(count, -1)
    what = f"{len(found)} gradients for a batch of {count}" if isinstance(found, Tensor) else "no gradient of a sample"
    raise ModelError(f"tensor {name} has {what}: its norms would be wrong", fix=_BY_LOOP, key=_KEY, tensor=name)


def _require_samples_apart(flat: FlatModule) -> None:
    """Refuse layers that mix the samples of a batch, so that no sample has a gradient of its own."""
    for name, layer in flat.module.named_modules():
        if isinstance(layer, _BatchNorm) and (flat.spec.n_buffer or not layer.track_running_stats):
            raise ConfigError(
                f"{name} ({type(layer).__name__}) mixes the samples of a batch: no sample has a gradient of its own",
                fix="use a model with GroupNorm or LayerNorm, or privacy.unit = 'member'",
                key="privacy.unit",
            )


def _hindrance(flat: FlatModule, objective: Objective) -> str:
    """Return what keeps hooks from seeing every sample's gradient."""
    if not hasattr(objective, "losses"):
        return "the loss is known only as a mean over the batch"
    for name, layer in flat.module.named_modules():
        if getattr(layer, "is_gradient_checkpointing", False):
            return "layers are computed again in the backward pass (gradient checkpointing)"
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)) and not _is_plain(layer):
            return f"{name or 'the model'} ({type(layer).__name__}) is not a layer that hooks can follow"
    return ""


def _is_plain(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Embedding):
        return not (layer.scale_grad_by_freq or layer.max_norm or layer.sparse)
    containers = isinstance(layer, nn.ParameterDict | nn.ParameterList | nn.RNNBase | nn.EmbeddingBag)
    return not containers and not any(True for _ in (*layer.children(), *layer.buffers()))


def _tied(module: nn.Module) -> str:
    """Return the name of a trainable tensor that is used in several places; "" if there is none."""
    seen: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad and id(parameter) in seen:
            return seen[id(parameter)]
        seen[id(parameter)] = name
    return ""


def _opacus_is_missing() -> bool:
    try:
        _hook_kinds()
    except ImportError:
        return True
    return False


@functools.cache
def _hook_kinds() -> tuple[type[Any], type[Any]]:
    """Return Opacus' two kinds of hooks, with embeddings whose padding row is not learned."""
    import opacus.grad_sample  # noqa: F401 - this is what registers its layers
    from opacus.grad_sample.grad_sample_module import GradSampleHooks
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleHooksFastGradientClipping

    samplers = {**GradSampleHooks.GRAD_SAMPLERS}
    samplers[nn.Embedding] = _without_padding(samplers[nn.Embedding])
    norms = {**GradSampleHooksFastGradientClipping.NORM_SAMPLERS}
    norms[nn.Embedding] = _without_padding(norms[nn.Embedding])
    hooks = type("Hooks", (GradSampleHooks,), {"GRAD_SAMPLERS": samplers})
    ghost = type("Ghost", (GradSampleHooksFastGradientClipping,), {"GRAD_SAMPLERS": samplers, "NORM_SAMPLERS": norms})
    return hooks, ghost


def _without_padding(sampler: Callable[..., Any]) -> Callable[..., Any]:
    def sampled(layer: nn.Embedding, activations: list[Tensor], backprops: Tensor) -> Any:
        if layer.padding_idx is not None:
            backprops = backprops.masked_fill((activations[0] == layer.padding_idx)[..., None], 0.0)
        return sampler(layer, [each.contiguous() for each in activations], backprops.contiguous())  # it takes views

    return sampled


@contextmanager
def _hooked(kind: type[Any], module: nn.Module, count: int) -> Iterator[Any]:
    """Attach hooks to a network, and expand to the batch what is looked up once for all samples."""
    trained = {layer: name for name, layer in module.named_modules() if isinstance(layer, nn.Embedding)}

    def expand(layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        numbers = arguments[0]
        if numbers.ndim < 2:
            name = f"{trained[layer]}.weight"  # type: ignore[index]
            raise ModelError(
                f"{name} is looked up with a single row of numbers, which may be places or samples",
                fix=_BY_LOOP,
                key=_KEY,
                tensor=name,
            )
        return (numbers.repeat(count, *(1 for _ in numbers.shape[1:])),) if len(numbers) == 1 < count else None

    expanded = [layer.register_forward_pre_hook(expand) for layer in trained if layer.weight.requires_grad]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")  # an embedding's inputs are numbers
        hooks = kind(module, loss_reduction="sum")
        try:
            yield hooks
        finally:
            hooks.cleanup()
            for layer in module.modules():
                for left in ("activations", "max_batch_len"):  # of a pass that failed
                    vars(layer).pop(left, None)
            for handle in expanded:
                handle.remove()


@contextmanager
def _without_chance(module: nn.Module) -> Iterator[None]:
    """Turn off whatever is random in training; layers with weights stay in training, where hooks see them."""
    before: Mapping[nn.Module, bool] = {layer: layer.training for layer in module.modules()}
    module.eval()
    for layer in before:
        if next(layer.parameters(recurse=False), None) is not None and not list(layer.children()):
            layer.training = not isinstance(layer, nn.RNNBase | _BatchNorm)
    try:
        yield
    finally:
        for layer, training in before.items():
            layer.training = training
