"""The port of gRPC: encrypted or not, and what a connection to it may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import grpc

from dragoman.bindings.serving import Options
from dragoman.ports.security import CertificatePair, ServerCertificates

STREAMS: Final = 1024
"""Calls at the same time on one connection; further ones wait at the client (RFC 9113 §5.1.2)."""

PENDING: Final = 10_000
"""Calls that have come and nobody has looked at yet: as many as come back at once when another server has stopped.
gRPC refuses those beyond a thousand with a growing chance, unless it is told."""

METADATA: Final = 32 * 1024
"""Bytes of a call's metadata: the largest credentials that are looked at get here, to be refused in our own words."""

HANDSHAKE: Final = 10
"""Seconds until a connection has to be ready: TLS, and HTTP/2's first frames."""

IDLE: Final = 3600
"""Seconds after which a connection without calls is closed."""


def limits(options: Options) -> tuple[tuple[str, Any], ...]:
    """What gRPC is told of them."""
    return (
        ("grpc.max_allowed_incoming_connections", options.connections),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.max_metadata_size", METADATA),
        ("grpc.absolute_max_metadata_size", METADATA),  # else calls are refused at random between the two
        ("grpc.server_handshake_timeout_ms", HANDSHAKE * 1000),
        ("grpc.max_connection_idle_ms", IDLE * 1000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.server.max_pending_requests", PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING),
    )


def add(server: grpc.aio.Server, address: str, certificates: ServerCertificates | None) -> int:
    """Adds the port, and gives its number. Raises RuntimeError when it cannot be had."""
    if certificates is None:
        return server.add_insecure_port(address)
    known = certificates.pair
    newer = _newer(certificates, known)
    credentials = grpc.dynamic_ssl_server_credentials(
        _configuration(known, certificates.client_authorities),
        newer,  # type: ignore[arg-type]  # None is allowed, and means: as before
        # gRPC knows no third way: who shows none is either never asked, or not let in.
        require_client_authentication=bool(certificates.client_authorities),
    )
    return server.add_secure_port(address, credentials)


def _newer(
    certificates: ServerCertificates, known: CertificatePair
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """What gRPC asks, from a thread of its own, before each handshake: the pair if it is another one."""

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal known
        if certificates.pair is known:
            return None
        known = certificates.pair
        return _configuration(known, certificates.client_authorities)

    return newer


def _configuration(pair: CertificatePair, clients: bytes) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.chain)], clients or None)
