from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

from fasta2a.event_bus import EventBus


@dataclass
class Broker(ABC):
    event_bus: EventBus
