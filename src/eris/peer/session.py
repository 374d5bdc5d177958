"""One peer's part in a run: join, play, record everything, and resume after an interruption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from eris.events import Event, Listener, RoundEnded, RoundStarted, RunEnded, VerdictWritten, hears
from eris.local.task import Task, leave_behind
from eris.peer.budget import MemberBudget, RunBudget
from eris.peer.federation_file import FederationFile
from eris.peer.folder_claim import FolderClaim
from eris.peer.node import Node
from eris.peer.node_settings import NodeSettings
from eris.peer.peer_folder import PeerFolder
from eris.peer.peer_summary import summarise_peer
from eris.seeds import Seed
from eris.transport.credentials import Credentials

__all__ = ["Session"]


class Session:
    """Runs a node and keeps its folder, as the first of the node's listeners."""

    def __init__(
        self,
        federation: FederationFile,
        credentials: Credentials,
        task: Task,
        private: Seed,
        settings: NodeSettings,
        folder: PeerFolder,
        *,
        reproducible: bool = False,
        evaluate: bool = True,
        listeners: Iterable[Listener] = (),
        own_task: str = "",
        budget: MemberBudget | None = None,
        max_epsilon: float = 0.0,
    ) -> None:
        """Prepare a node that records into `folder`.

        Args:
            private: this peer's private root of randomness.
            reproducible: its noise comes from the run's seed, and protects nobody.
            evaluate: score the model with the task.
            listeners: hear the node's events, after the folder.
            own_task: where the task was imported from, if it is not the one that the configuration describes.
            budget: keeps what this member spends over all runs.
            max_epsilon: a run that might bring the budget above this is refused; 0: no limit.
        """
        self._own_task = own_task
        self._folder, self.name = folder, settings.name
        self._summary: dict[str, Any] = {}
        self._decided: VerdictWritten | None = None  # of the round that is ending
        self.node = Node(
            federation,
            credentials,
            task,
            private,
            settings if settings.folder is not None else replace(settings, folder=folder.path),
            listeners=(self._write_down, *listeners),
            checkpoints=folder,
            evaluate=evaluate,
            reproducible=reproducible,
        )
        self.budget = RunBudget(budget, self.node, most=max_epsilon) if budget is not None else None

    def run(self) -> dict[str, Any]:
        """Join or resume; stay until the run ends or somebody stops it; return the summary."""
        folder, node = self._folder, self.node
        folder.path.mkdir(parents=True, exist_ok=True)
        claim = FolderClaim(folder.path)  # before anything in it is repaired
        try:
            folder.open()
            folder.require_room(node.recipe)
            folder.restore(node.member, node.training)
            node.run()
        finally:
            claim.release()
        return self._summary

    @hears(RoundStarted, VerdictWritten, RoundEnded, RunEnded)
    def _write_down(self, event: Event) -> None:
        if self.budget is not None and isinstance(event, RunBudget.hears):
            self.budget(event)
        match event:
            case VerdictWritten(plan=plan, verdict=verdict):
                self._decided = event
                self._folder.note_verdict(plan, verdict)
            case RoundEnded():
                self._note_round(event)
            case RunEnded():
                self._conclude(event)

    def _note_round(self, ended: RoundEnded) -> None:
        assert self._decided is not None  # a round ends with its verdict
        member, aggregator = ended.traffic.member, ended.traffic.aggregator
        self._folder.note_metrics({
            "round": ended.round,
            **ended.metrics,
            "bytes_up": {"member": member.up, "aggregator": aggregator.up},
            "bytes_down": {"member": member.down, "aggregator": aggregator.down},
            "bytes_total": ended.traffic.total,
            "lost_shards": ended.lost_shards,
            "late": list(self._decided.verdict.late),
            "seconds": dict(ended.seconds),
        })  # fmt: skip
        if self._decided.plan.checkpoint:
            self._folder.save(self.node.member, self.node.training)

    def _conclude(self, end: RunEnded) -> None:
        folder, node = self._folder, self.node
        folder.save(node.member, node.training)
        lines = {"rounds": folder.lines("metrics.jsonl"), "verdicts": folder.lines("verdicts.jsonl")}
        self._summary = summarise_peer(node, end, own_task=self._own_task, **lines)
        if self.budget is not None:
            self._summary["budget"] = self.budget.total.to_dict()
        folder.write_model(node.recipe.spec, node.member.replica.chosen)
        leave_behind(node.training.task, node.member.replica.chosen, folder.path)
        folder.write("summary.json", self._summary)
