"""TLS of client connections: unusable files, addresses, and advice."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from tests.certificates import Authority, encrypted, write

from dragoman.calling import tls
from dragoman.calling.errors import ClientError, ServerUnavailable


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "--ca: .*: No such file"), (b"no certificate", "the file holds no certificates")]
)
def test_an_invalid_authority_file_is_reported(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ClientError, match=problem):
        tls.ssl_context(path)


def test_an_invalid_certificate_is_reported(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue()
    path = tmp_path / "client.pem"
    path.write_bytes(certificate)
    with pytest.raises(ClientError, match="the file must hold a certificate and its key"):
        tls.ssl_context(cert=path)
    path.write_bytes(certificate + encrypted(key))
    with pytest.raises(ClientError, match="use one without a passphrase"):
        tls.ssl_context(cert=path)
    path.write_bytes(certificate + key)
    tls.ssl_context(cert=path)


def opened(monkeypatch: pytest.MonkeyPatch, address: str, ca: Path | None = None) -> tuple[str, bool]:
    """The target of the channel to an address, and whether it is encrypted."""
    channels: list[tuple[str, bool]] = []
    monkeypatch.setattr(grpc, "insecure_channel", lambda target, **_: channels.append((target, False)))
    monkeypatch.setattr(grpc, "secure_channel", lambda target, *_, **__: channels.append((target, True)))
    tls.grpc_channel(grpc, address, ca=ca, cert=None)
    return channels[0]


@pytest.mark.parametrize(
    ("address", "target", "is_encrypted"),
    [
        ("host:1", "host:1", False),
        ("grpc://host:1/", "host:1", False),
        ("grpcs://host:1", "host:1", True),
    ],
)
def test_the_scheme_decides_on_encryption(
    monkeypatch: pytest.MonkeyPatch, address: str, target: str, is_encrypted: bool
) -> None:
    assert opened(monkeypatch, address) == (target, is_encrypted)


def test_an_authority_encrypts_an_address_without_a_scheme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, _ = write(tmp_path, Authority(tmp_path).issue())
    assert opened(monkeypatch, "host:1", certificate) == ("host:1", True)
    assert opened(monkeypatch, "grpc://host:1", certificate) == ("host:1", False)


def test_default_files_can_be_set_and_reset(tmp_path: Path) -> None:
    token = tls.default_ca.set(tmp_path / "missing.pem")
    try:
        with pytest.raises(ClientError, match=r"missing\.pem"):
            tls.ssl_context()
    finally:
        tls.default_ca.reset(token)
    tls.ssl_context()


@pytest.mark.parametrize(
    ("failure", "advice", "is_temporary"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] unable to get local issuer", "--ca", False),
        ("tlsv13 alert CERTIFICATE_REQUIRED", "--cert", False),
        ("[SSL: WRONG_VERSION_NUMBER]", "the port is not encrypted", False),
        ("Socket closed", "grpcs://", True),
        ("out of memory", "", True),
    ],
)
def test_tls_failures_get_advice_and_only_a_closed_connection_is_retried(
    failure: str, advice: str, is_temporary: bool
) -> None:
    assert advice in tls.tls_advice(failure)
    assert bool(tls.tls_advice(failure)) is bool(advice)
    for address in ("there", "http://there"):
        assert tls.with_advice(address, ServerUnavailable.for_reason(failure)).is_temporary is is_temporary


@pytest.mark.parametrize("failure", ["Socket closed", "[Errno 104] Connection reset by peer"])
def test_a_connection_closed_at_an_http_address_gets_no_advice_on_grpc(failure: str) -> None:
    closed = "the server closed the connection; it may have stopped"
    over_grpc = tls.with_advice("there:1", ServerUnavailable.for_reason(failure)).message
    assert "grpcs://" in over_grpc
    assert tls.with_advice("http://there", ServerUnavailable.for_reason(failure)).message.endswith(closed)
    # The card of an HTTP server may name the gRPC address of a call: the user has given the former.
    assert tls.tls_advice(over_grpc, "https://there") == tls.tls_advice(closed, "http://there") == closed
