"""Fine-tune Hugging Face transformers and PEFT models with eris, as with a `Trainer`.

    def at_home(config, peer):  # eris join --task, eris up --task
        return fine_tuning(model, tokenised[peer], members=config.members, arguments=ARGUMENTS, tokenizer=tokenizer)

`model` is what a Trainer calls `model_init`: a function that makes the model. A simulation takes a tokenised dataset
for each member, a peer its own. `TrainingArguments` apply to every *round*: epochs or steps, and the learning-rate
schedule. Arguments that mean nothing here are refused by name.

A PEFT model sends only its adapters. Averaging them is FedAvg of the factors, and mean(B)·mean(A) is not mean(B·A);
``freeze="A"`` trains B alone, which makes the mean exact and halves the bytes. The base model is never sent; peers with
another base are refused when they join, by a digest of what is frozen.

When a run ends, the model is in the folder `pretrained` as `save_pretrained` writes it: an adapter for
`PeftModel.from_pretrained`, or the whole model.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from torch import Tensor, nn

from eris.errors import ConfigError, DataError, InputError, MissingExtra, ModelError
from eris.local.own_examples import Items, JoinedExamples, is_items
from eris.local.spec import Vector
from eris.local.task import LocalResult, Memory
from eris.local.torch_losses import objective_of
from eris.local.torch_module import FlatModule
from eris.local.torch_objective import Metric, parameters_of
from eris.local.torch_task import TorchTask
from eris.local.torch_work import LocalWork
from eris.models.text import quietly
from eris.seeds import Seed

__all__ = ["FineTuning", "fine_tuning", "local_work_of", "save_pretrained"]

FOLDER = "pretrained"  # in a run's folder
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions")
_UNDECAYED = ("*bias", "*norm*", "*Norm*", "*ln_*")  # as a Trainer leaves them
_OPTIMIZERS = {"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "sgd": "sgd"}
_PACES = ("constant", "linear", "cosine", "constant_with_warmup")
_HONOURED = {
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs"),
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "optim"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "bf16", "fp16"),
    *("gradient_checkpointing", "per_device_eval_batch_size", "remove_unused_columns"),
}
_OF_NO_MATTER = {
    *("output_dir", "do_train", "do_eval", "use_cpu", "disable_tqdm", "log_level", "use_cache", "dataloader_pin_memory")
}
_WHY = {
    "save": "the run keeps its own checkpoints (`eris run --resume`) and writes the model at the end",
    "resume": "runs are resumed with `eris run --resume`",
    "load_best": "peers agree on the last model",
    "push_to_hub": "a run sends data only to its peers; push the folder pretrained yourself",
    "hub": "a run sends data only to its peers; push the folder pretrained yourself",
    "deepspeed": "a peer trains in one process",
    "fsdp": "a peer trains in one process",
    "ddp": "a peer trains in one process",
    "report_to": "use the run's trackers: Federation(…).run(track=…)",
    "logging": "every round's figures are in metrics.jsonl",
    "eval": "the run evaluates the shared model (evaluate_every)",
    "seed": "batches come from the run's seed and the peer's private one",
    "data_seed": "batches come from the run's seed and the peer's private one",
}


class FineTuning(TorchTask):
    """The task of training a transformers model or a PEFT adapter on each member's tokenised samples."""

    tokenizer: Any = None

    def train(self, member: int, model: Vector, memory: Memory, *, round: int, seed: Seed) -> LocalResult:
        """Train; refuse an adapter that does not move in the first round, because it never will."""
        result = super().train(member, model, memory, round=round, seed=seed)
        if round == 0:
            self._require_moved(result.update)
        return result

    def save_model(self, model: Vector, folder: Path) -> None:
        """Write the model as `save_pretrained` does, with its tokenizer."""
        with self._at_work(None) as flat:
            self._load_for_evaluation(flat, model)
            _save(flat.module, folder / FOLDER, self.tokenizer)

    def _require_moved(self, update: Vector) -> None:
        still = [name for name, part in self.spec.unflatten(update).items() if not part.any()]
        # B begins at zero, so A has no gradient before B moves: with one step per round, A first moves in the second.
        still = [name for name in still if "lora_A" not in name and "lora_embedding_A" not in name]
        if still:
            raise ModelError(
                f"tensor {still[0]} did not move in the first round ({len(still)} of {len(self.spec.slices)} did not)",
                fix="check how it is initialised (a LoRA adapter whose A and B are both zero never learns), "
                "or freeze it: requires_grad_(False)",
                tensor=still[0],
            )


