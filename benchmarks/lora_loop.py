"""Rounds a second of SmolLM2-135M with LoRA, four members: by eris, and by the same loop written by hand.

    python benchmarks/lora_loop.py eris|hand [--rounds 3]

`eris data get smollm2-135m` first. Every member takes two AdamW steps of two texts with 64 tokens a round; one thread.
`simulate.py --lora` lets the two take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MEMBERS = 4
TEXTS = 4  # of each member
BATCH = 2
TOKENS = 64
RATE = 1e-3


def adapted() -> Any:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from eris.models.pretrained import resolve

    folder, options = resolve("smollm2-135m")
    base = AutoModelForCausalLM.from_pretrained(folder, **options, dtype=torch.float32)
    settings = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", lora_dropout=0.0)
    return get_peft_model(base, settings)


def texts(member: int) -> list[dict[str, list[int]]]:
    """Return token numbers that a tokenizer could have given; what they say does not matter for the time."""
    random = np.random.default_rng(member)
    return [{"input_ids": random.integers(10, 40_000, size=TOKENS).tolist()} for _ in range(TEXTS)]


def by_hand(rounds: int) -> float:
    """Run the loop as anybody would write it: load the adapter, take AdamW's steps, add up the results."""
    import torch
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    torch.set_num_threads(1)
    model = adapted().train()
    data = [torch.tensor([each["input_ids"] for each in texts(member)]) for member in range(MEMBERS)]
    shared = {name: value.clone() for name, value in get_peft_model_state_dict(model).items()}

    def one_round() -> None:
        total = {name: torch.zeros_like(value) for name, value in shared.items()}
        for own in data:
            set_peft_model_state_dict(model, shared)
            optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.0)
            for places in torch.randperm(TEXTS).split(BATCH):
                optimizer.zero_grad()
                model(input_ids=own[places], labels=own[places]).loss.backward()
                optimizer.step()
            for name, value in get_peft_model_state_dict(model).items():
                total[name] += value.detach() / MEMBERS
        shared.update(total)

    one_round()
    began = time.perf_counter()
    for _ in range(rounds):
        one_round()
    return rounds / (time.perf_counter() - began)


def with_eris(rounds: int) -> float:
    """Time the rounds of a run, with its folder, byte counts and ledger, but neither start nor summary."""
    import torch
    from transformers import TrainingArguments

    import eris
    from eris.events import Event, RoundEnded, RoundStarted
    from eris.interop.hugging_face import fine_tuning

    torch.set_num_threads(1)
    begun, ended = list[float](), list[float]()

    def listen(event: Event) -> None:
        if isinstance(event, RoundStarted):
            begun.append(time.perf_counter())
        elif isinstance(event, RoundEnded):
            ended.append(time.perf_counter())

    arguments = TrainingArguments(
        output_dir="unused", learning_rate=RATE, num_train_epochs=1, per_device_train_batch_size=BATCH,
        lr_scheduler_type="constant", max_grad_norm=0.0,
    )  # fmt: skip
    task = fine_tuning(adapted, [texts(member) for member in range(MEMBERS)], arguments=arguments)
    federation = eris.Federation(task=task, method="eris", members=MEMBERS, rounds=rounds + 1)
    with tempfile.TemporaryDirectory() as folder:
        federation.run(Path(folder) / "run", listeners=[listen], report=False)
    return rounds / (ended[-1] - begun[1])  # the first round warms up


LORA = {"hand": by_hand, "eris": with_eris}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop", choices=list(LORA))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"rounds per second: {LORA[options.loop](options.rounds)}")
