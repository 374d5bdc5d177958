"""Real data sets and their division among members.

`mnist-sample` is part of the package and needs no network; `load` finds the others in the cache that `eris data get`
fills. Nothing here imports torch.
"""

from eris.data.dataset import ArrayExamples, Dataset, Images, Texts
from eris.data.digits import mnist_sample
from eris.data.fetch import get, load
from eris.data.partition import Partition, partition
from eris.data.synthetic import synthetic

__all__ = [
    "ArrayExamples",
    "Dataset",
    "Images",
    "Partition",
    "Texts",
    "get",
    "load",
    "mnist_sample",
    "partition",
    "synthetic",
]
