import numpy as np
import pytest
import torch

from eris.audit.reconstruction import prior_training as training
from eris.audit.reconstruction.enhancer import enhancer_of, finer
from eris.audit.reconstruction.generators import DigitGenerator
from eris.data import Dataset, Images
from eris.data.digits import mnist_sample


class Blind:
    """A perceptual distance that sees nothing, and needs no weights."""

    def __init__(self, backbone):
        assert backbone == "alexnet"  # figures are judged by the other one

    def distance(self, one, other):
        return torch.zeros(len(one))


@pytest.fixture(autouse=True)
def digits(monkeypatch):
    """The sample inside the package, for whatever is asked for; its training split must not be touched."""
    sample = mnist_sample()
    forbidden = Images(np.zeros((0, 28, 28), np.uint8), np.zeros(0, np.int64), sample.test.mean, sample.test.std)
    held_out = Dataset(sample.name, sample.source, sample.classes, forbidden, sample.test)
    monkeypatch.setattr(training, "load", lambda name: held_out)
    monkeypatch.setattr(training, "Perceptual", Blind)
    return sample


def test_an_enhancer_learns_to_do_better_than_interpolation(digits):
    told = []
    weights = training.train_mnist_enhancer(lambda what, share: told.append(share), steps=8)
    assert told == pytest.approx(np.arange(1, 9) / 8)
    pictures = torch.from_numpy(digits.train.pixels[:40].astype(np.float32) / 255)[:, None]
    torch.manual_seed(3)
    coarse = training.coarse_and_noisy(pictures)
    with torch.no_grad():
        enhanced = (enhancer_of(weights)(coarse) - pictures).abs().mean()
    assert enhanced < 0.99 * (finer(coarse, (28, 28)) - pictures).abs().mean()


def test_a_generator_learns_that_digits_are_mostly_black():
    def mean(steps):
        generator = DigitGenerator(training.train_digit_generator(lambda what, share: None, steps=steps))
        torch.manual_seed(4)
        drawn = generator(torch.randn(20, generator.latents), torch.arange(20) % 10)
        assert drawn.shape == (20, 1, 28, 28)
        assert drawn.min() >= 0
        assert drawn.max() <= 1
        assert not torch.equal(generator(torch.zeros(1, 16), torch.tensor([0])), drawn[:1])
        return float(drawn.mean())

    assert mean(12) < mean(1) - 0.01


def test_training_depends_on_nothing_but_its_pictures_and_leaves_torch_as_it_was():
    before = torch.get_rng_state()
    one, again = (training.train_digit_generator(lambda what, share: None, steps=3) for _ in range(2))
    assert all(np.array_equal(one[key], again[key]) for key in one)
    assert torch.equal(torch.get_rng_state(), before)
