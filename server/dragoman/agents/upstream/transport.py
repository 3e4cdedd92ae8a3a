"""Transports to upstream agents: their limits, and the factory that opens them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dragoman.calling.errors import CallForbidden, ServerUnavailable
from dragoman.calling.transport import Transport, TransportLimits
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundForbidden, OutboundStreams
from dragoman.wire.cards.remote_card import Interface

DEFAULT_IDLE_TIMEOUT: Final = 120.0

DEFAULT_TRANSPORT_LIMITS: Final = TransportLimits(
    max_response_bytes=16 * 1024 * 1024,
    max_stream_bytes=1024 * 1024 * 1024,
    response_timeout=30.0,
    blocking_timeout=DEFAULT_IDLE_TIMEOUT,
    idle_timeout=DEFAULT_IDLE_TIMEOUT,
)


class UpstreamTransport(Transport, Protocol):
    """A transport that knows its interface."""

    @property
    def interface(self) -> Interface: ...


@dataclass(frozen=True, slots=True)
class TransportFactory:
    """Opens transports to upstream agents through the outbound client, which checks every address."""

    outbound: OutboundStreams
    ca: Path | None = None
    """Certificates (PEM) to trust beside the system's."""
    limits: TransportLimits = DEFAULT_TRANSPORT_LIMITS

    def create(self, upstream: UpstreamSpec, interface: Interface) -> UpstreamTransport:
        """A transport to one interface of an agent. Connects at the first call."""
        # Loaded on demand: few servers have upstream agents.
        from dragoman.agents.upstream import guarded_transport

        # An address without a scheme is encrypted if its card was.
        is_encrypted = upstream.url.startswith("https:")
        return guarded_transport.open_transport(
            interface, self.outbound, upstream.headers, self.limits, is_encrypted=is_encrypted, ca=self.ca
        )


@contextmanager
def outbound_errors() -> Iterator[None]:
    """Turns errors of the outbound client into ClientErrors."""
    try:
        yield
    except OutboundForbidden as error:
        raise CallForbidden(str(error)) from None
    except OutboundFailed as error:
        arrived = not isinstance(error, ConnectFailed)
        raise ServerUnavailable.for_reason(str(error), may_have_arrived=arrived) from None
