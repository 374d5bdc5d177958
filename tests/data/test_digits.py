import time
from importlib import resources

import numpy as np

from eris.data import mnist_sample


def test_sample_is_the_promised_real_one():
    digits = mnist_sample()
    assert digits.counts("train") == [600] * 10
    assert digits.counts("test") == [100] * 10
    assert not digits.synthetic
    pixels = digits.train.pixels / 255
    assert abs(pixels.mean() - 0.1307) < 0.003  # the mean and deviation of all of MNIST
    assert abs(pixels.std() - 0.3081) < 0.003
    assert len({image.tobytes() for image in digits.train.pixels}) == 6000


def test_sample_is_small_and_loads_quickly():
    file = resources.files("eris.data").joinpath("sample/mnist.npz")
    assert len(file.read_bytes()) < 2_000_000
    mnist_sample.cache_clear()
    start = time.process_time()
    mnist_sample()
    assert time.process_time() - start < 0.3


def test_images_come_normalised_channel_first():
    digits = mnist_sample()
    inputs, labels = digits.train.take(np.array([5, 2]))
    expected = ((digits.train.pixels[[5, 2]] / 255 - 0.1307) / 0.3081).astype(np.float32)
    assert inputs.dtype == np.float32
    assert np.array_equal(inputs, expected[:, None])
    assert labels.tolist() == digits.train.labels[[5, 2]].tolist()
