"""How like its original is a recovered picture? Several answers, because no single one is trusted.

Pictures are arrays of values in [0, 1], channels × height × width, or batches of such; a score comes for each.

===================== =================================================================== =====================
`mse`                 mean squared difference of the values                               0 is the same
`psnr`                the same in decibels                                                ∞ is the same
`pattern_distance`    one less the correlation: brightness and contrast do not count      0 is the same
`ssim`                structural similarity                                               1 is the same
`Perceptual`          LPIPS: distance of the features of a network that knows photographs 0 is the same
`identification`      how often the original is found again among candidates              chance is 1 / candidates
===================== =================================================================== =====================
"""

from __future__ import annotations

from eris.audit.similarity.identification import Identification, identification
from eris.audit.similarity.perceptual import Perceptual, perceptual_scores
from eris.audit.similarity.pixels import mse, pattern_distance, psnr, ssim

__all__ = [
    "Identification",
    "Perceptual",
    "identification",
    "mse",
    "pattern_distance",
    "perceptual_scores",
    "psnr",
    "ssim",
]
