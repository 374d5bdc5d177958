"""What every compressor promises, whoever wrote it."""

from __future__ import annotations

import numpy as np
import pytest

from eris.errors import InputError, Refused
from eris.seeds import public_root
from eris.transforms import (
    Compress,
    Compressor,
    bernoulli,
    bf16,
    fp16,
    identity,
    magnitude_prune,
    natural,
    qsgd,
    qsgd_max,
    rand_k,
    sign,
    stratified_rand_k,
    terngrad,
    top_k,
    uniform,
)
from eris.transforms.compress import CompressesBlocks, CompressesDifference
from eris.transforms.named import COMPRESSORS
from tests.transforms.scenes import TENSORS, N, context, normal, plans

ALL: list[Compressor] = [
    bernoulli(0.3),
    bernoulli(1.0),
    bf16(),
    fp16(),
    identity(),
    magnitude_prune(0.02),
    magnitude_prune(0.3),
    natural(),
    qsgd(1),
    qsgd(300),
    qsgd_max(2),
    qsgd_max(16),
    rand_k(0.01),
    rand_k(0.3),
    rand_k(1.0),
    rand_k(0.3, independent=True),
    sign(),
    stratified_rand_k(0.2),
    terngrad(),
    top_k(0.25),
    top_k(1.0),
    uniform(2),
    uniform(5),
]
PLANS = plans()

every_compressor = pytest.mark.parametrize("compressor", ALL, ids=repr)
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))


def test_every_registered_compressor_is_here():
    assert {repr(compressor).split("(")[0] for compressor in ALL} == set(COMPRESSORS)


@every_plan
@every_compressor
def test_a_part_decodes_to_its_piece_of_the_whole(compressor, plan):
    packed = compressor.compress(normal(N), context(plan, tensors=TENSORS))
    dense, seen = packed.dense(), np.zeros(N, int)
    for part in packed.parts(plan):
        inside = plan.coordinates(part.shard)
        coordinates = inside if part.coordinates is None else part.coordinates
        assert part.size == inside.size
        assert np.isin(coordinates, inside).all()
        assert np.array_equal(part.values().view(np.uint32), dense[coordinates].view(np.uint32))
        received = compressor.code(TENSORS).decode(part.symbols, part.scales, coordinates)
        assert np.array_equal(received, part.values())
        seen[coordinates] += 1
    assert np.array_equal(seen, np.ones(N) if packed.support is None else np.bincount(packed.support, minlength=N))


@every_compressor
def test_the_shard_plan_changes_no_bit_if_it_says_so(compressor):
    results = [
        compressor.compress(normal(N), context(plan, tensors=TENSORS)).dense().tobytes() for plan in PLANS.values()
    ]
    assert (len(set(results)) == 1) == compressor.plan_invariant


@every_plan
@every_compressor
def test_payload_bytes_are_exact(compressor, plan):
    packed = compressor.compress(normal(N), context(plan, tensors=TENSORS))
    for part in packed.parts(plan):
        bits = "".join(format(int(symbol), f"0{part.code.bits}b") for symbol in integers(part.symbols))
        index = 0
        if part.explicit:
            index = min(len(bytes(4) * part.symbols.size), len(np.packbits(np.ones(part.size, bool))))
        expected = len(np.packbits([int(bit) for bit in bits])) if bits else 0
        assert part.payload_bytes == expected + part.scales.nbytes + index
        assert part.scales.size == part.code.scale_count


def integers(symbols):
    """Return symbols as the unsigned integers whose bits travel."""
    kinds = {np.dtype("<f4"): np.uint32, np.dtype("<f2"): np.uint16}
    return symbols.view(kinds.get(symbols.dtype, symbols.dtype))


@every_compressor
def test_symbols_fit_their_bits(compressor):
    packed = compressor.compress(normal(N, spread=20) / 2**20, context(N, tensors=TENSORS))
    code = compressor.code(TENSORS)
    assert (code.name, code.bits, code.dtype) == (packed.code.name, packed.code.bits, packed.symbols.dtype)
    raw = integers(packed.symbols)
    assert raw.dtype.kind == "u"
    assert raw.size == 0 or int(raw.max()) < 2**code.bits
    received = code.decode(packed.symbols.copy(), packed.scales.copy(), packed.support)
    assert received.dtype == np.float32
    assert np.array_equal(received, packed.values())


