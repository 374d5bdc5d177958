"""What all peers of a run agree on beforehand: how an update is made, cut, combined and applied."""

from __future__ import annotations

from dataclasses import dataclass

from eris.aggregate.rule import Rule
from eris.errors import ConfigError
from eris.local.spec import ModelSpec
from eris.seeds import Seed
from eris.shards.policy import Layout, ShardPolicy
from eris.step.optimizer import ServerOptimizer
from eris.transforms import Chain, Compress, Compressor, Shift

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """Transforms × shards × rule × server step: one method, for one model."""

    spec: ModelSpec
    policy: ShardPolicy
    chain: Chain
    rule: Rule
    optimizer: ServerOptimizer
    public: Seed  # the root everybody knows

    def __post_init__(self) -> None:
        if self.public.private:
            raise ConfigError("the recipe's seed is private", fix="plans and shared masks come from public_root(...)")
        if self.policy.shards > 1 and not self.rule.coordinate_wise:
            raise ConfigError(
                f"rule {self.rule.name!r} looks at all coordinates together, {self.policy.shards} aggregators see parts",
                fix="use one aggregator, or mean, median or trimmed_mean",
            )
        if self.chain.needs_linear_rule and not self.rule.linear:
            raise ConfigError(
                f"rule {self.rule.name!r} cannot follow {self.chain.describe()}",
                fix="use the mean: sparsified messages have a median of zero, and a reference needs s = Σ w_k s_k",
            )
        if self.chain.adds_noise:
            self.spec.require_noise_is_possible()

    @property
    def compressor(self) -> Compressor:
        """The compressor at the end of the chain."""
        last = self.chain.transforms[-1]
        if not isinstance(last, Compress | Shift):
            raise ConfigError(f"{last!r} ends the chain but packs nothing", fix="build chains with chain(...)")
        return last.compressor

    @property
    def keeps_references(self) -> bool:
        """Whether members hold private references, so that leaving or returning needs a reference epoch."""
        return bool(self.chain.private_state(0))

    def layout(self, round: int) -> Layout:
        """Return the shards of a round."""
        return self.policy.layout(round)

    def round_seed(self, round: int) -> Seed:
        """Return the public seed of a round: shared masks."""
        return self.public.child("round", round)
