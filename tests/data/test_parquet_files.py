import importlib.util
import io

import numpy as np
import pytest

from eris.data.parquet_files import read_parquet
from eris.errors import DataError, MissingExtra


def png(array):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(array).save(stream := io.BytesIO(), "PNG")
    return stream.getvalue()


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_without_pyarrow_the_error_says_what_to_install(tmp_path):
    (tmp_path / "train-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtra, match="pyarrow"):
        read_parquet(tmp_path)


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match="parquet"):
        read_parquet(tmp_path)


@pytest.mark.parametrize("shape", [(28, 28), (32, 32, 3)])
def test_pictures_of_the_hub(tmp_path, shape):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pictures = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    for split, part in (("train", pictures[:3]), ("test", pictures[3:])):
        folder = tmp_path / "mnist" / split
        folder.mkdir(parents=True)
        rows = {"image": [{"bytes": png(picture), "path": ""} for picture in part], "label": list(range(len(part)))}
        parquet.write_table(pyarrow.table(rows), folder / "0000.parquet")
    found = read_parquet(tmp_path)
    assert np.array_equal(found["train"]["pixels"], pictures[:3])
    assert found["train"]["labels"].tolist() == [0, 1, 2]
    assert np.array_equal(found["test"]["pixels"], pictures[3:])


def test_summaries_in_numbered_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for number in range(2):
        rows = {"article": [f"a{number}"], "highlights": [f"h{number}"], "id": ["x"]}
        parquet.write_table(pyarrow.table(rows), tmp_path / f"train-0000{number}-of-00002.parquet")
    parquet.write_table(
        pyarrow.table({"article": ["t"], "highlights": ["u"]}), tmp_path / "test-00000-of-00001.parquet"
    )
    found = read_parquet(tmp_path)
    assert found == {
        "train": {"texts": ["a0", "a1"], "summaries": ["h0", "h1"]},
        "test": {"texts": ["t"], "summaries": ["u"]},
    }
