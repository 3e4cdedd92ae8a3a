"""What can go wrong with a call, in one exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

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


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:  # somebody on the way spoiled it; code and text are still there
                break
    return status_pb2.Status()
