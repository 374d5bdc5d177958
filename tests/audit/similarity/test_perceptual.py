import numpy as np
import pytest
import torch

from eris.audit.networks import network_is_here
from eris.audit.similarity import Perceptual, perceptual_scores
from eris.audit.similarity.perceptual import read_weights
from eris.errors import ConfigError, InputError

fetched = pytest.mark.skipif(not network_is_here("lpips"), reason="run `eris data get lpips` first")

Y, X = np.mgrid[0:64, 0:64] / 63.0
RAMPS = np.stack([X, Y, (X + Y) / 2]).astype(np.float32)
WAVES = np.stack([0.5 + 0.5 * np.sin(9 * X), 0.5 + 0.5 * np.cos(7 * Y), 0.5 + 0.5 * np.sin(5 * (X - Y))])
STEPS = np.round(RAMPS * 4) / 4


def tiny_weights():
    """AlexNet's shapes with random values: enough for everything but the figures."""
    generator, weights = np.random.default_rng(0), {}
    channels, sides = (3, 64, 192, 384, 256, 256), (11, 5, 3, 3, 3)
    for layer, side in enumerate(sides):
        shape = (channels[layer + 1], channels[layer], side, side)
        weights[f"alexnet.conv{layer}.weight"] = generator.normal(0, 0.05, shape).astype(np.float32)
        weights[f"alexnet.conv{layer}.bias"] = np.zeros(shape[0], np.float32)
        weights[f"alexnet.head{layer}"] = generator.random(shape[0]).astype(np.float32)
    return weights


@fetched
@pytest.mark.parametrize(
    ("backbone", "waves", "steps", "corner"),
    # what the published implementation (lpips 0.1.4) says about the same pictures
    [
        ("alexnet", 0.3743463158607483, 0.24536152184009552, 0.28231626749038696),
        ("vgg16", 0.7438496351242065, 0.5165090560913086, 0.7683495879173279),
    ],
)
def test_the_published_distances(backbone, waves, steps, corner):
    distance = Perceptual(backbone)
    pairs = np.stack([WAVES.astype(np.float32), STEPS, RAMPS])
    measured = distance(np.broadcast_to(RAMPS, pairs.shape), pairs)
    assert measured == pytest.approx([waves, steps, 0], abs=2e-6)
    small = (slice(None), slice(32), slice(32))
    assert float(distance(RAMPS[small], WAVES.astype(np.float32)[small])) == pytest.approx(corner, abs=2e-6)


@fetched
def test_noise_drives_it_up_step_by_step():
    noise = np.random.default_rng(0).normal(size=RAMPS.shape)
    noisy = np.stack([np.clip(RAMPS + share * noise, 0, 1) for share in (0.02, 0.05, 0.1, 0.3)])
    distances = Perceptual()(np.broadcast_to(RAMPS, noisy.shape), noisy.astype(np.float32))
    assert (np.diff(distances) > 0).all()


@fetched
def test_both_distances_by_name():
    scores = perceptual_scores(RAMPS[None], STEPS[None])
    assert scores["lpips_alexnet"] == pytest.approx([0.24536152184009552], abs=2e-6)
    assert scores["lpips_vgg16"] == pytest.approx([0.5165090560913086], abs=2e-6)


def test_no_distances_where_the_networks_are_not_here(tmp_path, monkeypatch):
    monkeypatch.setenv("ERIS_DATA", str(tmp_path))
    assert perceptual_scores(RAMPS, STEPS) == {}


def test_grey_counts_as_colour_and_small_pictures_are_enlarged():
    distance = Perceptual(weights=tiny_weights())
    grey = np.random.default_rng(1).random((2, 1, 28, 28)).astype(np.float32)
    colour = np.repeat(grey, 3, axis=1)
    assert np.array_equal(distance(grey, grey[::-1].copy()), distance(colour, colour[::-1].copy()))
    assert (distance(grey, grey[::-1].copy()) > 0).all()


def test_a_long_batch_gives_what_its_parts_give():
    distance, generator = Perceptual(weights=tiny_weights()), np.random.default_rng(2)
    first, second = generator.random((2, 70, 3, 32, 32), dtype=np.float32)
    together = distance(first, second)
    assert together.shape == (70,)
    assert together[[0, 69]] == pytest.approx([float(distance(first[i], second[i])) for i in (0, 69)], rel=1e-5)


def test_it_can_be_differentiated():
    distance = Perceptual(weights=tiny_weights())
    picture = torch.rand(1, 3, 32, 32, requires_grad=True)
    distance.distance(picture, torch.zeros(1, 3, 32, 32)).sum().backward()
    assert picture.grad.abs().sum() > 0


def test_unknown_backbones_and_pictures_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="squeezenet"):
        Perceptual("squeezenet")
    with pytest.raises(InputError, match="outside"):
        Perceptual(weights=tiny_weights())(RAMPS, RAMPS * 2)


def test_weights_are_read_from_the_package_without_running_anything_in_it(tmp_path):
    import pickle

    for backbone, group, layers in (("alexnet", "AlexNet_0", 5), ("vgg16", "VGG16_0", 13)):
        conv = {"kernel": np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2), "bias": np.zeros(2, np.float32)}
        head = {"Conv_0": {"kernel": np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1)}}
        content = {group: {f"Conv_{layer}": conv for layer in range(layers)}}
        content |= {f"NetLinLayer_{number}": head for number in range(5)}
        (tmp_path / f"{backbone}.ckpt").write_bytes(pickle.dumps(content, protocol=4))
    weights = read_weights(tmp_path)
    assert len(weights) == 2 * (5 + 13) + 2 * 5
    assert weights["vgg16.conv12.weight"].shape == (2, 3, 2, 2)
    assert weights["alexnet.conv0.weight"][1, 2, 0, 1] == conv["kernel"][0, 1, 2, 1]
    assert weights["alexnet.head4"].tolist() == [0, 1, 2, 3]
    (tmp_path / "vgg16.ckpt").write_bytes(pickle.dumps(tiny_weights))
    with pytest.raises(pickle.UnpicklingError):
        read_weights(tmp_path)
