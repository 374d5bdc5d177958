from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from eris.errors import ConfigError, SpecError
from eris.local.spec import ModelSpec, TensorSpec, as_vector


def batch_norm() -> dict[str, np.ndarray]:
    return {
        "running_mean": np.array([5.0, 6.0], np.float32),
        "weight": np.array([[1.0, 2.0]], np.float32),
        "scale": np.float32(3.0),
        "batches": np.int64(9),
        "position": np.array([7.0], np.float32),
    }


SPEC = ModelSpec.of(batch_norm(), roles={"running_mean": "buffer", "position": "frozen"})


class TestRoles:
    def test_trainable_is_the_default_and_counters_stay_local(self) -> None:
        roles = {tensor.name: tensor.role for tensor in SPEC.tensors}
        assert roles == {
            "running_mean": "buffer", "weight": "trainable", "scale": "trainable",
            "batches": "local", "position": "frozen",
        }  # fmt: skip

    @pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "bool"])
    def test_integers_and_booleans_are_local(self, dtype: str) -> None:
        spec = ModelSpec.of({"counter": np.zeros(3, dtype)})
        assert spec.tensor("counter").role == "local"
        assert spec.n == 0

    def test_an_integer_cannot_be_averaged(self) -> None:
        with pytest.raises(SpecError, match="'counter' is buffer but has dtype int64"):
            ModelSpec.of({"counter": np.int64(1)}, roles={"counter": "buffer"})

    @pytest.mark.parametrize("dtype", ["float64", "complex64", "longdouble"])
    def test_what_float32_cannot_hold_is_refused_not_rounded_or_forgotten(self, dtype: str) -> None:
        with pytest.raises(SpecError, match="cast it"):
            ModelSpec.of({"weight": np.zeros(3, dtype)})

    def test_a_wide_tensor_may_stay_at_home(self) -> None:
        assert ModelSpec.of({"table": np.zeros(3)}, roles={"table": "frozen"}).n == 0

    def test_unknown_role_and_unknown_tensor_are_named(self) -> None:
        with pytest.raises(SpecError, match="role 'trainble'"):
            ModelSpec.of({"weight": np.zeros(1, "f4")}, roles={"weight": "trainble"})  # type: ignore[dict-item]
        with pytest.raises(SpecError, match=r"do not exist: \['wieght'\]"):
            ModelSpec.of({"weight": np.zeros(1, "f4")}, roles={"wieght": "buffer"})

    def test_names_are_unique(self) -> None:
        tensor = TensorSpec("weight", (1,), "float32", "trainable")
        with pytest.raises(SpecError, match=r"names repeat: \['weight'\]"):
            ModelSpec((tensor, tensor))


