"""Rules by name, and the combinations in which they make sense.

Shards are aggregated by peers that see nothing but their shard. A rule therefore has to work coordinate by coordinate.
Rules that look at whole updates (distances, norms, cosines) are known here by name so that asking for one gives a
reason instead of "unknown".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eris.aggregate.mean import WeightedMean
from eris.aggregate.robust import Median, TrimmedMean
from eris.aggregate.rule import Rule
from eris.errors import ConfigError
from eris.registry import Registry, call_with_options, described_options
from eris.transforms.chain import Chain

__all__ = ["RULES", "check_rule", "rule_by_name"]

RULES: Registry[Callable[..., Rule]] = Registry(
    "rule",
    "eris.rules",
    {"mean": WeightedMean, "median": Median, "trimmed_mean": TrimmedMean},
    refuses=lambda thing: "" if callable(thing) else "it cannot be called with options",
    options=described_options,
)
_ASKED = ("name", "coordinate_wise", "linear", "fold")

_LOOKS_AT_WHOLE_UPDATES = {
    "fltrust": "weighs members by the cosine between whole updates",
    "geometric_median": "minimises distances between whole updates",
    "krum": "picks the member whose whole update is nearest to the others",
    "multi_krum": "picks the members whose whole updates are nearest to each other",
    "norm_clipping": "scales each member by the norm of its whole update",
}


def rule_by_name(name: str, **params: Any) -> Rule:
    """Return the rule with this name or path `module:name`, made with these parameters.

    >>> rule_by_name("trimmed_mean", beta=0.2)
    TrimmedMean(beta=0.2)
    """
    if name in _LOOKS_AT_WHOLE_UPDATES:
        raise ConfigError(
            f"rule {name!r} {_LOOKS_AT_WHOLE_UPDATES[name]}, but an aggregator only has its shard of them",
            fix=f"use a coordinate-wise rule: {', '.join(sorted(RULES))}" + _member_side(name),
        )
    rule = call_with_options(f"rule {name!r}", RULES.find(name), params)
    if lacking := [part for part in _ASKED if not hasattr(rule, part)]:
        raise ConfigError(f"rule {name!r} has no {', '.join(lacking)}", fix="add what eris.aggregate.Rule asks for")
    return rule


def check_rule(rule: Rule, *, aggregators: int, chain: Chain) -> None:
    """Refuse a rule whose result would change with the number of aggregators or make no sense after this chain."""
    if aggregators > 1 and not rule.coordinate_wise:
        raise ConfigError(
            f"rule {rule.name!r} is not coordinate-wise: with {aggregators} shards its result would be different",
            fix=f"use one aggregator, or a coordinate-wise rule: {', '.join(sorted(RULES))}",
        )
    if chain.needs_linear_rule and not rule.linear:
        raise ConfigError(
            f"rule {rule.name!r} is not linear, but the updates are sent as {chain.describe()}",
            fix="use rule 'mean' with shifts and sparsifiers (a median of what they keep means nothing)",
        )


def _member_side(name: str) -> str:
    return ", or clip at the members with clip_by_norm" if name == "norm_clipping" else ""
