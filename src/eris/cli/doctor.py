"""`eris doctor`: which step between this machine and its federation fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationFile

if TYPE_CHECKING:
    from eris.peer.doctor import Finding
    from eris.peer.federation import Federation
    from eris.transport.credentials import Credentials

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def doctor(
        file: FederationFile = DEFAULT_FILE,
        peer: Annotated[str | None, typer.Option(metavar="NAME", help="Which peer this machine is.")] = None,
        credentials: CredentialsOption = None,
        listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="As for `eris join`.")] = None,
        no_listen: Annotated[bool, typer.Option("--no-listen", help="As for `eris join`.")] = False,
        advertise: Annotated[str, typer.Option(metavar="HOST", help="As for `eris join`.")] = "",
        out: Annotated[Path, typer.Option(help="Where this peer will write.")] = Path("runs"),
    ) -> None:
        """Check name, certificate, address, port, CA, clock, version, listening and disk; say which is wrong."""
        from eris.cli.networking.findings import show_findings
        from eris.cli.networking.options import address_option, advertised, find_credentials
        from eris.peer.doctor import examine_disk
        from eris.peer.federation import load_federation
        from eris.transport.control import COORDINATOR

        federation = load_federation(file)
        names = (peer,) if peer else (*federation.peers, COORDINATOR)
        own = find_credentials(file, federation, credentials, *names)
        place = None if no_listen else address_option(listen, "--listen") or ("", 0)

        def findings() -> Iterator[Finding]:
            yield from network_findings(federation, own, place, advertise or advertised(place))
            yield from examine_disk(out)

        show_findings(findings())


def network_findings(
    federation: Federation, own: Credentials, place: tuple[str, int] | None, advertise: str
) -> Iterator[Finding]:
    """Look at everything between this peer and the others; what cannot be asked without a coordinator is left out."""
    from eris.peer.doctor import examine_coordinator, examine_listening, examine_name

    yield from examine_name(federation, own, own.name)
    reachable = True
    for finding in examine_coordinator(federation, own):
        reachable = finding.what == "coordinator" and finding.well
        yield finding
    if reachable:
        yield from examine_listening(federation, own, place, advertise)
