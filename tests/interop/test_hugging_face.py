"""Models of transformers and PEFT, as one would hand them to a Trainer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import eris
from eris.errors import ConfigError, DataError, InputError, ModelError, SpecError
from eris.interop.hugging_face import fine_tuning, local_work_of, save_pretrained
from eris.local.spec import ModelSpec
from eris.local.torch_optimizer import pace_at
from eris.local.torch_work import LocalWork
from eris.seeds import private_root, public_root

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["good", "bad", "film", "actor", "plot", "story", "the", "a", "was", "is", "very", "not"]


def tokenizer(pad="<pad>"):
    names = ["<pad>", "<unk>", "<end>", *WORDS]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(dict(zip(names, range(99), strict=False)), "<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", eos_token="<end>", **({"pad_token": pad} if pad else {})
    )


def classifier():
    return transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=15, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=12, pad_token_id=0
        )
    )


def base(seed=7):
    """A causal language model that stands for a pretrained one: always the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=15, n_embd=16, n_layer=2, n_head=2, n_positions=12, bos_token_id=2, eos_token_id=2
            )
        )


def adapted(seed=7, **options):
    settings = {"r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True, "task_type": "CAUSAL_LM", **options}
    return peft.get_peft_model(base(seed), peft.LoraConfig(**settings))


def reviews(member, count=12):
    text = [
        f"the {WORDS[2 + (i + member) % 4]} was {'very ' * (i % 3)}{'good' if i % 2 else 'bad'}" for i in range(count)
    ]
    return [{**tokenizer()(each), "labels": i % 2, "text": each} for i, each in enumerate(text)]


def stories(member, count=12):
    return [{"input_ids": each["input_ids"]} for each in reviews(member, count)]


def arguments(**changes):
    settings = {"output_dir": "unused", "learning_rate": 0.02, "num_train_epochs": 2, "per_device_train_batch_size": 4}
    return transformers.TrainingArguments(**{**settings, **changes})


def ran(task, folder, method="eris", rounds=2):
    return eris.Federation(task=task, method=method, members=3, rounds=rounds).run(folder, report=False)[method]


def of_three(make, data, **settings):
    return fine_tuning(make, [data(k) for k in range(3)], data(9), tokenizer=tokenizer(), **settings)


def test_a_classifier_is_fine_tuned_and_saved_whole(tmp_path, capfd):
    result = ran(of_three(classifier, reviews, arguments=arguments()), tmp_path / "run", rounds=4)
    assert result["final_accuracy"] == 1.0
    folder = tmp_path / "run" / "pretrained"
    assert "Loading" not in capfd.readouterr().err  # no bars of anybody's own
    saved = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    texts = tokenizer()(["the film was good", "the film was bad"], return_tensors="pt")
    assert saved(**{k: v for k, v in texts.items() if k != "token_type_ids"}).logits.argmax(1).tolist() == [1, 0]
    assert transformers.AutoTokenizer.from_pretrained(folder).pad_token == "<pad>"
    by_hand = save_pretrained(tmp_path / "run", classifier, tmp_path / "by-hand")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(by_hand)
    for name, tensor in saved.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


@pytest.mark.parametrize("freeze", ["", "A"])
def test_adapters_only_are_sent_and_the_folder_is_peft_s(freeze, tmp_path):
    task = of_three(adapted, stories, arguments=arguments(), freeze=freeze)
    trained = {tensor.name for tensor in task.spec.tensors if tensor.role == "trainable"}
    assert trained
    assert all("lora_B" in name or (not freeze and "lora_A" in name) for name in trained)
    assert task.spec.n == (2 * 2 * 48 if freeze else 2 * 2 * (16 + 48))
    first = ran(task, tmp_path / "run")
    assert first["final_loss"] < 2.7  # log 15, what a guess costs
    model = peft.PeftModel.from_pretrained(base(), str(tmp_path / "run" / "pretrained")).eval()
    written = model.generate(torch.tensor([[9, 5]]), max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert written.shape[1] > 2
    ours = task.evaluate(final(tmp_path / "run", task.spec))["loss"]
    batch = transformers.DataCollatorForLanguageModeling(tokenizer(), mlm=False)(stories(9))
    with torch.no_grad():
        assert model(**batch).loss.item() == pytest.approx(ours, rel=1e-4)


def final(folder, spec):
    from safetensors.numpy import load_file

    return spec.flatten(load_file(folder / "model.safetensors"))


def test_a_peer_with_another_base_is_refused_by_its_digest():
    here, same, other = (of_three(lambda seed=seed: adapted(seed), stories).spec for seed in (7, 7, 8))
    assert here.digest == same.digest
    assert [t.name for t in here.tensors] == [t.name for t in other.tensors]
    with pytest.raises(SpecError, match="peer anna has another base model"):
        here.require_same(other.digest, where="peer anna", base=other.base)
    assert ModelSpec(here.tensors).digest != here.digest


def test_what_trainer_does_in_a_round():
    """Schedule, clipping, decay and accumulation, against the library's own loop on one member."""
    data = stories(0)
    settings = arguments(weight_decay=0.1, warmup_steps=1, max_grad_norm=0.5, optim="adamw_torch")
    task = fine_tuning(base, data, members=1, arguments=settings, tokenizer=tokenizer())
    start = task.initial(public_root(1))
    module = base().train()
    task._module().module.train = lambda mode=True: task._module().module  # no dropout on either side
    update = task.train(0, start, task.memory(0), round=0, seed=private_root(1, 0)).update
    module.eval()
    no_decay = [p for n, p in module.named_parameters() if n.endswith("bias") or "ln_" in n]
    ids = {id(p) for p in no_decay}
    decay = [p for p in module.parameters() if id(p) not in ids]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=0.02
    )
    schedule = transformers.get_scheduler("linear", optimizer, 1, 6)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer(), mlm=False)
    seed = private_root(1, 0).child("train", 0)
    for epoch in range(2):
        order = seed.child("epoch", epoch).permutation(12)
        for begin in range(0, 12, 4):
            optimizer.zero_grad()
            module(**collate([data[place] for place in order[begin : begin + 4]])).loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()
            schedule.step()
    wanted = task.spec.flatten({n: p.detach().numpy() for n, p in module.state_dict().items()})
    np.testing.assert_allclose(start - update, wanted, atol=2e-5)


