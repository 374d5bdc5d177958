"""What keeps an update private: pads that hide it from the peer that adds it up, and noise that hides it in the sum.

clip, noise                     transforms: bound an update's norm, then add Gaussian noise to it
accountant, privacy_loss        what that noise is worth: ε with everything that gives it a meaning
torch_private,                  the same for single samples: clipped gradients of each, then noise
torch_sample_gradients
masking                         pads that cancel in the sum of a shard
discrete_gaussian, ring_noise   noise on integers, beneath the pads
"""

from eris.privacy.accountant import Accountant, Epsilon, noise_multiplier
from eris.privacy.clip import clip_by_norm
from eris.privacy.noise import gaussian_noise, noise_of

__all__ = ["Accountant", "Epsilon", "clip_by_norm", "gaussian_noise", "noise_multiplier", "noise_of"]
