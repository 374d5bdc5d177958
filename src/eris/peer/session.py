"""One peer's stay in a run: join, play, write everything down, and come back after an interruption."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from eris.local.task import Task
from eris.peer.federation import Federation
from eris.peer.folder_claim import FolderClaim
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.peer.peer_folder import PeerFolder
from eris.peer.round_report import RoundReport
from eris.peer.stay import Stay, summarise_stay
from eris.protocol.floor import shares
from eris.protocol.round_plan import RoundPlan
from eris.seeds import Seed
from eris.transport.credentials import Credentials

__all__ = ["Notice", "Session"]

Notice = dict[str, Any]  # something that happened, as plain data: {"event": "round", "peer": …, …}


class Session:
    """Runs a node and keeps its folder; `listeners` hear of every step."""

    def __init__(
        self,
        federation: Federation,
        credentials: Credentials,
        task: Task,
        private: Seed,
        settings: NodeSettings,
        folder: PeerFolder,
        *,
        reproducible: bool = False,
        evaluate: bool = True,
        listeners: Sequence[Callable[[Notice], None]] = (),
    ) -> None:
        self._task, self._folder, self._listeners = task, folder, tuple(listeners)
        self._reproducible, self._evaluate = reproducible, evaluate
        self._began = time.monotonic()
        self.node = Node(
            federation,
            credentials,
            task,
            private,
            settings if settings.folder is not None else replace(settings, folder=folder.path),
            on_round=self._note_round,
            on_missed=folder.note_verdict,
        )
        self.federation, self.name = federation, settings.name

    @property
    def run_name(self) -> str:
        """The run's name, as plans and messages carry it."""
        return self.node.run_name

    def run(self) -> dict[str, Any]:
        """Join, or come back; stay until the run ends or somebody stops it; return the summary."""
        self._folder.path.mkdir(parents=True, exist_ok=True)
        claim = FolderClaim(self._folder.path)  # before anything in it is mended
        try:
            self._folder.open()
            return self._stay()
        finally:
            claim.release()

    def _stay(self) -> dict[str, Any]:
        self._folder.require_room(self.node)
        self.node.past.rounds = self._folder.rounds
        self.node.past.go_back = lambda round: self._folder.restore(self.node, round)
        resumed = self._folder.restore(self.node)
        self._tell("start", round=self.node.member.round, resumed=resumed, pid=os.getpid())
        ended = self.node.run()
        self._folder.save(self.node)
        summary = self._summary(ended)
        self._folder.write_model(self.node.recipe.spec, self.node.member.replica.model)
        self._folder.write("summary.json", summary)
        self._tell("end", how=ended, model_digest=summary["model_digest"], rounds=summary["rounds"])
        return summary

    def _note_round(self, report: RoundReport) -> None:
        plan, verdict = report.plan, report.verdict
        self._folder.note_verdict(plan, verdict)
        line = {
            "round": plan.round,
            "train_loss": report.loss,
            **self._metrics(plan.round),
            "bytes_up": {"member": report.member.up, "aggregator": report.aggregator.up},
            "bytes_down": {"member": report.member.down, "aggregator": report.aggregator.down},
            "bytes_total": report.bytes_up,  # what each peer sent adds up to what went over all links
            "largest_share": self._largest_share(plan),
            "lost_shards": len(verdict.lost_shards),
            "late": list(verdict.late),
            "seconds": {"round": report.seconds},
        }
        self._folder.note_metrics(line)
        if plan.checkpoint:
            self._folder.save(self.node)
        self._tell("round", **line, shards=plan.shards, peers=len(plan.roster), rounds=self.federation.config.rounds)

    def _metrics(self, round: int) -> dict[str, float]:
        config, done = self.federation.config, round + 1
        if not self._evaluate or (done % config.evaluate_every and done != config.rounds):
            return {}
        return self._task.evaluate(self.node.member.replica.model)

    def _largest_share(self, plan: RoundPlan) -> float:
        """Return the largest part of this peer's update that any other peer received, if it sent one."""
        if self.node.number not in plan.participants:
            return 0.0
        others = (share for peer, share in shares(plan, self.node.recipe).items() if peer != self.node.number)
        return max(others, default=0.0)

    def _summary(self, ended: str) -> dict[str, Any]:
        stay = Stay(
            node=self.node,
            ended=ended,
            rounds=self._folder.lines("metrics.jsonl"),
            verdicts=self._folder.lines("verdicts.jsonl"),
            seconds=time.monotonic() - self._began,
            reproducible=self._reproducible,
        )
        return summarise_stay(stay)

    def _tell(self, event: str, **facts: Any) -> None:
        notice = {"event": event, "peer": self.name, **_finite(facts)}
        for listener in self._listeners:
            listener(notice)


def _finite(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in facts.items()
    }