def fine_tuning(
    model: Callable[[], Any],
    train: Any,
    test: Any = None,
    *,
    members: int | None = None,
    arguments: Any = None,
    tokenizer: Any = None,
    collator: Callable[[list[Any]], Any] | None = None,
    loss: str | Callable[[Any, Any], Any] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    freeze: Literal["", "A"] = "",
) -> FineTuning:
    """Return the task of fine-tuning the model that `model()` makes.

    Args:
        model: makes the model, like a Trainer's `model_init`.
        train: for a simulation, a list with a tokenised dataset for each member; with `members`, this peer's dataset.
        test: a tokenised dataset to evaluate on.
        members: number of members of the federation, in a peer.
        arguments: `TrainingArguments` for every round.
        tokenizer: pads batches, and is saved with the model.
        collator: puts batches together, instead of the tokenizer.
        loss: as for `Federation(loss=…)`; by default it follows from the kind of model.
        metrics: further figures to report.
        freeze: ``"A"`` trains only the B of LoRA adapters.
    """
    module = _first(model)
    data = [train] if members is not None else list(train)
    if not data or not all(is_items(each) for each in data):
        raise InputError(
            "train is not a list of tokenised datasets, one for each member",
            fix="give [dataset, …], or one dataset and members=… in a peer",
        )
    work, evaluation_batch, checkpointing = local_work_of(arguments)
    causal = _is(module, "ForCausalLM", "LMHeadModel")
    every_column = arguments is not None and not arguments.remove_unused_columns
    made = _collator(collator, tokenizer, [*data, *([] if test is None else [test])], causal)
    collate = made if every_column else functools.partial(_known_columns, _taken_by(module), made)
    for member, each in enumerate(data):
        whose = f"member {member}'s " if members is None else ""
        if not every_column:
            _require_taken(module, each, whose)
        _require_places(module, each, whose)
    examples = JoinedExamples([Items(each, collate) for each in data])
    own = [np.arange(start, end) for start, end in zip(examples.starts, examples.starts[1:], strict=False)]
    task = FineTuning(
        functools.partial(_made, model, freeze, checkpointing),
        examples,
        own if members is None else own * members,
        test=None if test is None else Items(test, collate),
        tests=[] if test is None else [np.arange(len(test))] * (members or len(data)),
        work=work,
        objective=objective_of(loss or _loss_of(module), metrics),
        evaluation_batch=evaluation_batch,
    )
    task.tokenizer = tokenizer
    return task


def local_work_of(arguments: Any) -> tuple[LocalWork, int, bool]:
    """Return a round's work by `TrainingArguments`, the evaluation batch size, and whether activations are recomputed.

    Arguments that were changed but mean nothing here are refused by name.
    """
    if arguments is None:
        return LocalWork(optimizer="adamw", lr=5e-5, batch=8), 8, False
    default = _default_arguments(type(arguments))
    changed = [each.name for each in dataclasses.fields(arguments) if _differs(arguments, default, each.name)]
    for name in changed:
        if name not in _HONOURED | _OF_NO_MATTER:
            raise _refused(name, getattr(arguments, name))
    optimizer, pace = str(_plain(arguments.optim)), str(_plain(arguments.lr_scheduler_type))
    if optimizer not in _OPTIMIZERS:
        raise _refused("optim", optimizer, f"use one of {', '.join(_OPTIMIZERS)}")
    if pace not in _PACES:
        raise _refused("lr_scheduler_type", pace, f"use one of {', '.join(_PACES)}")
    if arguments.num_train_epochs != int(arguments.num_train_epochs) and arguments.max_steps <= 0:
        raise _refused("num_train_epochs", arguments.num_train_epochs, "use whole epochs, or max_steps")
    size, parts = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    adaptive = _OPTIMIZERS[optimizer] == "adamw"
    work = LocalWork(
        optimizer="adamw" if adaptive else "sgd",
        lr=arguments.learning_rate,
        betas=(arguments.adam_beta1, arguments.adam_beta2),
        eps=arguments.adam_epsilon,
        weight_decay=arguments.weight_decay,
        undecayed=_UNDECAYED,
        max_norm=arguments.max_grad_norm or None,
        pace="constant" if pace == "constant_with_warmup" else pace,  # type: ignore[arg-type]
        warmup=int(arguments.warmup_steps),
        epochs=max(1, math.ceil(arguments.num_train_epochs)),
        steps=arguments.max_steps if arguments.max_steps > 0 else None,
        batch=size * parts,
        micro_batch=size if parts > 1 else None,
        precision="bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "float32",
    )
    return work, arguments.per_device_eval_batch_size, bool(arguments.gradient_checkpointing)


