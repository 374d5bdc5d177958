import numpy as np
import pytest
import torch

from eris.audit.reconstruction import UpdateObservation
from eris.audit.reconstruction.generators import fitted, generator_for, load_generator
from eris.audit.reconstruction.ggl import GGL, evolve
from eris.audit.reconstruction.public_model import PublicModel
from eris.audit.reconstruction.small_networks import SigmoidPerceptron
from eris.errors import ConfigError, DataError
from eris.seeds import public_root

SEED = public_root(6)
TRUE = torch.tensor([[0.8, -1.1, 0.4]])
LABELS = torch.tensor([2])


class Waves:
    """A generator of three latents."""

    latents = 3

    def __call__(self, latents, labels):
        y, x = torch.meshgrid(torch.linspace(0, 3, 8), torch.linspace(0, 3, 8), indexing="ij")
        shifted = torch.cos(y + labels.view(-1, 1, 1))
        bases = torch.stack([torch.sin(x).expand_as(shifted), shifted, torch.sin(x * y).expand_as(shifted)], 1)
        return torch.sigmoid(torch.einsum("nl,nlhw->nhw", latents, bases))[:, None]


@pytest.fixture(scope="module")
def attacked():
    torch.manual_seed(2)
    module = SigmoidPerceptron(inputs=64)
    vector = np.concatenate([weight.detach().numpy().ravel() for weight in module.parameters()])
    public = PublicModel(module, vector, shape=(1, 8, 8), classes=10)
    picture = Waves()(TRUE, LABELS).double()
    update = public.update(picture, LABELS).detach().numpy().astype(np.float32)
    return public, vector, picture.numpy(), update


def recovered(attacked, parts, *, random=False, **options):
    public, vector, picture, update = attacked
    seen = np.sort(SEED.child("plan").permutation(update.size)[::parts])
    look = UpdateObservation(vector, seen, update[seen])
    look = look.randomised(SEED) if random else look
    found = GGL(generator=Waves(), prior=0.0).recover(look, public, seed=SEED, **options)
    return float(np.sqrt(np.mean((found.images - picture) ** 2))), found


@pytest.mark.parametrize("parts", [1, 8])
def test_the_latents_are_found_from_the_whole_update_and_from_an_eighth(attacked, parts):
    error, found = recovered(attacked, parts)
    assert error < 0.02
    assert found.labels.tolist() == [2]
    assert found.loss == min(found.trace)


def test_random_values_lead_nowhere(attacked):
    assert recovered(attacked, 1, random=True, labels=LABELS.numpy())[0] > 0.1


def test_what_was_not_seen_taken_for_zero_leads_astray(attacked):
    assert recovered(attacked, 8, mode="zero-filled", labels=LABELS.numpy())[0] > 0.05


def test_blind_pictures_come_from_the_generator_and_the_seed_alone(attacked):
    attack, public = GGL(generator=Waves()), attacked[0]
    one, again, other = (
        attack.blind(public, LABELS.numpy(), seed).images for seed in (SEED, SEED, SEED.child("other"))
    )
    assert one.shape == (1, 1, 8, 8)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_batch_has_latents_for_each_sample(attacked):
    public, vector, _, update = attacked
    look = UpdateObservation(vector, np.arange(update.size), update)
    attack = GGL(generator=Waves(), generations=2)
    found = attack.recover(look, public, seed=SEED, labels=np.array([1, 2, 3]))
    assert found.images.shape == (3, 1, 8, 8)


def test_generated_pictures_are_made_to_fit():
    colour = torch.rand(2, 3, 64, 64)
    assert fitted(colour, (1, 25, 25)).shape == (2, 1, 25, 25)
    assert fitted(colour[:, :1], (3, 32, 32)).shape == (2, 3, 32, 32)
    assert torch.equal(fitted(colour, (3, 64, 64)), colour)
    assert fitted(torch.ones(1, 3, 8, 8), (1, 4, 4)) == pytest.approx(torch.ones(1, 1, 4, 4))


def test_generators_that_are_unknown_or_not_here(attacked, tmp_path, monkeypatch):
    monkeypatch.setenv("ERIS_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no generator"):
        load_generator("biggan")
    with pytest.raises(ConfigError, match="no generator is known"):
        generator_for((3, 224, 224))
    with pytest.raises(DataError, match="eris data get dcgan-64"):
        load_generator("dcgan-64")


def bowl(points):
    return np.sum((points - 0.3) ** 2, axis=1).tolist()


def test_evolution_finds_the_bottom_of_a_bowl():
    found = evolve(bowl, np.zeros(5), spread=0.5, population=10, generations=60, seed=SEED)
    assert found.loss < 1e-6
    assert found.point == pytest.approx(np.full(5, 0.3), abs=1e-3)
    assert len(found.trace) == 60


def test_evolution_depends_on_its_seed_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cma_signals.in").write_text("{'maxiter': 0}")  # what the library would read, if it were let
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    run = {"spread": 0.5, "population": 6, "generations": 4}
    one, again = (evolve(bowl, np.zeros(3), seed=SEED, **run) for _ in range(2))
    other = evolve(bowl, np.zeros(3), seed=SEED.child("other"), **run)
    assert np.array_equal(one.point, again.point)
    assert not np.array_equal(one.point, other.point)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
