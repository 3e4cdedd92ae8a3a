"""TLS of client connections: addresses, trusted authorities, and advice on failures."""

from __future__ import annotations

import ssl
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from dragoman.calling.errors import ClientError, ServerUnavailable

_ENCRYPTED_BY_SCHEME: Final = {"grpcs": True, "https": True, "grpc": False, "http": False}

default_ca: Final[ContextVar[Path | None]] = ContextVar("trusted authorities, in PEM", default=None)
default_cert: Final[ContextVar[Path | None]] = ContextVar("client certificate and its key, in PEM", default=None)


def ssl_context(ca: Path | None = None, cert: Path | None = None) -> ssl.SSLContext:
    """Creates the TLS context of HTTP connections. ca: the authorities to trust, by default the system's. cert: the
    client certificate with its key. Raises ClientError for an unusable file."""
    ca_file, cert_file = ca or default_ca.get(), cert or default_cert.get()
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        problem = error.strerror if not isinstance(error, ssl.SSLError) else "the file holds no certificates in PEM"
        raise ClientError("INVALID_ARGUMENT", f"--ca: {ca_file}: {problem}") from error
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, password=_refuse_passphrase)
        except (OSError, ValueError) as error:
            problem = str(error) if type(error) is ValueError else getattr(error, "strerror", "") or ""
            if isinstance(error, ssl.SSLError):
                problem = "the file must hold a certificate and its key, in PEM"
            raise ClientError("INVALID_ARGUMENT", f"--cert: {cert_file}: {problem}") from error
    return context


def _refuse_passphrase() -> str:
    """Keeps OpenSSL from asking for a passphrase on the terminal."""
    raise ValueError("the key is encrypted; use one without a passphrase")


def grpc_channel(channels: Any, address: str, options: Any = (), *, ca: Path | None, cert: Path | None) -> Any:
    """Opens a channel of the module `grpc` or `grpc.aio` to `HOST:PORT`, `grpc://HOST:PORT`, or `grpcs://HOST:PORT`
    (encrypted). An address without a scheme is encrypted if authorities or a certificate are given. Raises ClientError
    for an unusable file."""
    import grpc  # callers of HTTP addresses need the rest of this module only

    scheme, divider, target = address.partition("://")
    target = target.rstrip("/") if divider else address
    ca_file, cert_file = ca or default_ca.get(), cert or default_cert.get()
    has_files = ca_file is not None or cert_file is not None
    if not (_ENCRYPTED_BY_SCHEME.get(scheme, False) if divider else has_files):
        return channels.insecure_channel(target, options=options)
    ssl_context(ca_file, cert_file)  # reports unusable files now; gRPC would report them later and less clearly
    roots = ca_file.read_bytes() if ca_file is not None else None
    key_and_chain = cert_file.read_bytes() if cert_file is not None else None
    credentials = grpc.ssl_channel_credentials(roots, key_and_chain, key_and_chain)
    return channels.secure_channel(target, credentials, options=options)


_CONNECTION_CLOSED: Final = "the server closed the connection"
_CONNECTION_CLOSED_ADVICE: Final = (
    f"{_CONNECTION_CLOSED}. If its port is encrypted, try grpcs://HOST:PORT; if it requires a client "
    "certificate, pass --cert"
)

_ADVICE_BY_MESSAGE: Final = (
    ("mismatch", "the server's certificate is for another name"),
    ("not in peer certificate", "the server's certificate is for another name"),
    ("Hostname Verification", "the server's certificate is for another name"),
    ("certificate has expired", "the server's certificate has expired"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the server's certificate is not signed by a trusted authority; pass the authority with --ca (DRAGOMAN_CA)",
    ),
    ("CERTIFICATE_REQUIRED", "the server requires a client certificate; pass one with --cert (DRAGOMAN_CERT)"),
    ("CERTIFICATE_EXPIRED", "the client certificate has expired; see --cert (DRAGOMAN_CERT)"),
    ("UNKNOWN_CA", "the server does not trust the authority of the client certificate; see --cert (DRAGOMAN_CERT)"),
    ("WRONG_VERSION_NUMBER", "the port is not encrypted; use HOST:PORT or http://"),
    ("got frame type 80", "that is the HTTP port; pass http://HOST:PORT, or the gRPC port"),
    ("Trying to connect an http1.x server", "that is the HTTP port; pass http://HOST:PORT, or the gRPC port"),
    ("Bad status line", "that port does not speak HTTP; if it is the gRPC port, pass grpc://HOST:PORT"),
    ("selected ALPN", "the port serves HTTP, not gRPC; use the gRPC port"),
    ("Socket closed", _CONNECTION_CLOSED_ADVICE),
    ("Connection reset", _CONNECTION_CLOSED_ADVICE),
    (_CONNECTION_CLOSED, _CONNECTION_CLOSED_ADVICE),
)
"""Advice by a fragment of the library's message; the first match counts."""


def tls_advice(failure: str, address: str = "") -> str:
    """Advice on a failure of TLS; empty for others. An HTTP `address` says itself whether its port is encrypted."""
    advice = next((advice for text, advice in _ADVICE_BY_MESSAGE if text in failure or advice in failure), "")
    is_http = address.startswith(("http://", "https://"))
    return f"{_CONNECTION_CLOSED}; it may have stopped" if is_http and advice == _CONNECTION_CLOSED_ADVICE else advice


def with_advice(address: str, failure: ClientError) -> ClientError:
    """Returns the failure of a call to an address, with advice in place of the library's text if there is some."""
    advice = tls_advice(failure.message, address)
    if not advice or not isinstance(failure, ServerUnavailable):
        return failure
    advised = ServerUnavailable.for_address(address, advice, may_have_arrived=failure.may_have_arrived)
    advised.is_temporary = advice.startswith(_CONNECTION_CLOSED)  # a server that stops closes connections too
    return advised