def save_pretrained(
    run: str | Path, model: Callable[[], Any], folder: str | Path, *, tokenizer: Any = None, freeze: str = ""
) -> Path:
    """Write the model in a run's or a peer's folder as `save_pretrained` does, and return where.

    Args:
        run: the folder, which has a model.safetensors.
        model: makes the model as it was made for the run.
        folder: where to write.
        tokenizer: written beside the model, if given.
        freeze: what was frozen in the run.
    """
    from safetensors.numpy import load_file

    flat = FlatModule(_made(model, freeze, False))
    flat.load(flat.spec.flatten(load_file(Path(run) / "model.safetensors")))
    _save(flat.module, Path(folder), tokenizer)
    return Path(folder)


def _save(module: nn.Module, folder: Path, tokenizer: Any) -> None:
    """Save copies: all tensors of a task share one piece of memory, which would be saved with each of them."""
    copies: dict[int, Tensor] = {}
    state = {
        name: copies.setdefault(tensor.data_ptr(), tensor.detach().to("cpu", copy=True).contiguous())
        for name, tensor in module.state_dict().items()
    }
    with quietly(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Could not find a config file"
        )  # of a base that lies in one GGUF file
        module.save_pretrained(str(folder), state_dict=state)  # type: ignore[operator]
        if tokenizer is not None:
            tokenizer.save_pretrained(str(folder))


def _first(model: Callable[[], Any]) -> nn.Module:
    """Return a model to inspect; the one to train is made again, under the run's seed."""
    if isinstance(model, nn.Module):
        raise InputError(
            f"the model is a {type(model).__name__} that is already built",
            fix="give the function that makes it, like a Trainer's model_init",
        )
    return _made(model, "", False)


def _made(model: Callable[[], Any], freeze: str, checkpointing: bool) -> nn.Module:
    with quietly():
        module = model()
    if not isinstance(module, nn.Module) or not hasattr(module, "save_pretrained"):
        raise InputError(
            f"model() returned a {type(module).__name__}, not a transformers or PEFT model",
            fix="for any other network use eris.Federation(model, data)",
        )
    if freeze:
        _freeze_a(module, freeze)
    if checkpointing:
        module.gradient_checkpointing_enable()  # type: ignore[operator]
        module.enable_input_require_grads()  # type: ignore[operator]
    return module


def _freeze_a(module: nn.Module, freeze: str) -> None:
    names = [name for name, _ in module.named_parameters() if "lora_A" in name]
    if freeze != "A" or not names:
        raise ConfigError(
            f"freeze is {freeze!r}, " + ("but the model has no LoRA adapter" if freeze == "A" else "not 'A'"),
            fix="use freeze='A' with a PEFT model that has LoRA adapters, or leave it out",
        )
    for name, parameter in module.named_parameters():
        if "lora_A" in name:
            parameter.requires_grad_(False)


def _is(module: nn.Module, *endings: str) -> bool:
    """Return whether a model, or the model under its adapters, is of one of these kinds."""
    return type(_under_adapters(module)).__name__.endswith(endings)


def _under_adapters(module: Any) -> nn.Module:
    base: nn.Module = module.get_base_model() if hasattr(module, "get_base_model") else module
    return base


def _loss_of(module: nn.Module) -> str:
    if _is(module, "ForCausalLM", "LMHeadModel"):
        return "next-token"
    if _is(module, "ForTokenClassification"):
        return "tokens"
    settings: Any = module.config
    kind = getattr(settings, "problem_type", None) or "single_label_classification"
    single = kind == "single_label_classification" and getattr(settings, "num_labels", 1) > 1
    return "cross-entropy" if _is(module, "ForSequenceClassification") and single else "model"


