"""What people get wrong with language models: one line each, the same from `eris run`, `eris up` and Python.

Every message is compared word for word. Mistakes that a dry batch shows leave nothing on the disk.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

import eris
from eris.cli import run, up
from eris.errors import ErisError
from tests.cli.processes import eris as command

pytest.importorskip("transformers")
pytest.importorskip("peft")

MODULE = '''
import peft
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from eris.interop.hugging_face import fine_tuning


def tokenizer(**special):
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate("_ ? . a b c d e".split())}, "?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", eos_token=".", **special)


def base(seed=7):
    """A causal language model that stands for a pretrained one: always the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=15, n_embd=16, n_layer=2, n_head=2, n_positions=12, bos_token_id=2, eos_token_id=2
            )
        )


def adapted(seed=7):
    settings = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    return peft.get_peft_model(base(seed), settings)


def dead():
    model = adapted()
    for name, parameter in model.named_parameters():
        if "lora" in name:
            torch.nn.init.zeros_(parameter)
    return model


def frozen():
    return adapted().requires_grad_(False)


def data(member):
    return [{"input_ids": [3 + (member + i + k) % 12 for k in range(4 + i % 3)]} for i in range(8)]


def tuned(config, peer, model=adapted, more=(), samples=None, pad="_", freeze="", **arguments):
    settings = transformers.TrainingArguments(
        output_dir="unused", learning_rate=0.02, per_device_train_batch_size=4, **arguments
    )
    own = [*data(peer), *more] if samples is None else samples
    special = {"pad_token": pad} if pad else {}
    return fine_tuning(
        model, own, members=config.members, tokenizer=tokenizer(**special), arguments=settings, freeze=freeze
    )


