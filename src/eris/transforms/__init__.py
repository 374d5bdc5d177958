"""② What a member does to an update before it leaves, and what every peer does to the mean that comes back."""

from eris.transforms.accountant import Accountant, Epsilon, noise_multiplier
from eris.transforms.clip import clip_by_norm
from eris.transforms.compress import Compress, Compressor
from eris.transforms.exact import identity
from eris.transforms.half import bf16, fp16
from eris.transforms.named import compressor_by_name, transform_by_name
from eris.transforms.natural import natural
from eris.transforms.noise import gaussian_noise, noise_of
from eris.transforms.normalise import normalise_steps
from eris.transforms.prune import magnitude_prune, prune
from eris.transforms.quantize import qsgd, qsgd_max, terngrad, uniform
from eris.transforms.shift import Shift, gamma_diana, gamma_paper, shift
from eris.transforms.sign import sign
from eris.transforms.sparsify import bernoulli, rand_k, stratified_rand_k
from eris.transforms.topk import top_k
from eris.transforms.transform import Accepted, Chain, Mean, SendContext, State, Transform, chain

__all__ = [
    "Accepted",
    "Accountant",
    "Chain",
    "Compress",
    "Compressor",
    "Epsilon",
    "Mean",
    "SendContext",
    "Shift",
    "State",
    "Transform",
    "bernoulli",
    "bf16",
    "chain",
    "clip_by_norm",
    "compressor_by_name",
    "fp16",
    "gamma_diana",
    "gamma_paper",
    "gaussian_noise",
    "identity",
    "magnitude_prune",
    "natural",
    "noise_multiplier",
    "noise_of",
    "normalise_steps",
    "prune",
    "qsgd",
    "qsgd_max",
    "rand_k",
    "shift",
    "sign",
    "stratified_rand_k",
    "terngrad",
    "top_k",
    "transform_by_name",
    "uniform",
]
