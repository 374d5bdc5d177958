"""④ What an aggregator makes of the contributions to its shard."""

from eris.aggregate.choose import RULES, check_rule, rule_by_name
from eris.aggregate.mean import WeightedMean
from eris.aggregate.robust import Median, TrimmedMean
from eris.aggregate.rule import Contribution, Rule

__all__ = [
    "RULES",
    "Contribution",
    "Median",
    "Rule",
    "TrimmedMean",
    "WeightedMean",
    "check_rule",
    "rule_by_name",
]