def test_arguments_become_local_work():
    work, evaluation, checkpointing = local_work_of(
        arguments(gradient_accumulation_steps=2, max_steps=5, bf16=True, use_cpu=True, lr_scheduler_type="cosine",
                  per_device_eval_batch_size=3, gradient_checkpointing=True, warmup_steps=2)
    )  # fmt: skip
    assert (work.batch, work.micro_batch, work.steps, work.precision, work.pace) == (8, 4, 5, "bf16", "cosine")
    assert (evaluation, checkpointing) == (3, True)
    assert pace_at(work, 0, 5) == 0.0
    assert local_work_of(None)[0] == LocalWork(optimizer="adamw", lr=5e-5, batch=8)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"push_to_hub": True},
            r"TrainingArguments\.push_to_hub is True: a run sends data only to its peers",
        ),
        ({"save_steps": 7}, r"TrainingArguments\.save_steps is 7: the run keeps its own checkpoints"),
        ({"logging_steps": 5}, r"logging_steps is 5: every round's figures are in metrics\.jsonl"),
        ({"seed": 1}, r"seed is 1: batches come from the run's seed"),
        ({"optim": "adafactor"}, r"optim is 'adafactor'(?s:.*)use one of adamw_torch"),
        ({"lr_scheduler_type": "polynomial"}, r"lr_scheduler_type is 'polynomial'"),
        ({"label_smoothing_factor": 0.1}, r"label_smoothing_factor is 0\.1: it means nothing in a round of eris"),
        ({"num_train_epochs": 1.5}, r"num_train_epochs is 1\.5(?s:.*)whole epochs"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_by_name(changes, says):
    with pytest.raises(ConfigError, match=says):
        local_work_of(arguments(**changes))


def test_every_field_is_known_or_refused():
    known = {each.name for each in dataclasses.fields(transformers.TrainingArguments)}
    from eris.interop.hugging_face import _HONOURED, _OF_NO_MATTER

    assert known >= _HONOURED | _OF_NO_MATTER


def test_bad_inputs_are_explained():
    with pytest.raises(DataError, match="the samples differ in length, but the tokenizer has no pad token"):
        fine_tuning(base, [stories(0)], tokenizer=tokenizer(pad=""))
    long = [{"input_ids": [3] * 12}, {"input_ids": [3] * 40}]
    with pytest.raises(DataError, match="member 0's sample 1 has 40 tokens, but the model has only 12 positions"):
        fine_tuning(base, [long], tokenizer=tokenizer())
    with pytest.raises(InputError, match="already built"):
        fine_tuning(base(), [stories(0)])
    with pytest.raises(InputError, match="not a transformers or PEFT model"):
        fine_tuning(lambda: torch.nn.Linear(2, 2), [stories(0)])
    with pytest.raises(ConfigError, match="has no LoRA adapter"):
        fine_tuning(base, [stories(0)], tokenizer=tokenizer(), freeze="A").initial(public_root(0))


def test_an_adapter_that_does_not_move_ends_the_first_round():
    def dead():
        model = adapted()
        for name, parameter in model.named_parameters():
            if "lora" in name:
                torch.nn.init.zeros_(parameter)
        return model

    task = of_three(dead, stories, arguments=arguments())
    with pytest.raises(ModelError, match=r"lora_B\.default\.weight did not move in the first round"):
        task.train(0, task.initial(public_root(1)), task.memory(0), round=0, seed=private_root(1, 0))


def test_gradient_checkpointing_gives_the_same_gradient():
    updates = []
    for recomputed in (False, True):
        task = of_three(adapted, stories, arguments=arguments(gradient_checkpointing=recomputed, max_steps=1))
        updates.append(task.train(0, task.initial(public_root(1)), {}, round=1, seed=private_root(1, 0)).update)
    np.testing.assert_allclose(updates[0], updates[1], atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*")  # bitsandbytes warns of what it has not compiled
def test_a_base_in_4_bits_stays_local(tmp_path):
    """Where bitsandbytes is installed (it is no extra of ours), on the processor too."""
    pytest.importorskip("bitsandbytes")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    whole = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=15, num_key_value_heads=2, max_position_embeddings=12, **sizes)
    )
    whole.save_pretrained(tmp_path / "base")

    def small_base():
        bits = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
        )
        return transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "base", quantization_config=bits, device_map={"": "cpu"}, dtype=torch.float32
        )

    def small():
        settings = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        return peft.get_peft_model(small_base(), settings)

    task = of_three(small, stories, arguments=arguments())
    roles = {(tensor.role, tensor.dtype) for tensor in task.spec.tensors}
    assert roles == {("trainable", "float32"), ("frozen", "uint8"), ("frozen", "float32")}
    assert task.spec.n == 2 * 2 * (64 + 64 + 64 + 32)  # of both layers A and B, beside q and v; no scale of a weight
    assert task.spec.base
    start, seed = task.initial(public_root(1)), private_root(1, 0)
    first = task.train(0, start, {}, round=1, seed=seed).update
    task.evaluate(start)
    np.testing.assert_array_equal(task.train(0, start, {}, round=1, seed=seed).update, first)
    ran(task, tmp_path / "run")
    model = peft.PeftModel.from_pretrained(small_base(), str(tmp_path / "run" / "pretrained")).eval()
    assert model.generate(torch.tensor([[9, 5]]), max_new_tokens=3, do_sample=False, pad_token_id=0).shape[1] > 2
