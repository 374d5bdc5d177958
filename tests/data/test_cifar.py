import json
import os
import pickle
import struct

import numpy as np
import pytest

from eris.data.cifar import read_cifar_batches, read_cifar_binaries, read_cifar_sheets
from eris.errors import DataError

NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def pictures(number):
    """Two pictures of a batch, height × width × channel, and their labels."""
    generator = np.random.default_rng(number)
    return generator.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8), [number, (number + 3) % 10]


def planes(number):
    return pictures(number)[0].transpose(0, 3, 1, 2).reshape(2, -1)


def expect(found):
    assert np.array_equal(found["train"]["pixels"], np.concatenate([pictures(number)[0] for number in range(5)]))
    assert np.array_equal(found["test"]["pixels"], pictures(5)[0])
    assert found["train"]["labels"].tolist() == [label for number in range(5) for label in pictures(number)[1]]
    assert found["test"]["labels"].tolist() == pictures(5)[1]


def python2_string(value):
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def python2_batch(array, labels):
    """A batch as Python 2 and an old numpy pickled it: protocol 2, byte strings, `numpy.core`."""
    data = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2_string(b"b") + b"\x87R"
        b"(K\x01K" + bytes([array.shape[0]]) + b"M" + struct.pack("<H", array.shape[1]) + b"\x86"
        b"cnumpy\ndtype\n" + python2_string(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + python2_string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + python2_string(array.tobytes()) + b"tb"
    )
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + python2_string(b"data") + data + python2_string(b"labels") + listed + b"u."


@pytest.mark.parametrize("writer", ["python2", "python3"])
def test_python_batches(tmp_path, writer):
    for number, name in enumerate(NAMES):
        array, labels = planes(number), pictures(number)[1]
        modern = pickle.dumps({b"data": array, b"labels": labels}, protocol=3)
        (tmp_path / name).write_bytes(python2_batch(array, labels) if writer == "python2" else modern)
    expect(read_cifar_batches(tmp_path))


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Evil()),
        pickle.dumps({b"data": Evil(), b"labels": [0]}),
        pickle.dumps({b"data": np.array([Evil()], object), b"labels": [0]}, protocol=3),
        pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [0]}, protocol=3),  # floats
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, protocol=3),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8)}, protocol=3),
        pickle.dumps({"data": 1}),
        pickle.dumps([1, 2]),
        b"",
        b"no pickle",
        # numpy.ndarray called with a buffer of its own: memory would be read as objects
        b"\x80\x02cnumpy\nndarray\n(K\x01\x85cnumpy\ndtype\nU\x01O\x85RU\x08abcdefghtR.",
    ],
)
def test_a_pickle_that_holds_anything_else_is_refused_and_runs_nothing(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="data_batch_1"):
        read_cifar_batches(tmp_path)
    assert not (tmp_path / "evil").exists()


def test_binary_batches(tmp_path):
    for number, name in enumerate(NAMES):
        rows = np.column_stack([np.array(pictures(number)[1], np.uint8), planes(number)])
        (tmp_path / f"{name}.bin").write_bytes(rows.tobytes())
    expect(read_cifar_binaries(tmp_path))
    (tmp_path / "test_batch.bin").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="damaged"):
        read_cifar_binaries(tmp_path)


def test_sheets(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number, name in enumerate(NAMES):
        image.fromarray(pictures(number)[0].reshape(2, 1024, 3)).save(tmp_path / f"{name}.png")
    labels = [label for number in range(5) for label in pictures(number)[1]]
    (tmp_path / "train_lables.json").write_text(json.dumps(labels))
    (tmp_path / "test_lables.json").write_text(json.dumps(pictures(5)[1]))
    expect(read_cifar_sheets(tmp_path))
