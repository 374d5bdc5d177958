import gzip

import numpy as np
import pytest

from eris.data.idx import parse_idx, read_idx_folder
from eris.errors import DataError


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(side.to_bytes(4, "big") for side in array.shape)
    return header + array.astype(np.uint8).tobytes()


def write(folder, *, zipped):
    images = {"train": np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256, "t10k": np.zeros((2, 28, 28))}
    labels = {"train": np.array([7, 2, 1]), "t10k": np.array([0, 9])}
    for name in images:
        for kind, array in (("images-idx3", images[name]), ("labels-idx1", labels[name])):
            content = idx(array)
            path = folder / f"{name}-{kind}-ubyte{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(content) if zipped else content)
    return images, labels


@pytest.mark.parametrize("zipped", [False, True])
def test_official_files_are_found_wherever_they_lie(tmp_path, zipped):
    folder = tmp_path / "some" / "where"
    folder.mkdir(parents=True)
    images, labels = write(folder, zipped=zipped)
    found = read_idx_folder(tmp_path)
    assert np.array_equal(found["train"]["pixels"], images["train"])
    assert found["test"]["labels"].tolist() == labels["t10k"].tolist()
    assert found["test"]["labels"].dtype == np.int64


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08\x01", idx(np.arange(5))[:-1], idx(np.arange(5)) + b"x", b"PNG" * 9]
)
def test_damaged_files_are_refused(content):
    with pytest.raises(DataError):
        parse_idx(content, 1)


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, zipped=False)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="t10k-labels"):
        read_idx_folder(tmp_path)


def test_a_cut_off_gzip_is_damaged(tmp_path):
    write(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="damaged"):
        read_idx_folder(tmp_path)