sound = tuned
two_bases = lambda config, peer: tuned(config, peer, lambda: adapted(7 + (peer == 2)))
without_pad = lambda config, peer: tuned(config, peer, pad="")
too_long = lambda config, peer: tuned(config, peer, more=[{"input_ids": [3] * 40}])
beyond = lambda config, peer: tuned(config, peer, more=[{"input_ids": [3, 77]}])
nothing = lambda config, peer: tuned(config, peer, samples=[])
untokenised = lambda config, peer: tuned(config, peer, samples=[{"text": "a b c"}] * 8)
unmoved = lambda config, peer: tuned(config, peer, dead)
all_frozen = lambda config, peer: tuned(config, peer, frozen)
no_adapter = lambda config, peer: tuned(config, peer, base, freeze="A")
made_already = lambda config, peer: tuned(config, peer, base())
no_model = lambda config, peer: tuned(config, peer, lambda: torch.nn.Linear(2, 2))
steps_of_saving = lambda config, peer: tuned(config, peer, save_steps=7)
pushed = lambda config, peer: tuned(config, peer, push_to_hub=True)
sharded = lambda config, peer: tuned(config, peer, fsdp="full_shard")
best_at_the_end = lambda config, peer: tuned(
    config, peer, load_best_model_at_end=True, eval_strategy="steps", save_strategy="steps"
)
odd_optimizer = lambda config, peer: tuned(config, peer, optim="adafactor")
half_epochs = lambda config, peer: tuned(config, peer, num_train_epochs=1.5)
'''


class Mistake(NamedTuple):
    """The sentence a mistake is answered with."""

    kind: type[ErisError]
    said: str


LEAVE = "leave it out"
PRIVATE = "a run sends data only to its peers; push the folder pretrained yourself"
MISTAKES = {
    "without_pad": Mistake(
        eris.DataError,
        "the samples differ in length, but the tokenizer has no pad token [peer=0]: set tokenizer.pad_token "
        "= tokenizer.eos_token, or cut all samples to one length",
    ),
    "too_long": Mistake(
        eris.DataError,
        "sample 8 has 40 tokens, but the model has only 12 positions [sample=8, peer=0]: tokenise with "
        "truncation=True, max_length=12",
    ),
    "beyond": Mistake(
        eris.DataError,
        "a token of sample 8 is 77, not 0 … 14: the embedding has 15 rows [sample=8, peer=0]: use the model's own "
        "tokenizer, or enlarge the embedding to the tokenizer's vocabulary",
    ),
    "nothing": Mistake(eris.DataError, "member 0 has no samples [key=members, peer=0]: give it some, or leave it out"),
    "untokenised": Mistake(
        eris.DataError,
        "samples have text, none of which GPT2LMHeadModel takes [peer=0]: tokenise them: "
        "dataset.map(lambda sample: tokenizer(sample['text'], truncation=True))",
    ),
    "all_frozen": Mistake(
        eris.ModelError, "every tensor of the model is frozen: make at least one trainable: tensor.requires_grad_(True)"
    ),
    "no_adapter": Mistake(
        eris.ConfigError,
        "freeze is 'A', but the model has no LoRA adapter: use freeze='A' with a PEFT model that has LoRA adapters, "
        "or leave it out",
    ),
    "made_already": Mistake(
        eris.InputError,
        "the model is a GPT2LMHeadModel that is already built: give the function that makes it, like a Trainer's "
        "model_init",
    ),
    "no_model": Mistake(
        eris.InputError,
        "model() returned a Linear, not a transformers or PEFT model: for any other network use "
        "eris.Federation(model, data)",
    ),
    "steps_of_saving": Mistake(
        eris.ConfigError,
        "TrainingArguments.save_steps is 7: the run keeps its own checkpoints (`eris run --resume`) and writes the "
        f"model at the end [key=arguments.save_steps]: {LEAVE}",
    ),
    "pushed": Mistake(
        eris.ConfigError, f"TrainingArguments.push_to_hub is True: {PRIVATE} [key=arguments.push_to_hub]: {LEAVE}"
    ),
    "sharded": Mistake(
        eris.ConfigError,
        f"TrainingArguments.fsdp is True: a peer trains in one process [key=arguments.fsdp]: {LEAVE}",
    ),
    "best_at_the_end": Mistake(
        eris.ConfigError,
        "TrainingArguments.eval_strategy is 'steps': the run evaluates the shared model (evaluate_every) "
        f"[key=arguments.eval_strategy]: {LEAVE}",
    ),
    "odd_optimizer": Mistake(
        eris.ConfigError,
        "TrainingArguments.optim is 'adafactor' [key=arguments.optim]: use one of adamw_torch, adamw_torch_fused, sgd",
    ),
    "half_epochs": Mistake(
        eris.ConfigError,
        "TrainingArguments.num_train_epochs is 1.5 [key=arguments.num_train_epochs]: use whole epochs, or max_steps",
    ),
}
BASES = re.escape(
    " has another base model: its frozen tensors have the digest X…, those here have X…: load the same pretrained "
    "weights in the same precision on every peer: they are never sent, and adapters of different bases cannot be "
    "averaged"
).replace("X", r"\w{12}")
UNMOVED = (
    "tensor base_model.model.transformer.h.0.attn.c_attn.lora_B.default.weight did not move in the first round "
    "(2 of 4 did not) [tensor=base_model.model.transformer.h.0.attn.c_attn.lora_B.default.weight]: check how "
    "it is initialised (a LoRA adapter whose A and B are both zero never learns), or freeze it: requires_grad_(False)"
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mistakes.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mistakes", raising=False)
    return "mistakes"


def by_command(verb: Any, *words: str) -> BaseException | None:
    app = typer.Typer()
    app.callback()(lambda: None)
    verb.register(app)
    return CliRunner().invoke(app, list(words)).exception


@pytest.mark.parametrize("name", MISTAKES)
def test_refused_before_the_first_round(name: str, module: str, tmp_path: Path) -> None:
    kind, sentence = MISTAKES[name]
    settings = ["--task", f"{module}:{name}", "--set", "members=3", "--set", "rounds=2", "--out", "folder"]
    said = [
        by_command(run, "run", *settings, "--set", "method=eris", "--set", "workers=1", "--quiet"),
        by_command(up, "up", *settings),
    ]
    with pytest.raises(kind) as refused:
        eris.Federation(task=getattr(importlib.import_module(module), name), members=3, rounds=2)
    for error in (*said, refused.value):
        assert isinstance(error, kind), error
        assert str(error) == sentence
    assert "\n" not in sentence
    assert {path.name for path in tmp_path.iterdir()} <= {"mistakes.py", "__pycache__"}


def test_noise_on_samples_of_a_task_that_trains_itself(module: str, tmp_path: Path) -> None:
    said = (
        "your own task takes its local steps itself: DP-SGD cannot be added to it [key=privacy.unit]: use "
        "privacy.unit = 'member', or name model and data"
    )
    changes = ["members=3", "method=eris+ldp", 'privacy={unit = "sample", epsilon = 8.0, clip = 1.0}']
    words = ["--task", f"{module}:sound", "--out", "folder", *(w for change in changes for w in ("--set", change))]
    with pytest.raises(eris.ConfigError) as refused:
        eris.Federation(task=importlib.import_module(module).sound, changes=changes).run("folder")
    for error in (by_command(run, "run", *words, "--quiet"), by_command(up, "up", *words), refused.value):
        assert str(error) == said
    assert not (tmp_path / "folder").exists()


def by_all(module: str, name: str) -> tuple[str, str, str]:
    """Return what is said by `eris run`, by Python and by real processes of a mistake that only peers together make."""
    settings = ["--task", f"{module}:{name}", "--set", "members=3", "--set", "rounds=2"]
    run_said = by_command(
        run, "run", *settings, "--set", "method=eris", "--set", "workers=1", "--quiet", "--out", "run"
    )
    with pytest.raises(ErisError) as refused:
        eris.Federation(task=getattr(importlib.import_module(module), name), members=3, rounds=2).run("python")
    up_said = command("up", *settings, "--out", "up", cwd=Path.cwd(), code=20)
    return str(run_said), str(refused.value), " ".join(up_said.split())


def test_peers_with_another_base_are_refused_when_they_join(module: str, tmp_path: Path) -> None:
    by_run, by_python, by_processes = by_all(module, "two_bases")
    assert re.fullmatch("the task of member 2" + BASES, by_run)
    assert by_python == by_run
    assert re.search(r"peer-\d ended with exit code 12: refused \(malformed\): peer peer-\d" + BASES, by_processes), (
        by_processes
    )
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "python").exists()


@pytest.mark.slow
def test_an_adapter_that_does_not_move_ends_the_run(module: str) -> None:
    by_run, by_python, by_processes = by_all(module, "unmoved")
    assert by_run == UNMOVED
    assert by_python == UNMOVED
    assert UNMOVED in by_processes
