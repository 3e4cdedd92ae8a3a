"""Connects to the host of a URL that serves, when the URL has several.

The driver gives the whole time of an attempt to the first host. A host whose machine is gone neither accepts nor
refuses, so the second one would never be asked. Here each host has its share of the time, and the one that served last
is asked first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg import Connection

from dragoman.extensions.postgres.errors import DATABASE_ERRORS, is_disconnected


@dataclass(frozen=True, slots=True)
class DatabaseHost:
    """A host of a URL; None as port: the default, as the driver finds it."""

    name: str
    port: int | None = None


def hosts_of(url: str) -> Sequence[DatabaseHost]:
    """The hosts of a URL, empty if they come from elsewhere, such as PGHOST. Raises ValueError for an invalid one."""
    parts = urlsplit(url)
    texts = parts.netloc.rpartition("@")[2]
    if texts:
        return [_parse_host(text) for text in texts.split(",")]
    query = parse_qs(parts.query)
    names = query["host"][-1].split(",") if "host" in query else []
    ports = query["port"][-1].split(",") if "port" in query else [""]
    if len(ports) == 1:
        ports *= len(names)
    if len(names) != len(ports):
        raise ValueError(f"the URL of the database has {len(names)} hosts and {len(ports)} ports")
    return [DatabaseHost(name, int(port) if port else None) for name, port in zip(names, ports, strict=True)]


def _parse_host(text: str) -> DatabaseHost:
    """HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT."""
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, ""
    if not port and colon and not text.endswith("]"):
        raise ValueError(f'the URL of the database has the host "{text}" without the port after its colon')
    return DatabaseHost(name.removeprefix("[").removesuffix("]"), int(port) if port else None)


class HostConnector:
    """Connects to one of the hosts of a URL. Made for one event loop."""

    def __init__(self) -> None:
        self._last: DatabaseHost | None = None
        """The host that served last."""

    async def connect(self, url: str, *, timeout: float, **options: Any) -> Connection:  # noqa: ASYNC109  # asyncpg's name
        """Opens a connection within `timeout` seconds. `options`: those of `asyncpg.connect`.

        Raises the error of the last host that was asked.
        """
        hosts = hosts_of(url)
        if len(hosts) < 2:
            return await asyncpg.connect(url, timeout=timeout, **options)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        ordered = sorted(hosts, key=lambda host: host != self._last)
        for number, host in enumerate(ordered):
            share = (deadline - loop.time()) / (len(ordered) - number)
            try:
                connection = await asyncpg.connect(url, host=host.name, port=host.port, timeout=share, **options)
            except DATABASE_ERRORS as error:
                # Away, starting, stopping, or a standby.
                if number == len(ordered) - 1 or not is_disconnected(error):
                    raise
            else:
                self._last = host
                return connection
        raise AssertionError("the last attempt returns or raises")
