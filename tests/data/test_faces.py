"""Snapshots of people become squares with the eyes in one place."""

from __future__ import annotations

import numpy as np
import pytest

from eris.data.faces import FACE_SIDE, aligned, read_face_snapshots
from eris.errors import DataError

image = pytest.importorskip("PIL.Image")


def face(left, right):
    """A grey picture with two white eyes."""
    picture = np.full((250, 200), 90, np.uint8)
    for x, y in (left, right):
        picture[y - 6 : y + 7, x - 6 : x + 7] = 255
    return picture


@pytest.mark.parametrize(("left", "right"), [((70, 116), (122, 114)), ((84, 40), (184, 40)), ((10, 220), (50, 230))])
def test_the_eyes_of_every_face_come_to_lie_in_the_same_place(left, right):
    square = aligned(face(left, right), left, right)
    assert square.shape == (FACE_SIDE, FACE_SIDE)
    middle = 0.42 * FACE_SIDE
    for x in (0.34 * FACE_SIDE, 0.66 * FACE_SIDE):
        assert square[round(middle - 0.5), round(x - 0.5)] > 150
    assert square[round(middle - 0.5), FACE_SIDE // 2] == 90
    assert square[-1, -1] == 90  # beyond the edge the picture goes on


def test_eyes_the_wrong_way_round_are_refused():
    with pytest.raises(DataError, match="further left first"):
        aligned(face((50, 50), (90, 50)), (90, 50), (50, 50))


def test_people_are_told_apart_by_the_names_of_files(tmp_path):
    folder = tmp_path / "data" / "csuScrapShots"
    folder.mkdir(parents=True)
    lines = []
    for person in ("00001", "00007"):
        for shot in "abcde":
            image.fromarray(face((70, 116), (122, 114))).save(folder / f"{person}a{shot}.pgm")
            lines.append(f"{person}a{shot} 70 116 122 114 ")
    (folder / "coords.txt").write_text("\n".join(lines))
    found = read_face_snapshots(tmp_path)
    assert found["train"]["pixels"].shape == (8, FACE_SIDE, FACE_SIDE)
    assert len(found["test"]["pixels"]) == 2
    labels = np.concatenate([found[split]["labels"] for split in ("train", "test")])
    assert np.bincount(labels).tolist() == [5, 5]
    assert np.array_equal(found["train"]["labels"], found["train"]["ids"])
