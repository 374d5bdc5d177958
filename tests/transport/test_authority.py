"""Certificates as people make them: init, issue, request and sign, renew, revoke."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from eris.errors import ConfigError, InputError
from eris.transport.authority import Authority, request
from eris.transport.certificates import new_key, new_request, pem
from eris.transport.credentials import Credentials
from eris.transport.identity import PeerIdentity, Refusal, refusal_of
from eris.transport.names import check_host, check_name, full_name, is_loopback, split_name
from eris.transport.revocations import Revocations
from eris.transport.signatures import sign_message, verify_message
from eris.transport.summary import summaries


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())


def names(folder: Path) -> x509.SubjectAlternativeName:
    return certificate(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_a_folder_holds_all_a_peer_needs(federation: Any) -> None:
    folder = federation.authority.issue("alice", hosts=["10.0.0.7", "::1", "alice.example.org"])
    credentials = Credentials(folder)
    assert (credentials.name, credentials.federation) == ("alice", "cardio")
    assert names(folder).get_values_for_type(x509.DNSName) == ["alice.cardio", "alice.example.org"]
    assert [str(a) for a in names(folder).get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    assert 390 < credentials.days_left < 400
    assert credentials.expiry_warning() is None


def test_keys_are_for_their_owner_alone(federation: Any) -> None:
    folder = federation.authority.issue("alice")
    for key in (folder / "key.pem", federation.folder / "ca-key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        key.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Credentials(folder)
    with pytest.raises(ConfigError, match="chmod 600"):
        Authority(federation.folder)


def test_serials_do_not_repeat_or_count(federation: Any) -> None:
    serials = {certificate(federation.authority.issue(f"peer-{n}")).serial_number for n in range(20)}
    assert len(serials) == 20
    assert min(serials) > 2**100


def test_a_renewal_keeps_the_key_and_with_it_the_fingerprint(federation: Any) -> None:
    before = Credentials(federation.authority.issue("alice")).identity
    after = Credentials(federation.authority.issue("alice")).identity
    assert before.fingerprint == after.fingerprint
    assert before.serial != after.serial
    fresh = Credentials(federation.authority.issue("alice", replace=True)).identity
    assert fresh.fingerprint != before.fingerprint
    assert federation.authority.revocations.serials == {before.serial, after.serial}


def test_a_revoked_key_never_comes_back(federation: Any, tmp_path: Path) -> None:
    path = request("alice", tmp_path / "alice")
    first = certificate(federation.authority.sign(path)).serial_number
    assert federation.authority.revoke("alice") == (first,)
    assert federation.authority.revoke("alice") == ()
    with pytest.raises(ConfigError, match="was revoked"):
        federation.authority.sign(path)
    before = Credentials(federation.authority.issue("bob")).identity.fingerprint
    federation.authority.revoke("bob")
    assert Credentials(federation.authority.issue("bob")).identity.fingerprint != before


def test_a_revocation_reaches_every_folder_of_the_ca(federation: Any) -> None:
    alice, bob = federation.credentials("alice"), federation.credentials("bob")
    federation.authority.revoke("alice")
    carol = federation.credentials("carol")
    bob.refresh()
    for peer in (bob, carol):
        assert peer.revocations.serials == {alice.identity.serial}
    with pytest.raises(ConfigError, match=r"\['alice', 'bob', 'carol'\]"):
        federation.authority.revoke("dave")


def test_the_key_of_a_request_stays_where_it_was_made(federation: Any, tmp_path: Path) -> None:
    own = tmp_path / "own"
    path = request("alice", own)
    key = (own / "key.pem").read_bytes()
    returned = federation.authority.sign(path, hosts=["alice.example.org"])
    assert sorted(file.name for file in returned.iterdir()) == ["ca.pem", "certificate.pem", "revoked.pem"]
    for file in returned.iterdir():
        (own / file.name).write_bytes(file.read_bytes())
    assert Credentials(own).name == "alice"
    assert request("alice", own).read_bytes() != b""
    assert (own / "key.pem").read_bytes() == key  # asking again renews: the same key
    federation.authority.sign(path)


def test_a_request_cannot_take_a_name_that_is_in_use(federation: Any, tmp_path: Path) -> None:
    federation.authority.issue("alice")
    thief = request("alice", tmp_path / "thief")
    with pytest.raises(ConfigError, match="another key"):
        federation.authority.sign(thief)
    federation.authority.sign(thief, replace=True)
    assert not (federation.folder / "peers" / "alice" / "key.pem").exists()
    assert len(federation.authority.revocations.serials) == 1


def test_a_request_decides_nothing_but_its_name(federation: Any, tmp_path: Path) -> None:
    key = new_key()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mallory")])
    greedy = x509.CertificateSigningRequestBuilder().subject_name(subject)
    greedy = greedy.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    greedy = greedy.add_extension(x509.SubjectAlternativeName([x509.DNSName("alice.cardio")]), critical=False)
    path = tmp_path / "greedy.csr"
    path.write_bytes(pem(greedy.sign(key, hashes.SHA256())))
    folder = federation.authority.sign(path)
    assert names(folder).get_values_for_type(x509.DNSName) == ["mallory.cardio"]
    assert not certificate(folder).extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_requests_that_cannot_be_signed(federation: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.csr"
    path.write_bytes(b"not a request")
    with pytest.raises(ConfigError, match="no request"):
        federation.authority.sign(path)
    other = ed25519.Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "alice")])
    path.write_bytes(pem(x509.CertificateSigningRequestBuilder().subject_name(subject).sign(other, None)))
    with pytest.raises(ConfigError, match="P-256"):
        federation.authority.sign(path)
    path.write_bytes(pem(new_request(new_key(), "../../root")))
    with pytest.raises(InputError, match="cannot name a peer"):
        federation.authority.sign(path)
    with pytest.raises(ConfigError, match=r"no such file .*none\.csr.*eris certs request"):
        federation.authority.sign(tmp_path / "none.csr")


def test_a_ca_is_never_overwritten_and_must_exist(federation: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already"):
        Authority.create(federation.folder, "cardio")
    (tmp_path / "a-file").touch()
    with pytest.raises(ConfigError, match="a file, not a folder"):
        Authority.create(tmp_path / "a-file", "cardio")
    with pytest.raises(ConfigError, match="eris certs init"):
        Authority(tmp_path)


def test_no_peer_outlives_its_ca(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "cardio", days=10)
    assert certificate(authority.issue("alice")).not_valid_after_utc < datetime.now(UTC) + timedelta(days=11)


def test_folders_that_do_not_fit_together(federation: Any, tmp_path: Path) -> None:
    folder = federation.authority.issue("alice")
    other = Authority.create(tmp_path / "other", "cardio")
    good = (folder / "ca.pem").read_bytes()
    (folder / "ca.pem").write_bytes((other.folder / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match="not signed by this CA"):
        Credentials(folder)
    (folder / "ca.pem").write_bytes(good)
    (folder / "revoked.pem").write_bytes((other.folder / "revoked.pem").read_bytes())
    with pytest.raises(ConfigError, match="not signed by this federation"):
        Credentials(folder)
    (folder / "revoked.pem").unlink()  # optional
    assert Credentials(folder).revocations == Revocations()
    (folder / "key.pem").write_bytes((federation.authority.issue("bob") / "key.pem").read_bytes())
    with pytest.raises(ConfigError, match="do not belong together"):
        Credentials(folder)
    (folder / "certificate.pem").unlink()
    with pytest.raises(ConfigError, match=r"certificate\.pem is missing"):
        Credentials(folder)


def test_revocations_are_adopted_only_if_signed_and_newer(federation: Any, tmp_path: Path) -> None:
    remote = Credentials(federation.authority.issue("alice"))
    old = (remote.folder / "revoked.pem").read_bytes()
    serial = federation.credentials("bob").identity.serial
    federation.authority.revoke("bob")
    new = (federation.folder / "revoked.pem").read_bytes()
    (remote.folder / "revoked.pem").write_bytes(old)  # a machine the CA's folder does not reach
    remote.refresh()
    forged = (Authority.create(tmp_path / "other", "cardio").folder / "revoked.pem").read_bytes()
    with pytest.raises(ConfigError, match="not signed"):
        remote.adopt_revocations(forged)
    assert remote.adopt_revocations(new)
    assert remote.revocations.serials == {serial}
    assert not remote.adopt_revocations(old)  # nobody is let in again by an old list
    assert remote.revocations.serials == {serial}
    with pytest.raises(ConfigError, match="no revocation list"):
        remote.adopt_revocations(b"junk")


def test_a_list_that_cannot_be_written_down_holds_all_the_same(
    federation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(federation.authority.issue("alice"), tmp_path / "alice")
    bob, remote = federation.credentials("bob").identity, Credentials(folder)
    federation.authority.revoke("bob")
    real = os.open

    def read_only(path: Any, flags: int, *mode: Any) -> int:
        if flags & os.O_CREAT and Path(path).parent == folder:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    assert remote.adopt_revocations((federation.folder / "revoked.pem").read_bytes())
    assert remote.refusal(bob) is Refusal.REVOKED
    assert "Read-only file system" in caplog.text
    shutil.copy(federation.authority.issue("alice") / "certificate.pem", folder)
    assert remote.refresh()
    assert remote.refusal(bob) is Refusal.REVOKED  # a renewal does not bring the old list back


def test_signatures_hold_for_one_key_one_purpose_one_message(federation: Any) -> None:
    alice, bob = federation.credentials("alice"), federation.credentials("bob")
    signature = alice.sign("manifest", b"shard 3")
    own = alice.identity.certificate
    assert verify_message(own, "manifest", b"shard 3", signature)
    assert not verify_message(own, "manifest", b"shard 4", signature)
    assert not verify_message(own, "receipt", b"shard 3", signature)
    assert not verify_message(bob.identity.certificate, "manifest", b"shard 3", signature)
    assert not verify_message(own, "manifest", b"shard 3", b"")
    assert sign_message(ec.generate_private_key(ec.SECP256R1()), "a", b"b") != signature


def test_a_certificate_with_two_peers_in_it_is_nobody(federation: Any) -> None:
    from eris.transport.certificates import identity_of

    root = x509.load_pem_x509_certificate((federation.folder / "ca.pem").read_bytes())
    key = new_key()
    builder = x509.CertificateBuilder().subject_name(root.subject).issuer_name(root.subject)
    builder = builder.public_key(key.public_key()).serial_number(7)
    builder = builder.not_valid_before(datetime.now(UTC)).not_valid_after(datetime.now(UTC) + timedelta(days=1))
    both = x509.SubjectAlternativeName([x509.DNSName("alice.cardio"), x509.DNSName("bob.cardio")])
    two = builder.add_extension(both, critical=False).sign(key, hashes.SHA256())
    assert identity_of(two, "cardio").name == ""
    assert identity_of(builder.sign(key, hashes.SHA256()), "cardio").name == ""


def test_a_summary_says_what_people_ask(federation: Any, tmp_path: Path) -> None:
    folder = federation.authority.issue("alice", hosts=["alice.example.org"], days=20)
    by_kind = {summary.kind: summary for summary in summaries(folder)}
    assert by_kind["CA"].names == ("cardio",)
    assert by_kind["peer"].names == ("alice.cardio", "alice.example.org")
    assert by_kind["peer"].fingerprint == Credentials(folder).identity.fingerprint
    assert by_kind["peer"].warning() == "expires in 20 days: renew it"
    assert "expires in 20 days" in (Credentials(folder).expiry_warning() or "")
    now = datetime.now(UTC)
    assert by_kind["peer"].warning(now + timedelta(days=21)) == "has expired: renew it"
    assert "check the clock" in (by_kind["peer"].warning(now - timedelta(days=1)) or "")
    assert by_kind["CA"].warning() is None
    (asked,) = summaries(request("bob", tmp_path / "bob"))
    assert (asked.kind, asked.names, asked.warning()) == ("request", ("bob",), None)
    federation.authority.revoke("alice")
    assert "revoked" in (summaries(folder / "certificate.pem")[0].warning() or "")
    assert summaries(tmp_path) == []


@pytest.mark.parametrize("name", ["", "Alice", "alice.cardio", "-a", "a-", "a" * 64, "../x", "a b", "ä", "a\n", "a\0"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(InputError, match="lower-case letters"):
        check_name(name)


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True))
def test_full_names_split_again(name: str) -> None:
    assert split_name(full_name(name, "cardio"), "cardio") == name
    assert split_name(full_name(name, "cardio"), "other") is None
    assert split_name(name, "cardio") is None


@pytest.mark.parametrize(
    "host", ["bob.cardio", "BOB.Cardio", "cardio", "x.bob.cardio", "a b", "-a.org", "", "bob.cardio."]
)
def test_a_host_is_never_a_second_identity(host: str) -> None:
    with pytest.raises(InputError, match="cannot be a host"):
        check_host(host, "cardio")


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
     ("10.0.0.1", False), ("0.0.0.0", False), ("::", False), ("", False), ("fe80::1%eth0", False), ("a.org", False)],
)  # fmt: skip
def test_loopback(host: str, here: bool) -> None:
    assert is_loopback(host) is here


def test_a_link_that_stands_is_judged_again() -> None:
    peer = PeerIdentity("alice", "cardio", "ab", serial=7, not_before=100.0, not_after=200.0)
    assert refusal_of(peer, now=150.0) is None
    assert refusal_of(peer, now=201.0) is Refusal.EXPIRED
    assert refusal_of(peer, now=99.0) is Refusal.NOT_YET_VALID
    assert refusal_of(peer, now=150.0, revoked={7}) is Refusal.REVOKED
    assert refusal_of(peer, now=150.0, expected="alice", roster={"alice": "ab"}) is None


def test_an_identity_names_itself_without_secrets() -> None:
    assert str(PeerIdentity("alice", "cardio", "ab" * 32)) == "alice.cardio (abababababab)"
    assert "certificate" not in repr(PeerIdentity("alice", certificate=b"\x30"))


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from eris.errors import MissingExtra\n"
        "import eris.transport.memory_link, eris.transport.tls_link, eris.transport.link_listener\n"
        "for module in ('credentials', 'authority', 'summary'):\n"
        "    try: __import__(f'eris.transport.{module}')\n"
        "    except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count("pip install 'eris-fl[network]'") == 3
