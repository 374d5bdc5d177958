"""Gradients of single samples of transformers: every way is the loop's, and what cannot be is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from eris.errors import ConfigError, ModelError
from eris.local.torch_losses import Classification, ModelLoss, NextToken
from eris.local.torch_module import FlatModule
from eris.privacy.torch_private import PrivateGradient
from eris.privacy.torch_sample_gradients import _without_chance, clipped_sum, require_equal_norms, way_of
from eris.seeds import private_root

transformers = pytest.importorskip("transformers")
pytest.importorskip("opacus")

WORDS, PLACES = 40, 16


def distilbert():
    settings = transformers.DistilBertConfig(
        vocab_size=WORDS, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=PLACES
    )
    return transformers.DistilBertForSequenceClassification(settings)


def gpt_neo():
    settings = transformers.GPTNeoConfig(
        vocab_size=WORDS, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]],
        max_position_embeddings=PLACES, window_size=4, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    return transformers.GPTNeoForCausalLM(settings)


def qwen():
    settings = transformers.Qwen2Config(
        vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=False, max_position_embeddings=PLACES,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(settings)


def scene(make, samples=5):
    torch.manual_seed(1)
    flat = FlatModule(make())
    flat.train()
    words = torch.randint(1, WORDS, (samples, 10))
    words[1, 6:] = 0
    inputs = {"input_ids": words, "attention_mask": (words != 0).long()}
    if make is distilbert:
        return flat, Classification(), (inputs, torch.arange(samples) % 2)
    return flat, NextToken(), (inputs, torch.where(words == 0, -100, words))


@pytest.mark.parametrize(
    ("make", "way"),
    [(distilbert, "hooks"), (distilbert, "ghost"), (gpt_neo, "hooks"), (qwen, "hooks"), (qwen, "ghost")],
)
def test_equal_to_the_loop(make, way):
    flat, objective, batch = scene(make)
    assert way_of(flat, objective, way) == way
    with _without_chance(flat.module):
        wanted = clipped_sum("loop", flat, objective, batch, 1e9)
        bound = wanted.norms.median().item()  # some are clipped, some are not
        wanted = clipped_sum("loop", flat, objective, batch, bound)
        found = clipped_sum(way, flat, objective, batch, bound)
    torch.testing.assert_close(found.norms, wanted.norms, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.total, wanted.total, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.losses, wanted.losses, rtol=1e-5, atol=1e-6)
    assert (found.norms > bound).any()
    assert found.total.norm() <= bound * 5


def test_what_is_looked_up_once_for_all_counts_for_each(monkeypatch):
    """Without the expansion, Opacus hands position embeddings one gradient for the whole batch."""
    flat, objective, batch = scene(distilbert)
    monkeypatch.setattr(nn.Embedding, "register_forward_pre_hook", lambda layer, hook: FakeHandle())
    with pytest.raises(ModelError, match=r"position_embeddings\.weight has 1 gradients for a batch of 5"):
        clipped_sum("hooks", flat, objective, batch, 1.0)


class FakeHandle:
    def remove(self):
        """There is nothing to remove."""


def test_a_padding_row_is_not_learned():
    """Opacus alone would give it a gradient wherever something depends on it."""

    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(WORDS, 4, padding_idx=0), nn.Linear(4, 2)

        def forward(self, input_ids, attention_mask):
            return self.head(self.words(input_ids).sum(1))

    torch.manual_seed(0)
    flat = FlatModule(Summed())
    flat.train()
    with torch.no_grad():
        flat.module.words.weight[0] = 0.5
    _, _, (inputs, _) = scene(distilbert)
    for way in ("hooks", "ghost"):
        require_equal_norms(way, flat, Classification(), (inputs, torch.tensor([0, 1, 0, 1, 0])))


def test_the_way_is_chosen_by_what_the_model_is_made_of(monkeypatch):
    assert way_of(FlatModule(nn.Sequential(nn.Linear(3, 2))), Classification()) == "vmap"
    assert way_of(FlatModule(nn.GRU(3, 2)), Classification()) == "loop"
    flat, objective, _ = scene(distilbert)
    assert way_of(flat, objective) == "hooks"
    assert way_of(flat, ModelLoss()) == "loop"  # no losses of single samples
    tied, next_token, _ = scene(gpt_neo)
    monkeypatch.setattr("eris.privacy.torch_sample_gradients._VALUES_AT_ONCE", {"hooks": 100})
    assert way_of(flat, objective) == "ghost"
    assert way_of(tied, next_token) == "loop"
    flat.module.gradient_checkpointing_enable()
    assert way_of(flat, objective) == "loop"


def test_what_cannot_be_is_refused():
    tied, objective, _ = scene(gpt_neo)
    with pytest.raises(ConfigError, match=r"wte\.weight is one tensor under several names"):
        way_of(tied, objective, "ghost")
    with pytest.raises(ConfigError, match="known only as a mean over the batch"):
        way_of(tied, ModelLoss(), "hooks")
    with pytest.raises(ConfigError, match="mixes the samples of a batch"):
        way_of(FlatModule(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))), Classification())


def test_norms_are_held_against_the_loop_before_the_first_round():
    flat, objective, batch = scene(gpt_neo)
    PrivateGradient(1.0, 1.0).check(flat, objective, batch)
    with pytest.raises(ModelError, match=r'cannot be computed by "vmap"(?s:.*)privacy\.per_sample = "loop"'):
        PrivateGradient(1.0, 1.0, "vmap").check(*scene(distilbert))

    class Leaning(NextToken):
        """A loss whose single samples are not what its mean is made of."""

        def losses(self, module, inputs, targets):
            return super().losses(module, inputs, targets) * 0.95

    with pytest.raises(ModelError, match=r"0\.9500, 0\.9500(?s:.*)of the true ones"):
        PrivateGradient(1.0, 1.0).check(flat, Leaning(), batch)
    assert flat.module.training  # as it was


def test_a_step_is_the_same_in_parts():
    flat, objective, batch = scene(gpt_neo)
    flat.module.eval()
    steps = []
    for way, at_once in (("loop", None), ("loop", 2)):
        PrivateGradient(0.5, 2.0, way, at_once)(flat, objective, batch, private_root(1, 0), 3)
        steps.append(torch.from_numpy(flat.gradient.copy()))
    torch.testing.assert_close(steps[0], steps[1], rtol=1e-5, atol=1e-7)
    assert steps[0].std() == pytest.approx(2.0 * 0.5 / 5, rel=0.1)
