"""Rules by name, and combinations that are refused with a reason."""

import pytest

from eris.aggregate import RULES, Contribution, TrimmedMean, WeightedMean, check_rule, rule_by_name
from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.privacy import clip_by_norm
from eris.transforms import chain, rand_k, shift

PLAIN, SPARSE, SHIFTED = chain(clip_by_norm(1.0)), chain(rand_k(0.1)), chain(shift(rand_k(0.1)))


class Krum:
    name = "my_krum"
    coordinate_wise = False
    linear = False

    def fold(self, contributions: list[Contribution], out: Vector) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_knows_its_name(name: str) -> None:
    assert rule_by_name(name).name == name


def test_parameters_are_passed_on() -> None:
    assert rule_by_name("trimmed_mean", beta=0.25) == TrimmedMean(0.25)


@pytest.mark.parametrize("name", ["krum", "multi_krum", "geometric_median", "norm_clipping", "fltrust"])
def test_rules_over_whole_updates_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=r"whole update.*only has its shard") as caught:
        rule_by_name(name)
    assert "mean" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "params", "what"),
    [
        ("average", {}, "no rule 'average'"),
        ("mean", {"beta": 0.1}, "takes no parameter"),
        ("trimmed_mean", {"beta": 0.5}, "beta is 0.5"),
        ("trimmed_mean", {"beta": -0.1}, "beta is -0.1"),
        ("trimmed_mean", {"beta": float("nan")}, "beta is nan"),
    ],
)
def test_wrong_names_and_parameters_are_refused(name: str, params: dict[str, float], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        rule_by_name(name, **params)


def test_a_rule_that_is_not_coordinate_wise_needs_one_aggregator() -> None:
    check_rule(Krum(), aggregators=1, chain=PLAIN)
    with pytest.raises(ConfigError, match="not coordinate-wise: with 2 shards"):
        check_rule(Krum(), aggregators=2, chain=PLAIN)


@pytest.mark.parametrize("sent_as", [SPARSE, SHIFTED])
@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
def test_a_median_of_sparse_or_shifted_messages_is_refused(name: str, sent_as: object) -> None:
    with pytest.raises(ConfigError, match=r"not linear.*rand_k"):
        check_rule(rule_by_name(name), aggregators=1, chain=sent_as)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_goes_with_dense_messages(name: str) -> None:
    check_rule(rule_by_name(name), aggregators=7, chain=PLAIN)


def test_the_mean_goes_with_all() -> None:
    for sent_as in (PLAIN, SPARSE, SHIFTED):
        check_rule(WeightedMean(), aggregators=7, chain=sent_as)
