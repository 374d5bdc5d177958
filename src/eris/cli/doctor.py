"""`eris doctor`: which step between this machine and its federation fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eris.cli.networking.options import DEFAULT_FILE, CredentialsOption, FederationArgument, ProxyOption, RelayOption

if TYPE_CHECKING:
    from eris.peer.federation_file import FederationFile
    from eris.peer.node_settings import NodeSettings
    from eris.peer.own_task import MakeTask
    from eris.peer.preflight import CheckResult
    from eris.transport.credentials import Credentials

__all__ = ["check_peer", "network_findings", "register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def doctor(
        file: FederationArgument = DEFAULT_FILE,
        peer: Annotated[str | None, typer.Option(metavar="NAME", help="Which peer this machine is.")] = None,
        credentials: CredentialsOption = None,
        listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="As for `eris join`.")] = None,
        no_listen: Annotated[bool, typer.Option("--no-listen", help="As for `eris join`.")] = False,
        relay: RelayOption = None,
        proxy: ProxyOption = None,
        advertise: Annotated[str, typer.Option(metavar="HOST", help="As for `eris join`.")] = "",
        out: Annotated[Path, typer.Option(help="Where this peer will write.")] = Path("runs"),
    ) -> None:
        """Check name, certificate, proxy, address, port, CA, clock, version, listening, relays and disk."""
        from eris.cli.networking.findings import show_findings
        from eris.cli.networking.options import address_option, advertised, find_credentials, relays_option
        from eris.peer.federation_file import load_federation
        from eris.peer.node_settings import NodeSettings
        from eris.peer.preflight import examine_disk
        from eris.transport.control import COORDINATOR
        from eris.transport.route import Proxy

        federation = load_federation(file)
        names = (peer,) if peer else (*federation.peers, COORDINATOR)
        own = find_credentials(file, federation, credentials, *names)
        place = None if no_listen or (relay and not listen) else address_option(listen, "--listen") or ("", 0)
        settings = NodeSettings(
            own.name,
            listen=place,
            relays=relays_option(relay),
            proxy=Proxy.chosen(proxy),
            advertise=advertise or advertised(place),
        )

        def findings() -> Iterator[CheckResult]:
            yield from network_findings(federation, own, settings)
            yield from examine_disk(out)

        show_findings(findings())


def network_findings(federation: FederationFile, own: Credentials, settings: NodeSettings) -> Iterator[CheckResult]:
    """Check everything between this peer and the others, as far as it can be without a coordinator."""
    from eris.peer.preflight import examine_coordinator, examine_listening, examine_name

    yield from examine_name(federation, own, own.name)
    reachable = True
    for finding in examine_coordinator(federation, own, settings.proxy):
        reachable = finding.what == "coordinator" and finding.well
        yield finding
    if reachable:
        yield from examine_listening(federation, own, settings)


def check_peer(
    federation: FederationFile, own: Credentials, settings: NodeSettings, task: str | MakeTask | None, folder: Path
) -> None:
    """Print what `eris join --check` finds: the network, the task, memory and disk; nothing is begun.

    Args:
        federation: the file that all peers share.
        own: this peer's credentials.
        settings: what it would join with.
        task: its own task, if it has one.
        folder: where it would write.
    """
    from eris.cli.networking.findings import show_findings
    from eris.peer.preflight import examine_task

    def findings() -> Iterator[CheckResult]:
        yield from network_findings(federation, own, settings)
        number = federation.number(settings.name)
        yield from examine_task(federation, task, settings.floor, number, folder, spill_above=settings.spill_above)

    typer.echo(f"digest {federation.digest}")
    show_findings(findings())
