from __future__ import annotations

import pytest

from eris.errors import ConfigError
from eris.methods.named_transforms import TRANSFORMS, transform_by_name
from eris.transforms import Compress, Shift, compressor_by_name, identity, rand_k
from eris.transforms.named import COMPRESSORS

PARAMETERS = {
    "bernoulli": {"p": 0.1}, "magnitude_prune": {"p": 0.1}, "qsgd": {"levels": 4}, "qsgd_max": {"levels": 4},
    "rand_k": {"p": 0.1}, "stratified_rand_k": {"p": 0.1}, "top_k": {"p": 0.1}, "uniform": {"levels": 4},
    "clip_by_norm": {"bound": 1}, "gaussian_noise": {"multiplier": 1, "bound": 1}, "prune": {"p": 0.1},
    "compress": {"compressor": "identity"}, "shift": {"compressor": "identity"},
}  # fmt: skip


@pytest.mark.parametrize("name", COMPRESSORS)
def test_every_compressor_by_name(name):
    compressor = compressor_by_name(name, **PARAMETERS.get(name, {}))
    assert compressor == COMPRESSORS[name](**PARAMETERS.get(name, {}))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_by_name(name):
    assert repr(transform_by_name(name, **PARAMETERS.get(name, {})))


def test_a_compressor_inside_may_be_given_in_three_ways():
    tables = [rand_k(0.1), {"name": "rand_k", "p": 0.1}]
    for given in tables:
        transform = transform_by_name("shift", compressor=given, gamma=0.1, shared_reference=True)
        assert isinstance(transform, Shift)
        assert transform.compressor == rand_k(0.1)
    plain = transform_by_name("compress", compressor="identity")
    assert isinstance(plain, Compress)
    assert plain.compressor == identity()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compressor_by_name("randk", p=0.1), "did you mean rand_k"),
        (lambda: compressor_by_name("zzz"), "use one of bernoulli, bf16"),
        (lambda: compressor_by_name("rand_k"), "needs the parameter 'p'"),
        (lambda: compressor_by_name("rand_k", p=0.1, q=1), "takes no parameter 'q'"),
        (lambda: compressor_by_name("sign", p=0.1), "use no parameters"),
        (lambda: compressor_by_name("rand_k", p="0.1"), "p of rand_k is '0.1': give a number"),
        (lambda: compressor_by_name("rand_k", p=True), "give a number"),
        (lambda: compressor_by_name("rand_k", p=0.1, independent=1), "give true or false"),
        (lambda: compressor_by_name("qsgd", levels=2.5), "give a whole number"),
        (lambda: compressor_by_name("qsgd", levels=0), "number of levels is 0"),
        (lambda: compressor_by_name("rand_k", p=2), "use 0 < p ≤ 1"),
        (lambda: transform_by_name("clip", bound=1), "there is no transform 'clip'"),
        (lambda: transform_by_name("shift", compressor={"p": 0.1}), "there is no compressor ''"),
        (lambda: transform_by_name("shift", compressor=7), "7 is not a compressor"),
        (lambda: transform_by_name("shift", compressor="identity", gamma="euler"), "gamma is 'euler'"),
        (lambda: transform_by_name("shift", compressor={"name": "top_k", "p": 0.1}), "gamma = 1"),
    ],
)
def test_errors_teach(call, message):
    with pytest.raises(ConfigError) as error:
        call()
    assert message in str(error.value)
