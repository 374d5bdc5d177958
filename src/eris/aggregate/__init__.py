"""④ How an aggregator combines the contributions to its shard."""

from eris.aggregate.choose import RULES, check_rule, rule_by_name
from eris.aggregate.mean import WeightedMean
from eris.aggregate.robust import Median, TrimmedMean
from eris.aggregate.rule import Contribution, Rule
from eris.aggregate.staging import Contents, Staging, all_finite

__all__ = [
    "RULES",
    "Contents",
    "Contribution",
    "Median",
    "Rule",
    "Staging",
    "TrimmedMean",
    "WeightedMean",
    "all_finite",
    "check_rule",
    "rule_by_name",
]
