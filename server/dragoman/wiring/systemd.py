"""systemd's notification protocol (`sd_notify`): readiness, the stop, and a watchdog that the event loop serves."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Final, Self

log = logging.getLogger("dragoman.serve")

READY: Final = b"READY=1"
STOPPING: Final = b"STOPPING=1"
WATCHDOG: Final = b"WATCHDOG=1"


class ServiceNotifier:
    """Tells systemd about this process, if its environment asks for it; else nothing happens."""

    def __init__(self, address: str, watchdog_seconds: float = 0.0) -> None:
        """`address`: of a datagram socket, `@` begins an abstract one; empty: none. `watchdog_seconds`: of silence
        after which systemd kills this process; 0: never."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = watchdog_seconds if address else 0.0

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Self:
        """Takes the variables out of the environment, so that child processes do not notify for this one."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        # WATCHDOG_PID names the process that has to answer; the variables may be left from a parent that was watched.
        is_watched = pid in ("", str(os.getpid())) and microseconds.isascii() and microseconds.isdecimal()
        return cls(address, int(microseconds) / 1e6 if is_watched else 0.0)

    def notify(self, state: bytes) -> None:
        """Sends one notification. A failure is logged: systemd decides what follows from its absence."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.setblocking(False)
                sending.sendto(state, self._address)
        except OSError as error:
            log.warning("systemd could not be told %s: %s", state.decode(), error)

    async def keep_alive(self) -> None:
        """Sends WATCHDOG=1 at half of the watchdog's time, until canceled; returns at once without a watchdog."""
        while self._watchdog_seconds:
            self.notify(WATCHDOG)
            await asyncio.sleep(self._watchdog_seconds / 2)
