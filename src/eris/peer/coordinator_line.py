"""A peer's connection to the coordinator: calls, what was heard over it, and whom the peer follows."""

from __future__ import annotations

from eris.errors import ConfigError
from eris.peer.allegiance import Allegiance
from eris.peer.coordinator_watch import CoordinatorWatch
from eris.peer.federation_file import FederationFile
from eris.peer.inbox import Inbox
from eris.peer.node_settings import NodeSettings
from eris.peer.rosters import RosterCache
from eris.peer.witness import Witness
from eris.transport.calls import CertificateAnswer, CertificateRequest
from eris.transport.control_client import ControlClient
from eris.transport.credentials import Credentials

__all__ = ["CoordinatorLine"]


class CoordinatorLine:
    """Holds everything that talks to the coordinator of one run.

    `control` calls it, `inbox` has what it said last, `rosters` what its plans cite, `witness` what it signed. With
    standbys, `allegiance` says which one is followed, and a thread looks for another when that one is silent.
    """

    def __init__(self, federation: FederationFile, credentials: Credentials, settings: NodeSettings, run: str) -> None:
        """Prepare without calling anybody; only seals of `run` count."""
        self.control = ControlClient(
            credentials, federation.coordinator, proxy=settings.proxy, patience=federation.settings.connect
        )
        self.inbox, self.rosters = Inbox(settings), RosterCache(self.control)
        self.allegiance = _allegiance(federation, credentials, settings)
        self.witness = Witness(
            credentials,
            run,
            lambda: self.control.fetch(CertificateRequest(), CertificateAnswer).certificate,
            settings.folder,
            allegiance=self.allegiance,
            names=federation.coordinators,
        )
        self._watch: CoordinatorWatch | None = None
        if self.allegiance is not None:
            told = self.control, self.inbox, settings.proxy
            self._watch = CoordinatorWatch(federation, credentials, self.allegiance, *told)

    def start(self) -> None:
        """Start looking for another coordinator, where one may take over."""
        if self._watch is not None:
            self._watch.start()

    def close(self) -> None:
        """Close everything but the inbox, which is closed by whoever stops reading it."""
        self.control.close()
        if self.allegiance is not None:
            self.allegiance.close()


def _allegiance(federation: FederationFile, credentials: Credentials, settings: NodeSettings) -> Allegiance | None:
    """Return this peer's promise and log, where another coordinator may take over; they must be on a disk."""
    if not federation.settings.standbys:
        return None
    if settings.folder is None:
        raise ConfigError(
            "this federation lists standbys, but this peer has no folder in which to keep verdicts and promises",
            fix="give it one (--out)",
            peer=settings.name,
        )
    return Allegiance(federation, credentials, settings.folder)
