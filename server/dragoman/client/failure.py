"""What can go wrong with a call, in one exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import grpc

from dragoman.core.errors import Violation
from dragoman.wire import complaints
from dragoman.wire.complaints import Complaint


class ClientError(Exception):
    """A call that failed.

    code: the name of the gRPC status (`NOT_FOUND`, `UNAVAILABLE`). reason: A2A's word for it
    (`TASK_NOT_FOUND`), empty when the failure is not the server's answer. violations: the fields that broke a
    rule. metadata: what else the server said about it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        violations: tuple[Violation, ...] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{reason or code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.violations = violations
        self.metadata = dict(metadata or {})

    @property
    def unreachable(self) -> bool:
        """Whether no A2A server answered at all."""
        return self.code == "UNAVAILABLE" and not self.reason

    @classmethod
    def of(cls, error: grpc.aio.AioRpcError) -> Self:
        """The failure behind an RPC's status, with the `google.rpc` details that came with it."""
        details = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS), b"")
        said = details if isinstance(details, bytes) else b""
        return cls._of(complaints.of_status(error.code().name, error.details() or "", said))

    @classmethod
    def of_json(cls, error: Any) -> Self:
        """The failure in an `error` object of JSON-RPC or AIP-193."""
        return cls._of(complaints.of_json(error))

    @classmethod
    def _of(cls, told: Complaint) -> Self:
        return cls(told.code, told.message, reason=told.reason, violations=told.violations, metadata=told.metadata)


_DETAILS: Final = "grpc-status-details-bin"
