"""Texts: hidden words are filled in by a local model, and a text that was trained on falls further than others."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.audit.attack import CanaryProbe, Observation
from eris.audit.attacks.by_name import (
    ATTACKS,
    STRONGEST,
    TUNING_ON_TEXTS,
    attacks_on,
    best_attack,
    choice_of,
    offered,
    require,
)
from eris.audit.canaries import plant_in
from eris.audit.observer import parse_observer
from eris.audit.text_copies import MaskFiller, NextFiller, SpanFiller, filler_of, gaps, perturbed, perturbed_copies
from eris.config import load_config
from eris.data import Dataset, Texts
from eris.errors import ConfigError, InputError
from eris.local.torch_work import LocalWork
from eris.models.assembly import divide, torch_task
from eris.seeds import public_root
from tests.audit.federation import play, scrambled, train

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = [a + b for a in ("ba", "de", "ki", "lo", "mu", "na", "po", "ri") for b in ("ck", "ll", "nt", "rs", "zz")]
SPECIAL = ["<pad>", "<unk>", "</s>", "<mask>", *(f"<extra_id_{number}>" for number in range(8))]
SEED = public_root(4)
MEMBERS = 3


def tokenizer_in(folder, *, mask=True):
    numbers = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"} | (
        {"mask_token": "<mask>"} if mask else {}
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    tokenizer.save_pretrained(folder)
    return tokenizer


def folder_of(path, configuration, **options):
    tokenizer_in(path, **options)
    (path / "config.json").write_text(json.dumps({"vocab_size": len(SPECIAL) + len(WORDS), **configuration}))
    return str(path)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 40}
    return folder_of(tmp_path_factory.mktemp("encoder"), {"model_type": "distilbert", "pad_token_id": 0, **sizes})


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    sizes = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "max_position_embeddings": 40, "window_size": 8}
    ends = {"bos_token_id": 2, "eos_token_id": 2, "attention_types": [[["global"], 1]]}
    drops = {"resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0}
    folder = tmp_path_factory.mktemp("language")
    return folder_of(folder, {"model_type": "gpt_neo", **sizes, **ends, **drops}, mask=False)


def news(count):
    generator = np.random.default_rng(5)
    texts, summaries = ([" ".join(generator.choice(WORDS, 6)) for _ in range(count)] for _ in range(2))
    split = Texts(texts, summaries=summaries)
    return Dataset("made-up-news", "made up", (), split, split)


def task_on_news(language):
    data = news(MEMBERS * 12)
    return torch_task(
        data, divide(data, MEMBERS, public_root(0)), "language-model",
        {"source": language, "article": 6, "summary": 8, "generate": 0},
        work=LocalWork(optimizer="adam", lr=0.01, batch="full", epochs=8), test_samples=2,
    )  # fmt: skip


def summarising(folder, encoder, language, *changes, method="fedavg"):
    task = task_on_news(language)
    config = load_config(changes=[f"members={MEMBERS}", "rounds=3", "workers=1", f"method={method}", *changes])
    problem = plant_in(task, config.seed)
    return play(
        folder, config, replace(problem, copies=perturbed_copies(problem.probe, filler_of(encoder), SEED, copies=4))
    )


@given(st.integers(1, 80), st.integers(0, 1000), st.floats(0.05, 0.6), st.integers(1, 4), st.integers(0, 3))
def test_gaps_are_apart_and_inside(words, seed, share, length, apart):
    found = gaps(words, public_root(seed), share=share, length=length, apart=apart)
    assert found
    assert all(0 <= start < end <= words and end - start == min(length, words) for start, end in found)
    for (_, end), (start, _) in itertools.pairwise(found):
        assert start - end >= apart
    assert len(found) <= max(1, round(share * words / min(length, words)))


def test_about_the_share_asked_for_is_hidden():
    hidden = sum(end - start for start, end in gaps(200, SEED, share=0.3, length=2, apart=1))
    assert hidden == 60


def test_only_the_gaps_are_written_anew(encoder):
    filler, words = filler_of(encoder), WORDS[:20]
    assert isinstance(filler, MaskFiller)
    filled = filler.fill(words, [(2, 4), (9, 11)], SEED)
    kept = [place for place in range(20) if place not in (2, 3, 9, 10)]
    assert [filled[place] for place in kept] == [words[place] for place in kept]
    assert not {"<pad>", "<unk>", "</s>", "<mask>"} & set(filled)
    assert filled != words
    assert filler.fill(words, [(2, 4), (9, 11)], SEED) == filled
    others = {tuple(filler.fill(words, [(2, 4), (9, 11)], SEED.child(number))) for number in range(5)}
    assert len(others) > 1


def test_a_text_without_words_stays(encoder):
    assert perturbed("  ", filler_of(encoder), SEED) == "  "


def test_numbered_gaps_are_filled_in_order(tmp_path):
    tokenizer = tokenizer_in(tmp_path)

    class Writer:
        def eval(self):
            return self

        def generate(self, input_ids, **options):
            assert tokenizer.decode(input_ids[0]) == "back <extra_id_0> dell <extra_id_1> kick <extra_id_2>"
            said = "<pad> <extra_id_0> lock null <extra_id_1> <extra_id_2> porrs </s>".replace("null", "lont")
            return tokenizer(said.replace("porrs", "pors"), return_tensors="pt")["input_ids"]

    filled = SpanFiller(Writer(), tokenizer).fill(
        ["back", "bars", "bazz", "dell", "dent", "kick", "kizz"], [(1, 3), (4, 5), (6, 7)], SEED
    )
    assert filled == ["back", "lock", "lont", "dell", "dent", "kick", "pors"]  # the second gap was left empty


def test_t5_is_known_by_its_configuration(tmp_path, language):
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    kind = {"model_type": "t5", "is_encoder_decoder": True, "pad_token_id": 0, "eos_token_id": 2}
    filler = filler_of(folder_of(tmp_path / "t5", {**kind, **sizes}))
    assert isinstance(filler, SpanFiller)
    first = perturbed(" ".join(WORDS[:12]), filler, SEED)
    assert first == perturbed(" ".join(WORDS[:12]), filler, SEED)


def test_a_language_model_writes_after_what_stands_before(language):
    filler, words = filler_of(language), WORDS[:20]
    assert isinstance(filler, NextFiller)
    for chosen in ([(2, 4), (9, 11)], [(0, 2), (18, 20)]):
        filled = filler.fill(words, chosen, SEED)
        kept = [place for place in range(20) if all(not start <= place < end for start, end in chosen)]
        assert [filled[place] for place in kept] == [words[place] for place in kept]
        assert len(filled) == 20
        assert filler.fill(words, chosen, SEED) == filled
        # What comes behind a gap is not known yet.
        others = [*words[:11], *WORDS[20:29]]
        assert filler.fill(others, chosen[:1], SEED)[:11] == filler.fill(words, chosen[:1], SEED)[:11]
    assert len({tuple(filler.fill(words, [(2, 6)], SEED.child(number))) for number in range(5)}) > 1


def test_an_encoder_that_never_guessed_words_is_refused(tmp_path, encoder):
    """The weights of a sentence encoder have no head: it would be a random one."""
    network = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(encoder))
    tokenizer_in(tmp_path)
    network.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="not trained to guess hidden words"):
        filler_of(str(tmp_path))
    taught = transformers.AutoModelForMaskedLM.from_config(network.config)
    taught.save_pretrained(tmp_path)
    assert isinstance(filler_of(str(tmp_path)), MaskFiller)


def test_an_encoder_without_a_mask_is_refused(tmp_path):
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 40}
    folder = folder_of(tmp_path, {"model_type": "distilbert", "pad_token_id": 0, **sizes}, mask=False)
    with pytest.raises(ConfigError, match="hidden word"):
        filler_of(folder)


def test_trained_texts_fall_further(tmp_path, encoder, language):
    audited = summarising(tmp_path, encoder, language)
    server = parse_observer("server")
    audit = audited.audit("server")
    found = {
        name: audit.result(server, name, tosses=99).figures["auc"]
        for name in ("spv", "loss", "calibrated", "lira", "rmia", "paper")
    }
    assert all(found[name].value > 0.8 for name in ("spv", "loss", "calibrated", "lira"))
    assert found["spv"].p_value <= 0.02
    allowed = {attack.name for attack in attacks_on(audited.problem)}
    assert allowed == {"loss", "calibrated", "lira", "rmia", "paper", "spv"}
    for name in ("adaptive", "dot"):
        with pytest.raises(ConfigError, match="use one of"):
            require(ATTACKS[name], offered(audited.problem))


def test_on_texts_the_best_attack_is_the_best_on_texts_that_is_allowed(language):
    """Chosen on tuning seeds of texts, where the order is another than on pictures."""
    free = plant_in(task_on_news(language), 1)
    light = replace(free, gradients=False)
    perturbed = replace(free, copies=free.probe)
    alone = replace(light, public=None)
    assert free.texts
    assert not replace(free, crafted=True).texts  # a crafted canary is none
    for problem in (free, light, perturbed, alone):
        allowed = [attack.name for attack in attacks_on(problem)]
        best = best_attack(problem)
        assert best in allowed
        views = TUNING_ON_TEXTS.auc.values()
        assert max(allowed, key=lambda name: sum(view[name] for view in views)) == best
        assert f"{best}, the best of {len(allowed)}" in choice_of(best, problem)
        assert "on tuning seeds 2 to 6 of small language models on synthetic texts" in choice_of(best, problem)
    assert "that build no gradient on" in choice_of(best_attack(perturbed), perturbed)
    assert set(TUNING_ON_TEXTS.auc) == {"server", "1 of 8", "broadcast"}
    assert all(set(view) == set(ATTACKS) for view in TUNING_ON_TEXTS.auc.values())


def test_the_command_on_texts_takes_their_best_attack_and_says_how_it_was_chosen(
    invoke, monkeypatch, tmp_path, encoder, language
):
    monkeypatch.setattr("eris.audit.membership_run.build_task", lambda config: task_on_news(language))
    changes = ("method=eris", f"members={MEMBERS}", f"aggregators={MEMBERS}", "rounds=1", "evaluate_every=1")
    settings = [part for change in changes for part in ("--set", change)]
    one = [*settings, "--seeds", "1", "--views", "1", "--copies", "2", "--filler", encoder]
    done = invoke("audit", "membership", *one, "--out", "a")
    assert done.exit_code == 0
    (trial,) = json.loads((tmp_path / "a" / "membership.json").read_text())["trials"]
    light = [name for name, attack in ATTACKS.items() if "gradients" not in attack.needs]
    best = TUNING_ON_TEXTS.best_of(light)
    assert STRONGEST not in light
    assert [result["attack"] for result in trial["results"]] == [best, "paper"]
    assert f"Attack: {best}, the best of {len(light)} that build no gradient on tuning seeds" in done.output
    assert trial["choice"] in " ".join(done.output.split())
    # The same without gradients, said twice: changed copies are there for whom they are for.
    both = invoke("audit", "membership", *one, "--losses-only", "--attack", "spv", "--out", "b", "--json")
    (trial,) = json.loads(both.stdout)["trials"]
    assert [result["attack"] for result in trial["results"]] == ["spv", "paper"]
    assert "choice" not in trial


def test_the_score_is_the_difference_of_two_variations(tmp_path, encoder, language):
    audited = summarising(tmp_path, encoder, language, "rounds=1")
    problem, record = audited.problem, audited.records()[0]
    estimator = audited.audit("server", events=[]).places[parse_observer("server")][1][0].estimator
    seen = Observation(record.round, estimator.follow(record), CanaryProbe(problem, 1, record.model))
    target = record.model.copy()
    target -= audited.updates[0, 1]

    def variation(model):
        losses, around = problem.probe.sample_losses(1, model), problem.copies.sample_losses(1, model).reshape(-1, 4)
        return np.exp(-around).mean(axis=1) - np.exp(-losses)

    assert seen.probe.variation - seen.variation == pytest.approx(
        -(variation(target) - variation(record.model)), abs=1e-6
    )


@pytest.mark.parametrize("observer", ["aggregator", "broadcast"])
def test_what_is_not_seen_changes_no_text_score_by_a_bit(tmp_path, encoder, language, observer):
    audited = summarising(tmp_path, encoder, language, "rounds=2", method="eris")
    who, honest = parse_observer(observer), audited.audit(observer, views=1)
    again = audited.audit(observer, views=1, events=scrambled(audited.events, honest, 2, who))
    for name, members in honest.scores(who).items():
        assert members[2].tobytes() == again.scores(who)[name][2].tobytes(), name


def test_only_texts_with_summaries_are_perturbed(tmp_path, encoder):
    with pytest.raises(InputError, match="summaries"):
        perturbed_copies(train(tmp_path, "rounds=1").problem.probe, filler_of(encoder), SEED)


def test_without_a_filler_there_is_no_variation():
    with pytest.raises(ConfigError, match="--filler"):
        require(ATTACKS["spv"], {"gradients"})
