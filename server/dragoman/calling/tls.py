"""Whether a server's address asks for encryption, and which authorities may have signed its certificate."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import grpc

from dragoman.calling.errors import ClientError

_ENCRYPTED_BY_SCHEME: Final = {"grpcs": True, "https": True, "grpc": False, "http": False}

_default_ca: Final[ContextVar[Path | None]] = ContextVar("authorities", default=None)
_default_cert: Final[ContextVar[Path | None]] = ContextVar("certificate", default=None)


def use_ca(ca: Path) -> Callable[[], None]:
    """Names the file of authorities (PEM) for connections that are not told another one, until what this gives is
    called."""
    token = _default_ca.set(ca)
    return lambda: _default_ca.reset(token)


def use_cert(cert: Path) -> Callable[[], None]:
    """Names the file of our own certificate and its key (PEM) for connections that are not told another one, until
    what this gives is called."""
    token = _default_cert.set(cert)
    return lambda: _default_cert.reset(token)


def ssl_context(ca: Path | None = None, cert: Path | None = None) -> ssl.SSLContext:
    """What HTTP checks certificates with, the authorities in `ca`, else those of the system; and what it shows: the
    certificate in `cert`, which also holds its key.

    Raises ClientError for a file that cannot be used.
    """
    file, own = ca or _default_ca.get(), cert or _default_cert.get()
    try:
        made = ssl.create_default_context(cafile=file)
    except OSError as error:
        why = error.strerror if not isinstance(error, ssl.SSLError) else "there are no certificates in PEM in it"
        raise ClientError("INVALID_ARGUMENT", f"--ca: {file}: {why}") from error
    if own is not None:
        try:
            made.load_cert_chain(own, password=_refuse_passphrase)
        except (OSError, ValueError) as error:
            why = str(error) if type(error) is ValueError else getattr(error, "strerror", "") or ""
            if isinstance(error, ssl.SSLError):
                why = "it must hold a certificate and its key, in PEM"
            raise ClientError("INVALID_ARGUMENT", f"--cert: {own}: {why}") from error
    return made


def _refuse_passphrase() -> str:
    """Instead of OpenSSL, which would ask on the terminal."""
    raise ValueError("its key is encrypted; use one without a passphrase")


def grpc_channel(
    address: str, options: Sequence[tuple[str, Any]] = (), *, ca: Path | None = None, cert: Path | None = None
) -> grpc.aio.Channel:
    """A gRPC channel to `HOST:PORT`, `grpc://HOST:PORT`, or `grpcs://HOST:PORT`, which is encrypted.

    An address without a scheme is encrypted when authorities, or a certificate of our own, are named. Raises
    ClientError for a file that cannot be used.
    """
    target, credentials = _resolve_target(address, ca, cert)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=options)


def blocking_grpc_channel(
    address: str, options: Sequence[tuple[str, Any]] = (), *, ca: Path | None = None, cert: Path | None = None
) -> grpc.Channel:
    """The same for threads, and not for an event loop."""
    target, credentials = _resolve_target(address, ca, cert)
    if credentials is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, credentials, options=options)


def _resolve_target(address: str, ca: Path | None, cert: Path | None) -> tuple[str, grpc.ChannelCredentials | None]:
    """The target of an address, and what to check it with, if it is encrypted."""
    scheme, divider, target = address.partition("://")
    target = target.rstrip("/") if divider else address
    file, own = ca or _default_ca.get(), cert or _default_cert.get()
    if not (_ENCRYPTED_BY_SCHEME.get(scheme, False) if divider else file is not None or own is not None):
        return target, None
    ssl_context(file, own)  # gRPC would tell only later, and less clearly, that a file is not good
    roots = file.read_bytes() if file is not None else None
    both = own.read_bytes() if own is not None else None
    return target, grpc.ssl_channel_credentials(roots, both, both)


_CONNECTION_CLOSED_ADVICE: Final = (
    "it hung up, as a port does that is encrypted; try grpcs://HOST:PORT; or as one that wants to see another "
    "certificate, or one at all; see --cert"
)

_ADVICE_BY_MESSAGE: Final = (
    ("mismatch", "its certificate is for another name"),
    ("not in peer certificate", "its certificate is for another name"),
    ("Hostname Verification", "its certificate is for another name"),
    ("certificate has expired", "its certificate has expired"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "nobody trusted here has signed its certificate; name who has with --ca (DRAGOMAN_CA)",
    ),
    ("CERTIFICATE_REQUIRED", "it wants to see a certificate; name yours with --cert (DRAGOMAN_CERT)"),
    ("CERTIFICATE_EXPIRED", "it was shown a certificate that has expired; see --cert (DRAGOMAN_CERT)"),
    ("UNKNOWN_CA", "it does not know who signed the certificate that it was shown; see --cert (DRAGOMAN_CERT)"),
    ("WRONG_VERSION_NUMBER", "it is not encrypted; use HOST:PORT or http://"),
    ("selected ALPN", "it speaks HTTP and not gRPC; name its gRPC port"),
    ("Socket closed", _CONNECTION_CLOSED_ADVICE),
    ("Connection reset", _CONNECTION_CLOSED_ADVICE),
)
"""What libraries say, and what it means here; the first that fits."""


def tls_advice(failure: str) -> str:
    """What to do about a connection that could not be made, if encryption is why; else empty."""
    return next((advice for sign, advice in _ADVICE_BY_MESSAGE if sign in failure), "")
