"""Certificates for years: renewal by the CA alone, a new CA while both are believed, warnings in time."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from eris.errors import ConfigError
from eris.transport.authority import Authority, request
from eris.transport.credentials import CERTIFICATE, REVOKED, ROOT, Credentials
from eris.transport.identity import Refusal
from eris.transport.link import LinkLimits, LinkRefused
from eris.transport.link_listener import LinkListener
from eris.transport.summary import summaries
from eris.transport.tls_link import dial


def own_folder(federation: Any, name: str, tmp_path: Path) -> Path:
    """A peer's folder on a machine of its own: it changes only when somebody carries files there."""
    return Path(shutil.copytree(federation.authority.issue(name), tmp_path / f"at-{name}"))


def carry(federation: Any, name: str, folder: Path, *files: str) -> None:
    for file in files:
        shutil.copy(federation.folder / "peers" / name / file, folder / file)


def meet(dialler: Credentials, acceptor: Credentials, limits: LinkLimits) -> None:
    """Dial once, with whatever both have now."""
    with LinkListener(acceptor, ("127.0.0.1", 0), limits=limits) as listener:
        dial(listener.address, dialler, expected=acceptor.name, limits=limits).close()


def test_a_renewal_needs_no_key_and_keeps_hosts(federation: Any, tmp_path: Path) -> None:
    path = request("alice", tmp_path / "alice")
    federation.authority.sign(path, hosts=["alice.example.org"], days=5)
    before = summaries(federation.folder / "peers" / "alice" / CERTIFICATE)[0]
    after = summaries(federation.authority.renew("alice") / CERTIFICATE)[0]
    assert (after.fingerprint, after.names) == (before.fingerprint, before.names)
    assert after.serial != before.serial
    assert (before.warning() or "").startswith("expires in")
    assert after.warning() is None
    assert federation.authority.names() == ["alice"]


def test_what_does_not_hold_is_not_renewed(federation: Any) -> None:
    federation.authority.issue("alice")
    federation.authority.revoke("alice")
    for name in ("alice", "nobody"):
        with pytest.raises(ConfigError, match="has no valid certificate"):
            federation.authority.renew(name)
    assert federation.authority.names() == []


def test_a_ca_is_replaced_while_everybody_goes_on(federation: Any, tmp_path: Path, limits: LinkLimits) -> None:
    folders = {name: own_folder(federation, name, tmp_path) for name in ("alice", "bob")}
    alice, bob = (Credentials(folder) for folder in folders.values())
    fingerprints = alice.identity.fingerprint, bob.identity.fingerprint

    def step(name: str, *files: str) -> None:
        carry(federation, name, folders[name], *files)
        assert Credentials(folders[name]).name == name  # the folder fits together
        for dialler, acceptor in ((alice, bob), (bob, alice)):
            meet(dialler, acceptor, limits)

    federation.authority.rotate()
    for name in folders:
        step(name, ROOT, REVOKED)
    for name in folders:
        Authority(federation.folder).renew(name)
        step(name, CERTIFICATE)
    Authority(federation.folder).retire()
    for name in folders:
        step(name, ROOT, REVOKED)
    assert (alice.identity.fingerprint, bob.identity.fingerprint) == fingerprints
    assert len(summaries(federation.folder / ROOT)) == 1
    assert not (federation.folder / "ca-key-old.pem").exists()


def test_who_was_not_told_of_the_new_ca_does_not_believe_it(
    federation: Any, tmp_path: Path, limits: LinkLimits
) -> None:
    folders = {name: own_folder(federation, name, tmp_path) for name in ("alice", "bob")}
    federation.authority.rotate()
    federation.authority.renew("alice")
    carry(federation, "alice", folders["alice"], ROOT, REVOKED, CERTIFICATE)
    with pytest.raises(LinkRefused) as caught:
        meet(Credentials(folders["alice"]), Credentials(folders["bob"]), limits)
    assert caught.value.reason is Refusal.UNKNOWN_CA


def test_the_old_ca_is_not_retired_while_somebody_needs_it(federation: Any) -> None:
    for name in ("alice", "bob"):
        federation.authority.issue(name)
    with pytest.raises(ConfigError, match="there is no old CA"):
        federation.authority.retire()
    federation.authority.rotate()
    with pytest.raises(ConfigError, match="already being replaced"):
        Authority(federation.folder).rotate()
    federation.authority.renew("bob")
    with pytest.raises(ConfigError, match="alice would be shut out"):
        federation.authority.retire()
    federation.authority.revoke("alice")
    federation.authority.retire()


def test_a_revocation_counts_on_both_sides_of_a_rotation(federation: Any, tmp_path: Path) -> None:
    mallory = Credentials(federation.authority.issue("mallory")).identity
    behind = Credentials(own_folder(federation, "alice", tmp_path))  # has the old ca.pem only
    federation.authority.rotate()
    ahead = Credentials(federation.authority.renew("alice"))
    federation.authority.revoke("mallory")
    listing = (federation.folder / REVOKED).read_bytes()
    for credentials in (behind, ahead):
        credentials.refresh()
        credentials.adopt_revocations(listing)
        assert credentials.refusal(mallory) is Refusal.REVOKED
    federation.authority.renew("alice")
    federation.authority.retire()
    assert Credentials(federation.folder / "peers" / "alice").refusal(mallory) is Refusal.REVOKED
    with pytest.raises(ConfigError, match="not signed by this federation's CA"):
        behind.adopt_revocations((federation.folder / REVOKED).read_bytes())


def test_two_federations_in_one_file_are_refused(federation: Any, tmp_path: Path) -> None:
    folder = federation.authority.issue("alice")
    other = Authority.create(tmp_path / "other", "other")
    with (folder / ROOT).open("ab") as file:
        file.write((other.folder / ROOT).read_bytes())
    with pytest.raises(ConfigError, match="CAs of several federations"):
        Credentials(folder)


def test_the_log_says_once_a_day_that_a_certificate_ends(
    federation: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = Credentials(federation.authority.issue("alice", days=10))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            soon.refresh()
        assert caplog.text.count("expires in 10 days: renew it with `eris certs renew`") == 1
        soon._warned -= 86_400
        soon.refresh()
        assert caplog.text.count("eris certs renew") == 2
        federation.authority.renew("alice")
        soon._warned -= 86_400
        assert soon.refresh()
        caplog.clear()
        soon.refresh()
        assert caplog.text == ""
