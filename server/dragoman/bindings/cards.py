"""Which address a card shows, and the cards made for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network

from dragoman.core.card import AgentSpec


class Cards:
    """The cards of every agent, for the address each caller sees."""

    def __init__(
        self,
        agents: Mapping[str, AgentSpec],
        root: str,
        *,
        public_url: str = "",
        public_grpc: str = "",
        trusted_proxies: Sequence[IPv4Network | IPv6Network] = (),
    ) -> None:
        self.agents = agents
        self.root = root
