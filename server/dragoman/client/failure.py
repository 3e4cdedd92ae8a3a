"""What can go wrong with a call, in one exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dragoman.core.errors import Violation


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
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        for detail in _status(error).details:
            for known in (info, bad):
                if detail.Is(known.DESCRIPTOR):
                    detail.Unpack(known)
        return cls(
            error.code().name,
            error.details() or "no reason given",
            reason=info.reason,
            violations=tuple(Violation(v.field, v.description) for v in bad.field_violations),
            metadata=info.metadata,
        )

    @classmethod
    def of_json(cls, error: Any) -> Self:
        """The failure in an `error` object of JSON-RPC or AIP-193."""
        error = error if isinstance(error, dict) else {}
        given = error.get("details", error.get("data"))
        details = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        info: dict[str, Any] = next((one for one in details if "reason" in one), {})
        number = error.get("code")
        return cls(
            str(error.get("status", number)),
            str(error.get("message", "no reason given")),
            reason=str(info.get("reason") or _REASONS.get(number, "")),
            violations=tuple(
                Violation(str(v.get("field", "")), str(v.get("description", "")))
                for one in details
                for v in one.get("fieldViolations", ())
            ),
            metadata=info.get("metadata"),
        )


_REASONS: Final[Mapping[Any, str]] = {
    -32700: "INVALID_REQUEST",
    -32600: "INVALID_REQUEST",
    -32601: "METHOD_NOT_FOUND",
    -32602: "INVALID_PARAMS",
    -32603: "INTERNAL_ERROR",
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
}
"""What 0.x means by a number; 1.0 says it itself."""


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:  # somebody on the way spoiled it; code and text are still there
                break
    return status_pb2.Status()
