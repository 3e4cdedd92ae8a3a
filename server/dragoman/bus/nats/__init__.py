"""The bus between processes: NATS, without anything stored in it. What it loses, the store has."""

from dragoman.bus.nats.address import Address, BadAddress
from dragoman.bus.nats.bus import NatsBus, open_bus

__all__ = ["Address", "BadAddress", "NatsBus", "open_bus"]