def _collator(
    collator: Callable[[list[Any]], Any] | None, tokenizer: Any, data: Sequence[Any], causal: bool
) -> Callable[[list[Any]], Any]:
    """Return the function that puts a batch together.

    Args:
        collator: the user's own; nothing else is looked at then.
        tokenizer: pads; without one, samples must be equally long.
        data: everybody's samples, to see their columns.
        causal: whether the model predicts the next token.
    """
    if collator is not None:
        return collator
    if tokenizer is None:
        return _stacked
    if tokenizer.pad_token is None and any(_uneven(each) for each in data):
        raise DataError(
            "the samples differ in length, but the tokenizer has no pad token",
            fix="set tokenizer.pad_token = tokenizer.eos_token, or cut all samples to one length",
        )
    import transformers

    if causal and not any("labels" in _columns(each) for each in data):
        chosen: Any = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    elif any("labels" in _columns(each) and not _is_scalar(each, "labels") for each in data):
        chosen = transformers.DataCollatorForTokenClassification(tokenizer)
    else:
        chosen = transformers.DataCollatorWithPadding(tokenizer)
    return cast("Callable[[list[Any]], Any]", chosen)


def _known_columns(taken: frozenset[str], collator: Callable[[list[Any]], Any], samples: list[Any]) -> Any:
    """Leave out columns that the model does not take, as a Trainer does, and put the rest together."""
    if samples and isinstance(samples[0], Mapping):
        samples = [{name: value for name, value in sample.items() if name in taken} for sample in samples]
    return collator(samples)


def _stacked(samples: list[Any]) -> Any:
    return Items(samples).take(np.arange(len(samples)))


def _taken_by(module: nn.Module) -> frozenset[str]:
    names, _ = parameters_of(_under_adapters(module))
    return names | {"labels", "label", "label_ids"}


def _columns(data: Any) -> Iterable[str]:
    if hasattr(data, "column_names"):
        return list(data.column_names)
    first = data[0] if len(data) else {}
    return list(first) if isinstance(first, Mapping) else []


def _lengths(data: Any) -> list[int]:
    """Return how many tokens each sample has; empty if that is not known."""
    if "input_ids" not in _columns(data):
        return []
    if hasattr(data, "column_names"):
        return [len(row) for row in data["input_ids"]]
    return [len(data[place]["input_ids"]) for place in range(len(data))]


def _uneven(data: Any) -> bool:
    return len(set(_lengths(data))) > 1


def _is_scalar(data: Any, name: str) -> bool:
    return len(data) == 0 or np.ndim(data[0][name]) == 0


def _require_taken(module: nn.Module, data: Any, whose: str) -> None:
    """Refuse samples with no column that the model takes, such as texts that were not tokenised."""
    columns, model = list(_columns(data)), _under_adapters(module)
    if columns and not (parameters_of(model)[0] - {"labels"}) & set(columns):
        raise DataError(
            f"{whose}samples have {', '.join(columns)}, none of which {type(model).__name__} takes",
            fix="tokenise them: dataset.map(lambda sample: tokenizer(sample['text'], truncation=True))",
        )


def _require_places(module: nn.Module, data: Any, whose: str) -> None:
    """Refuse samples that are longer than the model has positions."""
    settings: Any = module.config
    most = next((getattr(settings, name) for name in _POSITIONS if isinstance(getattr(settings, name, None), int)), 0)
    for place, length in enumerate(_lengths(data)):
        if 0 < most < length:
            raise DataError(
                f"{whose}sample {place} has {length} tokens, but the model has only {most} positions",
                fix=f"tokenise with truncation=True, max_length={most}",
                sample=place,
            )


def _default_arguments(kind: type[Any]) -> Any:
    try:
        return kind(output_dir="unused")
    except ImportError as error:
        raise MissingExtra("accelerate", "text", "TrainingArguments") from error


def _differs(arguments: Any, default: Any, name: str) -> bool:
    mine, theirs = _plain(getattr(arguments, name)), _plain(getattr(default, name))
    return bool(mine != theirs) and name != "accelerator_config"


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _refused(name: str, value: Any, instead: str = "") -> ConfigError:
    why = next((why for start, why in _WHY.items() if name.startswith(start)), "it means nothing in a round of eris")
    return ConfigError(
        f"TrainingArguments.{name} is {_plain(value)!r}" + ("" if instead else f": {why}"),
        fix=instead or "leave it out",
        key=f"arguments.{name}",
    )