class TestVector:
    def test_trainable_values_first_then_buffers(self) -> None:
        assert SPEC.flatten(batch_norm()).tolist() == [1.0, 2.0, 3.0, 5.0, 6.0]
        assert (SPEC.n, SPEC.n_trainable, SPEC.n_buffer) == (5, 3, 2)
        assert SPEC.trainable_sizes == (2, 1)

    def test_tensors_come_back_as_views_with_their_shapes(self) -> None:
        vector = SPEC.flatten(batch_norm())
        tensors = SPEC.unflatten(vector)
        assert {name: array.shape for name, array in tensors.items()} == {
            "weight": (1, 2), "scale": (), "running_mean": (2,),
        }  # fmt: skip
        tensors["scale"][...] = 8.0
        assert vector[2] == 8.0

    def test_local_and_frozen_tensors_never_enter(self) -> None:
        assert {"batches", "position"}.isdisjoint(SPEC.slices)

    @given(st.data())
    def test_flatten_and_unflatten_are_inverse(self, data: st.DataObject) -> None:
        shapes = data.draw(st.lists(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), max_size=6))
        roles = data.draw(st.lists(st.sampled_from(["trainable", "buffer"]), min_size=6, max_size=6))
        values = st.floats(width=32, allow_nan=False)
        tensors = {
            f"t{i}": data.draw(npst.arrays(np.float32, shape, elements=values)) for i, shape in enumerate(shapes)
        }
        spec = ModelSpec.of(tensors, roles=dict(zip(tensors, roles, strict=False)))
        vector = spec.flatten(tensors)
        again = spec.unflatten(vector)
        assert all(np.array_equal(again[name], array) and again[name].shape == array.shape
                   for name, array in tensors.items())  # fmt: skip
        assert np.array_equal(spec.flatten(again), vector)

    def test_float16_passes_without_loss(self) -> None:
        values = np.array([1.5, 6e-8, 65504.0], np.float16)
        spec = ModelSpec.of({"weight": values})
        assert np.array_equal(spec.flatten({"weight": values}).astype(np.float16), values)

    def test_into_a_given_vector_without_a_new_one(self) -> None:
        out = np.zeros(5, np.float32)
        assert SPEC.flatten(batch_norm(), out=out) is out

    def test_big_endian_and_strided_tensors_are_converted(self) -> None:
        spec = ModelSpec.of({"weight": np.zeros((2, 3), "f4")})
        wanted = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert np.array_equal(spec.flatten({"weight": wanted.astype(">f4")}), wanted.reshape(-1))
        assert np.array_equal(spec.flatten({"weight": np.asfortranarray(wanted)}), wanted.reshape(-1))

    def test_an_empty_model_is_an_empty_vector(self) -> None:
        spec = ModelSpec(())
        assert spec.flatten({}).size == 0
        assert spec.unflatten(np.empty(0, np.float32)) == {}


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"weight": np.zeros((2, 1), "f4")}, r"'weight' has shape \(2, 1\), but the spec says \(1, 2\)"),
            ({"weight": np.zeros((1, 2), "f8")}, "'weight' has dtype float64"),
            ({"running_mean": np.zeros(2, "i8")}, "'running_mean' has dtype int64"),
            ({"scale": np.zeros(1, "f4")}, r"'scale' has shape \(1,\)"),
        ],
    )
    def test_a_wrong_tensor_leaves_the_vector_as_it_was(self, change: dict[str, np.ndarray], message: str) -> None:
        out = np.full(5, 7.0, np.float32)
        with pytest.raises(SpecError, match=message):
            SPEC.flatten({**batch_norm(), **change}, out=out)
        assert (out == 7.0).all()

    def test_missing_tensors_are_named(self) -> None:
        with pytest.raises(SpecError, match=r"missing: \['running_mean', 'scale'\]"):
            SPEC.flatten({"weight": batch_norm()["weight"]})

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (np.zeros(5), "float64"),
            (np.zeros(5, ">f4"), "float32"),
            (np.zeros((1, 5), "f4"), r"\(1, 5\)"),
            (np.zeros(4, "f4"), "4 values, but the spec has 5"),
            (np.zeros(10, "f4")[::2], "not contiguous"),
            ([0.0] * 5, "list"),
            ("a word", "str"),
        ],
    )
    def test_what_is_no_vector(self, value: object, message: str) -> None:
        with pytest.raises(SpecError, match=message):
            SPEC.unflatten(value)  # type: ignore[arg-type]
        with pytest.raises(SpecError, match=message):
            SPEC.flatten(batch_norm(), out=value)  # type: ignore[arg-type]

    def test_a_good_vector_is_returned_itself(self) -> None:
        vector = np.zeros(5, np.float32)
        assert as_vector(vector, 5) is vector

    def test_unknown_tensor_name(self) -> None:
        with pytest.raises(SpecError, match="no tensor is named 'wieght'"):
            SPEC.tensor("wieght")

    def test_noise_with_buffers_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="running_mean") as caught:
            SPEC.require_noise_is_possible()
        assert "'frozen' or 'local'" in str(caught.value)
        ModelSpec.flat(3).require_noise_is_possible()


class TestDigest:
    BASE = TensorSpec("weight", (2, 3), "float32", "trainable")

    def test_golden(self) -> None:
        assert ModelSpec((self.BASE,)).digest == "21b78ed2c0662c8ffa742ef92fcf93921215b8e3fc6721b8238321776f0fe091"

    @pytest.mark.parametrize(
        "other",
        [
            TensorSpec("Weight", (2, 3), "float32", "trainable"),
            TensorSpec("weight", (3, 2), "float32", "trainable"),
            TensorSpec("weight", (6,), "float32", "trainable"),
            TensorSpec("weight", (2, 3), "float16", "trainable"),
            TensorSpec("weight", (2, 3), "float32", "buffer"),
        ],
        ids=["name", "shape", "dimensions", "dtype", "role"],
    )
    def test_sees_every_difference(self, other: TensorSpec) -> None:
        assert ModelSpec((other,)).digest != ModelSpec((self.BASE,)).digest

    def test_sees_order_and_tensors_that_are_never_sent(self) -> None:
        frozen = TensorSpec("table", (4,), "float32", "frozen")
        digests = {ModelSpec(t).digest for t in [(self.BASE,), (self.BASE, frozen), (frozen, self.BASE)]}
        assert len(digests) == 3

    def test_another_spec_is_refused_with_both_digests(self) -> None:
        mine, other = ModelSpec((self.BASE,)), ModelSpec.flat(6)
        mine.require_same(mine.digest, where="checkpoint")
        with pytest.raises(SpecError, match=f"checkpoint has model spec {other.digest[:12]}"):
            mine.require_same(other.digest, where="checkpoint")
