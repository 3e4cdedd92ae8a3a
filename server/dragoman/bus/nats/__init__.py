"""Bus between processes over core NATS (no JetStream). Lost messages are recovered from the store."""

from dragoman.bus.nats.bus import NatsBus, open_nats_bus
from dragoman.bus.nats.connection import InvalidNatsAddress, NatsAddress

__all__ = ["NatsAddress", "InvalidNatsAddress", "NatsBus", "open_nats_bus"]
