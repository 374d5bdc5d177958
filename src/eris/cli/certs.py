"""`eris certs`: who belongs to a federation. A CA, certificates for its peers, revocation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from eris.transport.summary import Summary

__all__ = ["register"]

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the federation's CA.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the peer: lower-case letters, digits, dashes.")]
_Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", help="Also list this DNS name or address (only the coordinator may need it). Repeatable."),
]
_Days = Annotated[int, typer.Option(min=1, max=3650, help="How long the certificate is valid.")]
_Replace = Annotated[bool, typer.Option("--replace", help="Use a new key; withdraw the name's old certificate.")]

_PEER_DAYS = 397

certs = typer.Typer(no_args_is_help=True, help="Make, sign, show and revoke the certificates of a federation.")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(certs, name="certs")


@certs.command()
def init(
    folder: _Folder,
    federation: Annotated[str, typer.Option(help="The federation's name; peers are NAME.FEDERATION.")] = "eris",
) -> None:
    """Make a CA for a federation."""
    from eris.transport.authority import Authority

    authority = Authority.create(folder, federation)
    typer.echo(f"CA of federation {authority.federation!r} in {folder}")
    typer.echo(f"keep {folder}/ca-key.pem to yourself; next: eris certs issue {folder} NAME")


@certs.command()
def issue(
    folder: _Folder, name: _Name, host: _Hosts = None, days: _Days = _PEER_DAYS, replace: _Replace = False
) -> None:
    """Make a key and certificate for one peer; for a name that has one, renew it with the same key."""
    from eris.transport.authority import Authority

    made = Authority(folder).issue(name, hosts=host or (), days=days, replace=replace)
    typer.echo(f"everything {name} needs is in {made}: send it over a secure channel, because key.pem is secret")
    _show_all(made)


@certs.command("check-proof")
def check_proof(
    proof: Annotated[Path, typer.Argument(metavar="PROOF.json", help="What a peer kept in its folder.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with the federation's ca.pem.")],
) -> None:
    """Check that a coordinator told two stories, or an aggregator lied; needs nothing but the CA's certificate."""
    from functools import partial

    from eris.protocol.seal import Contradiction
    from eris.transport.certificates import read_certificates
    from eris.transport.credentials import ROOT, issued_to, read_file
    from eris.transport.sealed import read_proof, require_lie, require_proof

    authorities = read_certificates(read_file(folder / ROOT), where=folder / ROOT)
    found, issued = read_proof(proof), partial(issued_to, authorities=authorities)
    if isinstance(found, Contradiction):
        require_proof(found, issued)
        typer.echo(f"{found}. Both are signed by a coordinator of this CA.")
    else:
        typer.echo(f"{require_lie(found, issued)}. The signatures are good.")


@certs.command()
def request(
    name: _Name,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The peer's own folder; key.pem stays there.")],
) -> None:
    """Make a key here, and a request for the CA to sign: the key never leaves this machine."""
    from eris.transport.authority import request as make_request

    path = make_request(name, out)
    typer.echo(
        f"send {path} to the CA, tell it the fingerprint over another channel, and put what it returns into {out}"
    )
    _show_all(path)


@certs.command()
def sign(
    folder: _Folder,
    request: Annotated[Path, typer.Argument(metavar="REQUEST.csr", help="What the peer sent.")],
    host: _Hosts = None,
    days: _Days = _PEER_DAYS,
    replace: _Replace = False,
) -> None:
    """Sign a peer's request, after comparing its fingerprint with the peer over another channel."""
    from eris.transport.authority import Authority

    made = Authority(folder).sign(request, hosts=host or (), days=days, replace=replace)
    typer.echo(f"send the files in {made} back to the peer; none of them is secret")
    _show_all(made)


@certs.command()
def renew(
    folder: _Folder,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Peers (default: all).")] = None,
    days: _Days = _PEER_DAYS,
    within: Annotated[
        int | None, typer.Option(min=0, metavar="DAYS", help="Only those that expire within this many days.")
    ] = None,
) -> None:
    """Issue new certificates for the peers' existing keys; running peers pick them up without a restart."""
    import time

    from eris.transport.authority import Authority
    from eris.transport.credentials import CERTIFICATE
    from eris.transport.summary import summaries

    authority = Authority(folder)
    for name in names or authority.names():
        ends = authority.holds_until(name)
        if within is not None and ends - time.time() > within * 86_400:
            typer.echo(f"{name} is valid for another {(ends - time.time()) / 86_400:.0f} days")
            continue
        made = authority.renew(name, days=days)
        typer.echo(f"{name}: put {made / CERTIFICATE} into the peer's folder; it is not secret")
        for summary in summaries(made / CERTIFICATE):
            _show(summary)


@certs.command()
def rotate(
    folder: _Folder,
    finish: Annotated[
        bool, typer.Option("--finish", help="Trust only the new CA, once everybody has renewed.")
    ] = False,
) -> None:
    """Replace the CA itself, with a period in which both are trusted."""
    from eris.transport.authority import Authority

    authority = Authority(folder)
    if finish:
        authority.retire()
        typer.echo(f"{folder}/ca.pem holds only the new CA: give it to every peer, the coordinator and the relays")
        return
    authority.rotate()
    typer.echo(f"{folder}/ca.pem holds the old CA and the new one; no run needs to stop:")
    typer.echo(f"1. give ca.pem and revoked.pem of {folder} to every peer, the coordinator and the relays")
    typer.echo(f"2. then `eris certs renew {folder}`, and give each its new certificate.pem")
    typer.echo(f"3. then `eris certs rotate {folder} --finish`, and give everybody ca.pem and revoked.pem once more")


@certs.command()
def revoke(folder: _Folder, name: _Name) -> None:
    """Withdraw all certificates of a peer; links refuse it as soon as they know revoked.pem."""
    from eris.transport.authority import Authority

    serials = Authority(folder).revoke(name)
    withdrawn = ", ".join(f"{serial:x}" for serial in serials) or "nothing that was still valid"
    typer.echo(f"withdrawn for {name}: {withdrawn}")
    typer.echo(f"{folder}/revoked.pem is for every peer and the coordinator; it takes effect without a restart")


@certs.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A certificate, a request, or a folder of them.")],
) -> None:
    """Print names, fingerprint and validity; warn 30 days before expiry."""
    _show_all(path)


def _show_all(path: Path) -> None:
    from eris.errors import ConfigError
    from eris.transport.summary import summaries

    found = summaries(path)
    if not found:
        raise ConfigError("there is no certificate here", fix="give a file, a peer's folder or a CA's", folder=path)
    for summary in found:
        _show(summary)


def _show(summary: Summary) -> None:
    typer.echo(f"{summary.kind} {summary.names[0]}  ({summary.path})")
    if summary.names[1:]:
        typer.echo(f"  hosts        {', '.join(summary.names[1:])}")
    typer.echo(f"  fingerprint  {summary.fingerprint}")
    if summary.not_before and summary.not_after:
        typer.echo(f"  valid        {summary.not_before:%Y-%m-%d} to {summary.not_after:%Y-%m-%d}")
        typer.echo(f"  serial       {summary.serial}")
    if warning := summary.warning():
        typer.secho(f"  warning      {warning}", fg=typer.colors.YELLOW)
