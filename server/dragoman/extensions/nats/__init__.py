"""Bus between processes over core NATS (no JetStream). Lost messages are recovered from the store."""

from dragoman.extensions.nats.address import InvalidNatsAddress, NatsAddress
from dragoman.extensions.nats.bus import NatsBus, open_nats_bus

__all__ = ["NatsAddress", "InvalidNatsAddress", "NatsBus", "open_nats_bus"]
