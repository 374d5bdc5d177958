"""What a coordinator says of its run, as facts to be shown: by itself, or to whoever may ask for its status."""

from __future__ import annotations

from eris.protocol.take_over import term_of
from eris.transport.calls import Overview
from eris.web.live_facts import LiveFacts

__all__ = ["note_overview"]


def note_overview(facts: LiveFacts, status: Overview, coordinator: str) -> None:
    """Take up a coordinator's overview, under its name; what its events report stays as it is."""
    facts.note(
        kind="coordinator", state=status.state, why=status.why, rounds=status.rounds, round=status.round,
        coordinator={"name": coordinator, "term": term_of(status.epoch), "epoch": status.epoch},
        lost=dict(status.lost), expires=status.expires, version=status.version, run=status.run,
        control={"sent": status.control.sent, "received": status.control.received},
    )  # fmt: skip
    facts.note_peers({
        peer.name: {
            "here": peer.here,
            "aggregates": peer.aggregates,
            "organisation": peer.organisation,
            "reached": status.ways[peer.way] if peer.way >= 0 else "dials out only" if peer.here else "",
            "expires": peer.expires,
        }
        for peer in status.peers
    })  # fmt: skip
