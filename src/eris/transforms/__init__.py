"""② What a member does to an update before it leaves, and what every peer does to the mean that comes back.

**To write a transform**, subclass `Transform` and override one or both of its halves: `outgoing` returns what leaves in
place of an update, `incoming` corrects the direction that every peer forms from the mean. This one sends
square roots, so that a few large values do not drown the others, and squares the mean:

>>> import numpy as np
>>> from eris.privacy import clip_by_norm
>>> class SquareRoots(Transform):
...     def __repr__(self):
...         return "square_roots()"
...     def outgoing(self, update, context):
...         return np.copysign(np.sqrt(np.abs(update)), update)
...     def incoming(self, direction, mean):
...         direction *= np.abs(direction)
>>> chain(clip_by_norm(1.0), SquareRoots()).describe()
'clip_by_norm(1.0) → square_roots() → identity()'

Four rules keep all peers at the same bits:

- Elementwise float32 operations that are correctly rounded (add, subtract, multiply, divide, square root), nothing that
  depends on shape or processor. `incoming` may see one stretch of the vectors at a time.
- An update, a context and a state are read, never changed; `incoming` changes the direction, in place.
- Randomness comes from the context: `context.public` is the same for all members, `context.private` this member's own.
- Configurations, reports and members' floors identify a transform by its `repr`.

Some transforms need more. Each capability is one method (`eris.transforms.capabilities`); define the method and the
transform has the capability:

| write | and |
|---|---|
| `private_state` | a member keeps vectors; `outgoing` finds them as `context.private_state` |
| `public_state` | all peers keep the same vectors; `incoming` finds them as `mean.public_state`, and advances them |
| `settle`, or `settle_update` | private state advances after the verdict, by what was sent (and by what went in) |
| `new_epoch` | private state begins anew when members or weights change |
| `start` | a member trains from another model than the common one |
| `drift` | something is added to each of a member's local gradients (`local.correction = "control-variate"`) |
| `compressor` | it ends the chain: `outgoing` returns a `Packed` |
| `outgoing_blocks` | an update longer than memory may come in blocks |
| `check`, `check_length` | chains and lengths it cannot work with are refused before a round begins |
| `norm_bound` | noise may follow it, because it says how long an update can be after it |
| `spent` | it adds noise, and says what that is worth |

`needs_linear_rule = True` refuses a median of what it sends. Most compression is not a transform but a
`Compressor` (`eris.transforms.compress`), which `chain` accepts in place of the last transform. Clipping and noise
are transforms too; they are in `eris.privacy`, with the accountants.
"""

from eris.transforms.capabilities import (
    AddsNoise,
    BeginsEpochs,
    BoundsNorm,
    ChangesStart,
    ChecksChain,
    ChecksLength,
    Drifts,
    KeepsPrivateState,
    KeepsPublicState,
    Packs,
    PacksBlocks,
    Settles,
    SettlesUpdate,
)
from eris.transforms.chain import Chain, chain
from eris.transforms.compress import Compress, Compressor
from eris.transforms.exact import identity
from eris.transforms.half import bf16, fp16
from eris.transforms.named import compressor_by_name
from eris.transforms.natural import natural
from eris.transforms.normalise import normalise_steps
from eris.transforms.prune import magnitude_prune, prune
from eris.transforms.quantize import qsgd, qsgd_max, terngrad, uniform
from eris.transforms.shift import Shift, gamma_diana, gamma_paper, shift
from eris.transforms.sign import sign
from eris.transforms.sparsify import bernoulli, rand_k, stratified_rand_k
from eris.transforms.topk import top_k
from eris.transforms.transform import Accepted, MeanStretch, Outgoing, SendContext, State, Transform

__all__ = [
    "Accepted",
    "AddsNoise",
    "BeginsEpochs",
    "BoundsNorm",
    "Chain",
    "ChangesStart",
    "ChecksChain",
    "ChecksLength",
    "Compress",
    "Compressor",
    "Drifts",
    "KeepsPrivateState",
    "KeepsPublicState",
    "MeanStretch",
    "Outgoing",
    "Packs",
    "PacksBlocks",
    "SendContext",
    "Settles",
    "SettlesUpdate",
    "Shift",
    "State",
    "Transform",
    "bernoulli",
    "bf16",
    "chain",
    "compressor_by_name",
    "fp16",
    "gamma_diana",
    "gamma_paper",
    "identity",
    "magnitude_prune",
    "natural",
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
    "uniform",
]
