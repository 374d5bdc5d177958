import numpy as np
import pytest

from eris.audit.similarity import identification, mse, pattern_distance, psnr, ssim
from eris.errors import InputError

PICTURES = np.random.default_rng(0).random((6, 3, 20, 24)).astype(np.float32)


def test_a_score_for_each_picture_of_a_batch():
    others = PICTURES[::-1].copy()
    for score in (mse, pattern_distance, psnr, ssim):
        together = score(PICTURES, others)
        assert together.shape == (6,)
        assert np.array_equal(together, [score(one, other) for one, other in zip(PICTURES, others, strict=True)])


def test_equal_pictures():
    assert (mse(PICTURES, PICTURES) == 0).all()
    assert (psnr(PICTURES, PICTURES) == np.inf).all()
    assert ssim(PICTURES, PICTURES) == pytest.approx(np.ones(6), abs=1e-12)


def test_ssim_of_flat_pictures_is_that_of_their_means():
    dark, light = np.full((1, 16, 16), 0.2), np.full((1, 16, 16), 0.7)
    assert float(ssim(dark, light)) == pytest.approx((2 * 0.2 * 0.7 + 1e-4) / (0.2**2 + 0.7**2 + 1e-4), abs=1e-9)


def test_ssim_is_the_mean_of_the_formula_over_every_window():
    one, other = PICTURES[0, :1].astype(float), PICTURES[1, :1].astype(float)
    offsets = np.arange(11) - 5
    window = np.exp(-(offsets[:, None] ** 2 + offsets**2) / 4.5)
    window /= window.sum()
    values = []
    for top in range(20 - 10):
        for left in range(24 - 10):
            x, y = (picture[0, top : top + 11, left : left + 11] for picture in (one, other))
            mx, my = (window * x).sum(), (window * y).sum()
            vx, vy = (window * (x - mx) ** 2).sum(), (window * (y - my) ** 2).sum()
            cov = (window * (x - mx) * (y - my)).sum()
            values.append((2 * mx * my + 1e-4) * (2 * cov + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)))
    assert float(ssim(one, other)) == pytest.approx(np.mean(values), abs=1e-12)


def test_an_inverted_picture_has_a_negative_ssim():
    assert float(ssim(PICTURES[0], 1 - PICTURES[0])) < -0.5


@pytest.mark.parametrize(
    ("original", "recovered", "complaint"),
    [
        (PICTURES, PICTURES[:1], "different shapes"),
        (PICTURES[0, 0], PICTURES[0, 0], "a picture is"),
        (np.zeros((3, 8, 8), np.uint8), np.zeros((3, 8, 8), np.uint8), "a picture is"),
        (PICTURES, PICTURES + 1, "outside"),
        (PICTURES, PICTURES * np.float32(np.nan), "outside"),
    ],
)
def test_what_would_be_misjudged_is_refused(original, recovered, complaint):
    with pytest.raises(InputError, match=complaint):
        mse(original, recovered)


def test_ssim_refuses_pictures_smaller_than_its_window():
    with pytest.raises(InputError, match="at least 11"):
        ssim(np.zeros((1, 10, 30)), np.zeros((1, 10, 30)))


def test_a_pale_recovery_is_missed_by_squared_difference_and_found_by_its_pattern():
    flat = np.full((4, 3, 20, 24), 0.5, np.float32)
    candidates, pale = np.concatenate([PICTURES, flat]), 0.1 * PICTURES + 0.45
    assert identification(pale, candidates, np.arange(6)).rate == 0
    assert identification(pale, candidates, np.arange(6), pattern_distance).rate == 1
    assert pattern_distance(PICTURES, pale) == pytest.approx(np.zeros(6), abs=1e-4)
    assert pattern_distance(flat, flat).tolist() == [1, 1, 1, 1]
