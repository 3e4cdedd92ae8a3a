"""Client side of A2A 0.3 (`a2a.v1`): encodes requests, decodes responses.

The inverse of `wire/dialects/v03.py`, which is the server side; tests convert in both directions.
"""

from __future__ import annotations

from typing import cast

from dragoman.wire.dialects import v03 as codec
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

# Requests --------------------------------------------------------------------------------------------------


def write_send_message(request: pb.SendMessageRequest) -> v03.SendMessageRequest:
    """SendMessage and SendStreamingMessage. `blocking` is always set, because servers differ if it is absent."""
    out = v03.SendMessageRequest(tenant=request.tenant, request=codec.write_message(request.message))
    configuration = request.configuration
    out.configuration.accepted_output_modes.extend(configuration.accepted_output_modes)
    out.configuration.blocking = not configuration.return_immediately
    out.configuration.history_length = configuration.history_length
    if request.HasField("metadata"):
        out.metadata.CopyFrom(request.metadata)
    return out


def write_get_task(request: pb.GetTaskRequest) -> v03.GetTaskRequest:
    """GetTask. A history of zero messages cannot be requested: in 0.3 zero means all."""
    return v03.GetTaskRequest(tenant=request.tenant, name=f"tasks/{request.id}", history_length=request.history_length)


def write_list_tasks(request: pb.ListTasksRequest) -> v03.ListTasksRequest:
    """ListTasks."""
    out = v03.ListTasksRequest(
        tenant=request.tenant,
        context_id=request.context_id,
        status=cast(v03.TaskState, request.status),
        page_size=request.page_size,
        page_token=request.page_token,
        history_length=request.history_length,
        include_artifacts=request.include_artifacts,
    )
    if request.HasField("status_timestamp_after"):
        out.last_updated_time.CopyFrom(request.status_timestamp_after)
    return out


def write_cancel_task(request: pb.CancelTaskRequest) -> v03.CancelTaskRequest:
    """CancelTask."""
    return v03.CancelTaskRequest(tenant=request.tenant, name=f"tasks/{request.id}")


def write_subscription(request: pb.SubscribeToTaskRequest) -> v03.TaskSubscriptionRequest:
    """TaskSubscription."""
    return v03.TaskSubscriptionRequest(tenant=request.tenant, name=f"tasks/{request.id}")


# Responses -------------------------------------------------------------------------------------------------


def read_send_message(response: v03.SendMessageResponse) -> pb.SendMessageResponse:
    """A task or a message."""
    if response.WhichOneof("payload") == "msg":
        return pb.SendMessageResponse(message=codec.read_message(response.msg))
    return pb.SendMessageResponse(task=read_task(response.task))


def read_list_tasks(response: v03.ListTasksResponse) -> pb.ListTasksResponse:
    """One page of tasks."""
    return pb.ListTasksResponse(
        tasks=[read_task(task) for task in response.tasks],
        next_page_token=response.next_page_token,
        total_size=response.total_size,
    )


def read_stream(response: v03.StreamResponse) -> pb.StreamResponse:
    """One event of a stream. `final` is ignored, because the end of the stream has the same meaning."""
    match response.WhichOneof("payload"):
        case "task":
            return pb.StreamResponse(task=read_task(response.task))
        case "msg":
            return pb.StreamResponse(message=codec.read_message(response.msg))
        case "status_update":
            update = response.status_update
            out = pb.TaskStatusUpdateEvent(
                task_id=update.task_id, context_id=update.context_id, status=_read_status(update.status)
            )
            if update.HasField("metadata"):
                out.metadata.CopyFrom(update.metadata)
            return pb.StreamResponse(status_update=out)
        case _:
            change = response.artifact_update
            artifact_update = pb.TaskArtifactUpdateEvent(
                task_id=change.task_id,
                context_id=change.context_id,
                artifact=_read_artifact(change.artifact),
                append=change.append,
                last_chunk=change.last_chunk,
            )
            if change.HasField("metadata"):
                artifact_update.metadata.CopyFrom(change.metadata)
            return pb.StreamResponse(artifact_update=artifact_update)


def read_task(task: v03.Task) -> pb.Task:
    """A task as 1.0 message."""
    out = pb.Task(
        id=task.id,
        context_id=task.context_id,
        artifacts=[_read_artifact(artifact) for artifact in task.artifacts],
        history=[codec.read_message(message) for message in task.history],
    )
    if task.HasField("status"):
        out.status.CopyFrom(_read_status(task.status))
    if task.HasField("metadata"):
        out.metadata.CopyFrom(task.metadata)
    return out


def _read_status(status: v03.TaskStatus) -> pb.TaskStatus:
    out = pb.TaskStatus(state=cast(pb.TaskState, status.state))
    if status.HasField("update"):
        out.message.CopyFrom(codec.read_message(status.update))
    if status.HasField("timestamp"):
        out.timestamp.CopyFrom(status.timestamp)
    return out


def _read_artifact(artifact: v03.Artifact) -> pb.Artifact:
    # read_message converts parts, the only thing to convert in an artifact.
    parts = codec.read_message(v03.Message(content=artifact.parts)).parts
    out = pb.Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=parts,
        extensions=artifact.extensions,
    )
    if artifact.HasField("metadata"):
        out.metadata.CopyFrom(artifact.metadata)
    return out
