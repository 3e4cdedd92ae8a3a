"""The host of a source of agents, for tests without a server or worker."""

from __future__ import annotations

from typing import Any

from dragoman.ports import OutboundStreams
from dragoman.ports.extension import AgentHost


def agent_host(**fields: Any) -> AgentHost:
    """A host without agents of its own and without clients for other servers. fields: those that differ."""

    def no_client() -> OutboundStreams:
        raise AssertionError("not needed")

    usual: dict[str, Any] = {
        "app": "",
        "turns": None,
        "registry": None,
        "key_values": None,
        "reserved_ids": [],
        "message_bytes": 100_000,
        "response_bytes": 100_000,
        "open_outbound": no_client,
        "clock": lambda: 1_000_000,
    }
    return AgentHost(**{**usual, **fields})
