"""grpc.health.v1: whether each service is served, asked once, watched, or listed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_health.v1.health import aio  # type: ignore[import-untyped]

NAME: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Health(aio.HealthServicer):  # type: ignore[misc]  # untyped
    """What grpcio-health-checking has, and `List`, which it leaves to fail: with a trace in the log, and no credentials
    asked for, so that strangers could fill it."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self._names = ("", *names)

    async def List(self, request: object, context: Any) -> Any:  # noqa: N802  # the RPC's name
        """Every service at once."""
        statuses = {
            name: await self.Check(health_pb2.HealthCheckRequest(service=name), context) for name in self._names
        }
        return health_pb2.HealthListResponse(statuses=statuses)
