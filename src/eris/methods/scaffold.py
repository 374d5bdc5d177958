"""SCAFFOLD: every local gradient is corrected by c − c_k, all members' mean gradient minus the member's own.

c_k is the mean of a member's last local gradients, c the members' weighted mean of them. Both follow from updates: with
gradient steps of size η, τ_k of them, u_k/(τ_k η) is the mean corrected gradient (weighted as momentum weighs them).
So a member sends

    v_k = u_k/(τ_k η) − c        which is  c_k' − c_k,  how its control variate changes

and everybody takes c ← c + v̄, and steps along u = τη·(c + v̄), τ being the members' mean. The two control variates are
state like DSC's references, sharded like the model. They follow from what travels anyway, so not a byte is added, and
an aggregator sees what it sees in eris: its shard of the update. c = Σ w_k c_k holds with partial participation, lost
shards and newcomers, because c_k moves on the verdict, and only where this member was a contributor.
"""

from __future__ import annotations

import numpy as np

from eris.config import Config
from eris.errors import ConfigError
from eris.local.spec import Vector
from eris.methods.method import Method
from eris.transforms import Accepted, MeanStretch, SendContext, State, Transform
from eris.transforms.packed import Packed

__all__ = ["SCAFFOLD", "ControlVariates"]


class ControlVariates(Transform):
    """Turn updates into changes of control variates and back; `lr` is the size of a local step."""

    needs_linear_rule = needs_steps = only_sums = True  # c = Σ w_k c_k holds for means only
    shared_reference = False  # an auditor treats it as a shift: it knows c_k from its start and what was sent since

    def __init__(self, lr: float) -> None:
        self.lr = self.direction_per_value = lr  # directions are τη·(c + v̄), τ ≥ 1

    def __repr__(self) -> str:
        return f"control_variates({self.lr:g})"

    def private_state(self, n: int) -> State:
        """Return c_k = 0."""
        return {"control": np.zeros(n, np.float32)}

    def public_state(self, n: int) -> State:
        """Return c = 0."""
        return {"control": np.zeros(n, np.float32)}

    def reference_step(self, n: int, round: int = 0) -> np.float32:
        """Return 1: control variates move by what was sent."""
        del n, round
        return np.float32(1)

    def drift(self, private: State, public: State) -> Vector:
        """Return c − c_k, which the member adds to every local gradient."""
        return public["control"] - private["control"]

    def outgoing(self, update: Vector, context: SendContext) -> Vector:
        """Return v_k = u_k/(τ_k η) − c."""
        change = update / np.float32(context.steps * self.lr)
        change -= context.public_state["control"]
        return change

    def settle(self, sent: Vector | Packed, private: State, accepted: Accepted) -> None:
        """Move c_k by v_k where the verdict accepted this member."""
        assert isinstance(sent, np.ndarray)
        chosen = accepted.selects(None)
        np.add(private["control"], sent, out=private["control"], where=True if chosen is None else chosen)

    def incoming(self, direction: Vector, mean: MeanStretch) -> None:
        """Turn the mean change into a direction, then move c by it; on a lost shard both are zero."""
        control = mean.public_state["control"]
        direction += control
        direction *= mean.steps * np.float32(self.lr)
        control += mean.values

    def new_epoch(self, private: State, public: State) -> None:
        """Begin a reference epoch: c_k := c."""
        np.copyto(private["control"], public["control"])


def _corrected(config: Config) -> Config:
    local = config.local.model_copy(update={"correction": "control-variate", "correction_options": {}})
    return config.model_copy(update={"local": local})


def _variates(config: Config) -> list[Transform]:
    return [ControlVariates(config.local.lr)]


def _check(config: Config) -> None:
    """Refuse settings that control variates were not derived for."""
    local, privacy = config.local, config.privacy
    impossible = {
        "local.optimizer": (local.optimizer != "sgd", "its steps are not gradients: use sgd"),
        "local.keep_state": (
            local.keep_state and local.momentum > 0,
            "momentum kept from earlier rounds is not a gradient of this one: set it to false",
        ),
        "local.send": (local.send != "delta", "there are no local steps to correct: use delta"),
        "local.cohort": (local.cohort > 1, "members are corrected one by one: use 1"),
        "server.optimizer": (config.server.optimizer == "fednova", "scaffold already evens out steps: use fedavg"),
        "privacy.clip": (privacy.clip > 0, "a bound on the update does not bound c: leave it out"),
        "privacy.noise_multiplier": (privacy.noise_multiplier > 0, "noise would stay in c: leave it out"),
        "privacy.epsilon": (not isinstance(privacy.epsilon, str), "noise would stay in c: leave it out"),
    }
    for key, (found, why) in impossible.items():
        if found:
            raise ConfigError(f"scaffold cannot be combined with this {key}", fix=why, key=key)


SCAFFOLD = Method(
    "scaffold",
    "eris, and members' gradients are corrected for their drift",
    transforms=_variates,
    with_defaults=_corrected,
    check=_check,
    label="SCAFFOLD",
)
