import numpy as np
import pytest
import torch

from eris.audit.reconstruction import UpdateObservation, reconstruction_attack
from eris.audit.reconstruction.enhancer import Enhancer, enhancer_of, finer, weights_of
from eris.audit.reconstruction.prior_training import coarse_and_noisy
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.rog import ROG
from eris.audit.reconstruction.small_networks import TwoConvolutions
from eris.errors import ConfigError, DataError
from eris.local.torch_module import spec_of
from eris.seeds import public_root

SEED = public_root(5)
LABEL = np.array([3])


@pytest.fixture(scope="module")
def attacked():
    """A small network, a smooth picture, and the update that gives it away."""
    torch.manual_seed(1)
    module = TwoConvolutions(channels=1, size=16)
    vector = np.concatenate([weight.detach().numpy().ravel() for weight in module.parameters()])
    assert spec_of(module).n == vector.size
    public = PublicModel(module, vector, shape=(1, 16, 16), classes=10, dtype=torch.float32)
    picture = finer(torch.rand(1, 1, 8, 8), (16, 16)).clamp(0, 1)
    update = public.update(picture, torch.tensor([3])).detach().numpy()
    return public, vector, picture.numpy(), update


def observation(attacked, parts, part=0):
    _, vector, _, update = attacked
    seen = np.sort(SEED.child("plan").permutation(update.size)[part::parts])
    return UpdateObservation(vector, seen, update[seen])


def error(attacked, look, **options):
    public, _, picture, _ = attacked
    attack = ROG(enhancer="", **options.pop("attack", {"steps": 60}))
    found = attack.recover(look, public, seed=SEED, **options)
    assert found.images.shape == picture.shape
    assert found.labels.tolist() == [3]
    return float(np.sqrt(np.mean((found.images - picture) ** 2))), found


@pytest.mark.parametrize("parts", [1, 4])
def test_a_coarse_picture_is_found_from_the_whole_update_and_from_a_quarter(attacked, parts):
    chance, _ = error(attacked, observation(attacked, parts).randomised(SEED), labels=LABEL)
    found, recovered = error(attacked, observation(attacked, parts))  # the label too
    assert found < 0.5 * chance
    assert recovered.loss < 0.5 * recovered.trace[0]


def test_what_was_not_seen_taken_for_zero_leads_astray(attacked):
    look = observation(attacked, 4)
    aware, _ = error(attacked, look, labels=LABEL)
    filled, _ = error(attacked, look, mode="zero-filled", labels=LABEL)
    assert aware < 0.7 * filled


def test_zero_filled_and_mask_aware_are_one_where_everything_was_seen(attacked):
    short = {"steps": 5}
    one = error(attacked, observation(attacked, 1), labels=LABEL, attack=short)[1]
    other = error(attacked, observation(attacked, 1), mode="zero-filled", labels=LABEL, attack=short)[1]
    assert np.array_equal(one.images, other.images)


def test_the_same_seed_gives_the_same_picture_and_another_one_another(attacked):
    public = attacked[0]
    attack, look = ROG(enhancer="", steps=3), observation(attacked, 2)
    one, again, other = (attack.recover(look, public, seed=seed).images for seed in (SEED, SEED, SEED.child("other")))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_an_enhancer_has_the_last_word(attacked):
    class Grey(Enhancer):
        def forward(self, coarse):
            return torch.full((len(coarse), 1, 16, 16), 0.25)

    found = ROG(steps=2, enhancer=Grey(channels=1)).recover(observation(attacked, 1), attacked[0], seed=SEED)
    assert (found.images == 0.25).all()


def test_a_missing_enhancer_is_told_before_the_search(attacked, tmp_path, monkeypatch):
    monkeypatch.setenv("ERIS_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="no enhancer is trained for"):
        ROG().recover(observation(attacked, 1), attacked[0], seed=SEED)
    with pytest.raises(DataError, match="eris data get rog-mnist"):
        ROG(enhancer="rog-mnist").recover(observation(attacked, 1), attacked[0], seed=SEED)


def test_an_untrained_enhancer_interpolates_and_keeps_its_weights():
    enhancer, coarse = Enhancer(channels=3), torch.rand(2, 3, 8, 8)
    assert torch.equal(enhancer(coarse), finer(coarse, (16, 16)))
    torch.nn.init.normal_(enhancer.tail.weight)
    again = enhancer_of(weights_of(enhancer))
    assert torch.equal(again(coarse), enhancer(coarse))
    assert not torch.equal(again(coarse), finer(coarse, (16, 16)))


def test_what_it_is_trained_on_looks_like_what_a_search_leaves():
    torch.manual_seed(0)
    pictures = torch.full((64, 1, 28, 28), 0.5)
    coarse = coarse_and_noisy(pictures)
    assert coarse.shape == (64, 1, 14, 14)
    assert coarse.min() >= 0
    assert coarse.max() <= 1
    assert coarse[:, :, 0].std() > 2 * coarse[:, :, 5:9, 5:9].std() > 0.04


def test_both_attacks_are_known_by_name():
    assert reconstruction_attack("rog", steps=7).steps == 7
    assert reconstruction_attack("ggl", population=8).name == "ggl"
