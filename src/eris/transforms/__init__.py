"""② What a member does to an update before it leaves, and what every peer does to the mean that comes back."""

from eris.transforms.clip import clip_by_norm
from eris.transforms.compress import Compress, Compressor
from eris.transforms.exact import identity
from eris.transforms.shift import Shift, gamma_diana, gamma_paper, shift
from eris.transforms.sparsify import bernoulli, rand_k, stratified_rand_k
from eris.transforms.transform import Accepted, Chain, Mean, SendContext, State, Transform, chain

__all__ = [
    "Accepted",
    "Chain",
    "Compress",
    "Compressor",
    "Mean",
    "SendContext",
    "Shift",
    "State",
    "Transform",
    "bernoulli",
    "chain",
    "clip_by_norm",
    "gamma_diana",
    "gamma_paper",
    "identity",
    "rand_k",
    "shift",
    "stratified_rand_k",
]
