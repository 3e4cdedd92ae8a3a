"""Links of a chain run: the connections from one server to the next, through proxies that cut them."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from typing import Final, Literal

from tests.postgres import free_port

from dragoman.fault_proxy import FaultProxy

Cut = Literal["refuse", "close", "reset", "hang"]
"""How a link is cut. `refuse`: its port is closed. Others: each connection is closed, reset or left without a response
at its first request, before the response or in the middle of it."""

CUTS: Final[tuple[Cut, ...]] = ("refuse", "close", "reset", "hang")


class Link:
    """The link to one server: an address for each of its ports."""

    def __init__(self, name: str, *targets: str) -> None:
        """targets: HOST:PORT of each port."""
        self.name = name
        self._reservations = [_reserve(free_port()) for _ in targets]
        self.addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in self._reservations]
        self._targets = targets
        self._proxies = AsyncExitStack()

    async def open(self) -> None:
        """Lets all connections pass."""
        await self._open(every=0)

    async def cut(self, how: Cut, seed: int) -> None:
        """Ends all connections, and lets none pass until `open`."""
        if how == "refuse":
            await self.close()
        else:
            await self._open(every=1, how=how, seed=seed)

    async def close(self) -> None:
        """Ends all connections, and keeps the addresses."""
        await self._proxies.aclose()
        self._proxies = AsyncExitStack()

    async def release(self) -> None:
        """Ends all connections, and releases the addresses."""
        await self.close()
        for reservation in self._reservations:
            reservation.close()

    async def _open(self, *, every: int, how: Literal["close", "reset", "hang"] = "close", seed: int = 0) -> None:
        await self.close()
        for address, target in zip(self.addresses, self._targets, strict=True):
            await self._proxies.enter_async_context(FaultProxy(target, listen=address, every=every, how=how, seed=seed))


def _reserve(port: int) -> socket.socket:
    """Keeps a port from other processes while it is closed; our proxies may listen on it."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", port))
    return reservation
