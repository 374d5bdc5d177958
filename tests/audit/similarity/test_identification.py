import numpy as np
import pytest

from eris.audit.similarity import identification, ssim
from eris.errors import InputError

CANDIDATES = np.random.default_rng(1).random((40, 1, 12, 12))
RIGHT = np.arange(3, 23)


def test_perfect_recoveries_are_all_found():
    found = identification(CANDIDATES[RIGHT], CANDIDATES, RIGHT)
    assert (found.found, found.count, found.rate) == (20, 20, 1.0)
    assert found.chance == pytest.approx(1 / 40)
    assert 0.8 < found.low < found.high == 1


def test_pictures_that_have_nothing_to_do_with_it_are_found_by_chance_only():
    noise = np.random.default_rng(2).random((20, 1, 12, 12))
    assert identification(noise, CANDIDATES, RIGHT).low < 1 / 40


def test_one_grey_picture_for_all_finds_nothing_where_candidates_are_equal():
    same = np.full((10, 1, 12, 12), 0.5)
    assert identification(same[:4], same, np.arange(4)).found == 0


def test_any_distance_will_do():
    blurred = 0.5 * CANDIDATES[RIGHT] + 0.25
    assert identification(blurred, CANDIDATES, RIGHT, lambda x, y: 1 - ssim(x, y)).rate == 1


def test_each_recovery_needs_its_original():
    with pytest.raises(InputError, match="originals"):
        identification(CANDIDATES[:2], CANDIDATES, np.arange(3))
