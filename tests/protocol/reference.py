"""The same run with one aggregator, written as plainly as possible: full vectors, no shards, no messages.

It is told each round's plan and verdict, that is, which (member, shard) pairs are missing, and nothing else.
"""

from __future__ import annotations

import numpy as np

from eris.local.spec import Vector
from eris.protocol.recipe import Recipe
from eris.protocol.round_plan import RoundPlan
from eris.protocol.verdict import Verdict
from tests.protocol.world import pretend_to_train

F = np.float32


class Reference:
    """FedAvg with server momentum, with or without DSC under shared rand-k masks."""

    def __init__(self, recipe: Recipe, model: Vector, *, beta: float, kept: float | None, gamma: float = 0.0) -> None:
        self.recipe, self.x = recipe, model.copy()
        self.nt = recipe.spec.n_trainable
        self.beta, self.kept, self.gamma = F(beta), kept, F(gamma)
        self.m = np.zeros(self.nt, F)
        self.s = np.zeros(self.nt, F)
        self.s_k: dict[int, Vector] = {}
        self.epoch, self.round = 0, 0

    def step(self, plan: RoundPlan, verdict: Verdict) -> None:
        if plan.reference_epoch != self.epoch:
            self.s_k, self.epoch = {entry.peer: self.s.copy() for entry in plan.roster}, plan.reference_epoch
        layout = self.recipe.layout(plan.round)
        everywhere = np.arange(self.nt, dtype=np.int64)
        owner = layout.trainable.owners_of(everywhere)
        buffer_owner = layout.buffers.owners_of(np.arange(layout.buffers.n, dtype=np.int64))
        total = sum(entry.weight for entry in plan.roster)
        weight = {entry.peer: F(entry.weight / total) for entry in plan.roster}
        contributors = [set(e.contributors) if e.committed else set() for e in verdict.shards]
        committed = np.array([e.committed for e in verdict.shards])
        c = np.array([self._c([weight[k] for k in sorted(who)]) for who in contributors], F)

        mean, buffer_mean, sent = np.zeros(self.nt, F), np.zeros(layout.buffers.n, F), {}
        for peer in sorted(set().union(*contributors)):
            update = pretend_to_train(self.x, peer, plan.round).update
            value = sent[peer] = self._compress(update[: self.nt] - self._s_k(peer), plan.round)
            inside = np.array([peer in who for who in contributors])
            here = inside[owner]
            mean[here] += weight[peer] * value[here]
            here_too = inside[buffer_owner]
            buffer_mean[here_too] += weight[peer] * update[self.nt :][here_too]
        self._advance(mean, c[owner], committed[owner])
        self.x[self.nt :] -= np.where(committed[buffer_owner], buffer_mean * c[buffer_owner], F(0))
        for peer, value in sent.items():
            here = np.array([peer in who for who in contributors])[owner]
            if self.kept is not None:
                self.s_k[peer] = self._s_k(peer) + np.where(here, self.gamma * value, F(0))
        self.round += 1

    def _advance(self, mean: Vector, c: Vector, committed: np.ndarray) -> None:
        direction = c * mean + self.s
        momentum = self.beta * self.m + -direction
        moved = self.x[: self.nt] + momentum
        self.m = np.where(committed, momentum, self.m)
        self.x[: self.nt] = np.where(committed, moved, self.x[: self.nt])
        if self.kept is not None:
            self.s = self.s + np.where(committed, self.gamma * mean, F(0))

    def _s_k(self, peer: int) -> Vector:
        return self.s_k.setdefault(peer, np.zeros(self.nt, F))

    def _compress(self, value: Vector, round: int) -> Vector:
        if self.kept is None:
            return value
        k = max(1, int(self.kept * self.nt))
        mask = self.recipe.public.child("round", round, "mask").subset(self.nt, k)
        out = np.zeros(self.nt, F)
        out[mask] = value[mask] * F(self.nt / k)
        return out

    @staticmethod
    def _c(weights: list[np.float32]) -> np.float32:
        total = sum(float(w) for w in weights)
        return F(1.0 / total) if total else F(1.0)
