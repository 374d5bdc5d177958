"""Measure how similar a recovered picture is to its original, by several scores because no single one is trusted.

Pictures are arrays of values in [0, 1], channels × height × width, or batches of them with a score for each.

===================== =================================================================== =====================
`mse`                 mean squared difference of the values                               0 is identical
`psnr`                the same in decibels                                                ∞ is identical
`pattern_distance`    one minus the correlation: brightness and contrast do not count     0 is identical
`ssim`                structural similarity                                               1 is identical
`Perceptual`          LPIPS: distance of features in a network trained on photographs     0 is identical
`identification`      how often the original is found among candidates                    chance is 1 / candidates
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
