"""NATS: a bus between the servers of a store. This module imports no client of NATS; opening a bus does."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from dragoman.ports import Bus
from dragoman.ports.extension import BusRequest, Option, ServerExtension


class NatsSettings(BaseModel):
    """The settings of a bus over NATS."""

    model_config = ConfigDict(frozen=True)

    prefix: Annotated[
        str, Option("bus_prefix", "NAME", "Prefix of NATS subjects; a different one for each store. [dragoman]")
    ] = Field(default="dragoman", max_length=100, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")
    credentials: Annotated[Path | None, Option("bus_credentials", "PATH", "NATS .creds file. [none]", Path)] = None
    """A user's JWT and seed, as created by `nsc`."""
    ca: Annotated[
        Path | None, Option("bus_ca", "PATH", "CA certificates for the bus besides the system's, in PEM.", Path)
    ] = None


@asynccontextmanager
async def open_from_settings(settings: NatsSettings, request: BusRequest) -> AsyncIterator[Bus]:
    """Opens a bus for the duration of the block. Raises ImportError without the client, ValueError."""
    from dragoman.extensions.nats.address import InvalidNatsAddress, NatsAddress
    from dragoman.extensions.nats.bus import open_nats_bus

    logger = logging.getLogger("nats")
    logger.setLevel(max(logger.getEffectiveLevel(), logging.INFO))  # its DEBUG lines are about its insides
    try:
        address = NatsAddress.parse(request.url, settings.credentials, settings.ca)
    except InvalidNatsAddress as error:
        raise ValueError(f"--bus: {error}") from None
    async with open_nats_bus(request.local, address, prefix=settings.prefix, epoch=request.epoch) as bus:
        yield bus


EXTENSION: Final = ServerExtension(
    name="nats",
    title="NATS",
    requirement="dragoman[nats]",
    libraries=("nats",),
    settings=NatsSettings,
    buses={"nats": open_from_settings, "tls": open_from_settings},
)
