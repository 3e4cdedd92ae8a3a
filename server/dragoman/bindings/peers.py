"""What a connection proved of who is at its other end: the certificate that it was opened with."""

from __future__ import annotations

import grpc
from aiohttp import web

Peer = web.BaseRequest | grpc.aio.ServicerContext[bytes, bytes]
"""A request of HTTP, or the context of a call over gRPC."""


def certificate(peer: Peer) -> bytes:
    """The client's certificate (DER or PEM), whose authority the handshake has checked; empty when there was none."""
    if isinstance(peer, web.BaseRequest):
        encrypted = peer.transport.get_extra_info("ssl_object") if peer.transport else None
        return (encrypted.getpeercert(binary_form=True) or b"") if encrypted is not None else b""
    shown = peer.auth_context().get("x509_pem_cert") or ()
    return next(iter(shown), b"")
