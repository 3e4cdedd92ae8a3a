"""`dragoman.ops.v1`: events of a task as each generation of clients is told of them, to see who misunderstands whom."""

from __future__ import annotations

from typing import Final

import grpc
import orjson
from google.protobuf import text_format

from dragoman.bindings import forms, ops_calls
from dragoman.bindings.ops_calls import Check, Refuse
from dragoman.core.errors import InvalidParams
from dragoman.core.task.log import Event
from dragoman.core.task.maintenance import TaskSelection
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.wire.dialects import json_v01
from dragoman_pb.dragoman.ops.v1 import events_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

LISTED: Final = 20
MOST_LISTED: Final = 100


class EventOperations:
    """The operations, as messages in and messages out. All raise children of core.errors.A2AError."""

    def __init__(self, upkeep: Maintenance) -> None:
        self._upkeep = upkeep

    async def list_events(self, request: ops.ListEventsRequest) -> ops.ListEventsResponse:
        """Some events of a task, by sequence."""
        if not request.task_id:
            raise InvalidParams.field("taskId", "is required")
        if not 0 <= request.limit <= MOST_LISTED:
            raise InvalidParams.field("limit", f"must be 1 to {MOST_LISTED}, or 0 for {LISTED}")
        selection = TaskSelection(
            task=request.task_id, agent=request.agent, principal=request.principal, scope=request.scope
        )
        found = await self._upkeep.log(selection, request.after, request.limit or LISTED)
        artifacts = [artifact.artifact_id for artifact in pb.Task.FromString(found.task).artifacts]
        stream = json_v01.V01StreamWriter(artifacts)
        return ops.ListEventsResponse(
            events=[_shown(event, stream) for event in found.events],
            oldest=found.oldest,
            last=found.record.last_sequence,
        )


def unary(upkeep: Maintenance) -> ops_calls.Unary:
    """These operations, by the names of their methods."""
    return {"ListEvents": (ops.ListEventsRequest, EventOperations(upkeep).list_events)}


def handler(upkeep: Maintenance, check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations."""
    return ops_calls.handler(unary(upkeep), check, refuse)


def _shown(event: Event, stream: json_v01.V01StreamWriter) -> ops.EventOnTheWire:
    said = pb.StreamResponse.FromString(event.data)
    every = json_v01.to_updates(said)
    shown = ops.EventOnTheWire(
        sequence=event.sequence,
        v1_json=forms.V1.json(event, False).decode(),
        v03_json=b"".join(forms.v03_results()(event, event.ends)).decode(),
        v01_json=[orjson.dumps(stream.write(update, event.ends and update is every[-1])).decode() for update in every],
        text=text_format.MessageToString(said, as_utf8=True),
    )
    for status in (said.task.status, said.status_update.status):
        if status.HasField("timestamp"):
            shown.time.MergeFrom(status.timestamp)
    return shown
