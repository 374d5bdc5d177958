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


MISTAKES = {
    "without_pad": Mistake(
        eris.DataError,
        "the tokenizer has no pad token, and the samples differ in length: set tokenizer.pad_token = "
        "tokenizer.eos_token, or cut all samples to one length",
    ),
}


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
