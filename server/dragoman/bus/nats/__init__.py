"""The bus between processes: NATS, without anything stored in it. What it loses, the store has."""

from dragoman.bus.nats.bus import NatsBus, open_nats_bus
from dragoman.bus.nats.connection import InvalidNatsAddress, NatsAddress

__all__ = ["NatsAddress", "InvalidNatsAddress", "NatsBus", "open_nats_bus"]