@every_plan
@every_compressor
def test_the_receiver_redraws_the_senders_support(compressor, plan):
    sent = context(plan, tensors=TENSORS, round=3)
    packed = compressor.compress(normal(N), sent)
    for part in packed.parts(plan):
        if part.explicit:
            with pytest.raises(Refused, match="has no coordinates"):
                compressor.support(part.shard, plan, sent.public, part.mask_key)
            continue
        redrawn = compressor.support(part.shard, plan, public_root(1).child("round", 3), part.mask_key)
        if redrawn is None:
            assert part.symbols.size == part.size
        else:
            assert np.array_equal(redrawn, part.coordinates)
            assert (np.diff(redrawn) > 0).all()


@every_compressor
def test_members_share_their_support_if_it_says_so(compressor):
    plan = PLANS["scattered"]
    first, second = (
        compressor.compress(normal(N, seed=k), context(plan, tensors=TENSORS, member=k)).support for k in (0, 1)
    )
    same = (first is None and second is None) or np.array_equal(first, second)
    assert same == (compressor.shared_support or first is None)


@every_compressor
def test_same_address_same_bits_and_the_update_stays(compressor):
    vector = normal(N)
    once, again = (compressor.compress(vector, context(PLANS["scattered"], tensors=TENSORS)) for _ in range(2))
    assert np.array_equal(vector, normal(N))
    assert np.array_equal(once.values(), again.values())
    assert once.mask_keys == again.mask_keys


@every_compressor
def test_rounds_differ_in_what_is_drawn(compressor):
    sent = {
        compressor.compress(normal(N), context(PLANS["scattered"], tensors=TENSORS, round=r)).dense().tobytes()
        for r in range(4)
    }
    drawn = compressor.unbiased and compressor.omega(N) > 0
    assert (len(sent) > 1) == drawn


@every_compressor
def test_only_unbiased_ones_have_an_omega(compressor):
    assert compressor.unbiased == (compressor.omega(N) is not None)


@every_compressor
def test_sparse_means_that_a_median_is_refused(compressor):
    drops = {"rand_k", "stratified_rand_k", "bernoulli", "top_k", "magnitude_prune"}
    assert compressor.sparse == (repr(compressor).split("(")[0] in drops)
    assert Compress(compressor).needs_linear_rule == compressor.sparse


@every_compressor
@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_vectors(compressor, n):
    packed = compressor.compress(normal(n), context(n, tensors=(n,)))
    assert packed.dense().shape == (n,)
    assert len(packed.parts(context(n).plan)) == 1
    if compressor.unbiased:
        assert compressor.omega(n) >= 0


@every_compressor
def test_zero_stays_zero(compressor):
    zeros = np.zeros(N, np.float32)
    sent = compressor.compress(zeros, context(N, tensors=TENSORS)).dense()
    assert np.array_equal(sent, np.ones(N) if repr(compressor) == "sign()" else zeros)


@every_compressor
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_compressor_hides_a_value_that_is_not_finite(compressor, bad):
    vector = normal(N)
    vector[:] = bad  # everywhere, so that sparsifiers cannot miss it
    try:
        with np.errstate(invalid="ignore"):
            sent = compressor.compress(vector, context(N, tensors=TENSORS)).values()
    except InputError:
        return
    assert not np.isfinite(sent).any()


@every_compressor
def test_a_difference_is_compressed_as_if_it_had_been_formed(compressor):
    if not isinstance(compressor, CompressesDifference):
        assert not compressor.sparse or not compressor.unbiased
        return
    update, reference, sent = normal(N), normal(N, seed=1), context(PLANS["scattered"])
    short, long = compressor.compress_difference(update, reference, sent), compressor.compress(update - reference, sent)
    assert np.array_equal(short.dense(), long.dense())
    assert short.mask_keys == long.mask_keys


@every_compressor
@pytest.mark.parametrize("shifted", [False, True])
def test_a_vector_in_blocks_is_compressed_as_if_it_were_whole(compressor, shifted):
    if not isinstance(compressor, CompressesBlocks):
        assert not isinstance(compressor, CompressesDifference)
        return
    update, reference, sent = normal(N), normal(N, seed=1), context(PLANS["scattered"])
    blocks = [(slice(start, min(start + 37, N)), update[start : start + 37]) for start in range(0, N, 37)]
    whole = compressor.compress(update - reference if shifted else update, sent)
    packed = compressor.compress_blocks(iter(blocks), N, reference if shifted else None, sent)
    assert np.array_equal(packed.dense().view(np.uint32), whole.dense().view(np.uint32))
    assert packed.mask_keys == whole.mask_keys


@every_compressor
def test_contractions_contract(compressor):
    vector, error = normal(N), 0.0
    for round in range(20):
        sent = compressor.compress(vector, context(N, tensors=TENSORS, round=round)).dense()
        error += float(np.sum((sent - vector) ** 2)) / 20
    if compressor.contractive:
        assert error < float(np.sum(vector**2))
