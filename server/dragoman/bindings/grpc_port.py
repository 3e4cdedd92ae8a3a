"""The port of gRPC: encrypted or not."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from dragoman.ports.tls import Certificates, Pair


def add(server: grpc.aio.Server, address: str, certificates: Certificates | None) -> int:
    """Adds the port, and gives its number. Raises RuntimeError when it cannot be had."""
    if certificates is None:
        return server.add_insecure_port(address)
    known = certificates.pair
    newer = _newer(certificates, known)
    credentials = grpc.dynamic_ssl_server_credentials(
        _configuration(known),
        newer,  # type: ignore[arg-type]  # None is allowed, and means: as before
    )
    return server.add_secure_port(address, credentials)


def _newer(certificates: Certificates, known: Pair) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """What gRPC asks, from a thread of its own, before each handshake: the pair if it is another one."""

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal known
        if certificates.pair is known:
            return None
        known = certificates.pair
        return _configuration(known)

    return newer


def _configuration(pair: Pair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.chain)])
