"""Tasks as results of tools, as task handles, and as notifications (2026-07-28 server/tools; SEP-2663)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from dragoman.core.names import created_of, task_key_of
from dragoman.core.task import states
from dragoman.extensions.mcp.wire import questions
from dragoman.extensions.mcp.wire.envelope import CONTEXT_META, TASK_META, ClientFeatures
from dragoman.extensions.mcp.wire.tools import ANSWER_TASK_TOOL, GET_TASK_TOOL, handle_of
from dragoman.wire import question_forms
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MIN_POLL_INTERVAL: Final = 500
MAX_POLL_INTERVAL: Final = 5000
"""Milliseconds between two polls of a task: a tenth of its age, within these limits."""

MAX_PROGRESS_TEXT: Final = 500
"""Characters of the text in a progress notification."""

_TASKS: Final = protojson.compile(pb.Task, json_proto.PROTOJSON_V1)
_MESSAGES: Final = protojson.compile(pb.Message, json_proto.PROTOJSON_V1)

_SERVER_REASONS: Final = frozenset(
    ("INTERRUPTED", "DRAINED", "NOT_WRITTEN", "NO_WORKER", "UPSTREAM_AWAY", "EXPIRED", "CONTEXT_CHANGED")
)
"""Reasons for which the server, not the agent, ended a task as FAILED."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as MCP needs it."""

    handle: str
    task: pb.Task

    @property
    def state(self) -> int:
        """Its state, a value of `TaskState`."""
        return self.task.status.state

    @property
    def ended(self) -> bool:
        """Whether it is in a terminal state."""
        return states.is_terminal(self.state)

    @property
    def asks(self) -> bool:
        """Whether it waits for its caller."""
        return self.state in states.INTERRUPTED

    @property
    def needs_auth(self) -> bool:
        """Whether it waits for its caller to sign in somewhere."""
        return self.state == states.AUTH_REQUIRED

    @property
    def status_parts(self) -> list[dict[str, Any]]:
        """The parts of its status message, as JSON."""
        return _parts_of(self.task.status.message)

    @property
    def question_key(self) -> str:
        """The key of its question, which no other question of the task has; empty if it asks nothing."""
        if not self.asks:
            return ""
        status = self.task.status
        return status.message.message_id or f"at-{status.timestamp.ToMilliseconds()}"

    @property
    def meta(self) -> dict[str, str]:
        """`_meta` of its results."""
        return {TASK_META: self.handle, CONTEXT_META: self.task.context_id}


def view_of(tenant: str, task: pb.Task) -> TaskView:
    """The view of a task of this agent."""
    return TaskView(handle_of(tenant, task.id), task)


# Results of tools ---------------------------------------------------------------------------------------------


def message_result(message: pb.Message) -> dict[str, Any]:
    """The result of a call that was answered with a Message and no task."""
    return _result(_parts_of(message))


def text_result(text: str, *, is_error: bool = False, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A result of one text."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return {**result, "_meta": dict(meta)} if meta else result


def task_result(view: TaskView, *, has_output_schema: bool = False) -> dict[str, Any]:
    """The result of a call: of a task that has ended, or of one that has not, with what to do then.

    `has_output_schema`: clients expect structured content from such a tool unless the result is an error, so a result
    without it is marked as one.
    """
    match view.state:
        case states.COMPLETED:
            parts = [part for artifact in view.task.artifacts for part in _parts_of(artifact)]
            return {**_result(parts or view.status_parts), "_meta": view.meta}
        case states.FAILED | states.REJECTED | states.CANCELED:
            text = question_forms.question_text(view.status_parts) or f"The task ended as {states.name(view.state)}."
            parts = [part for artifact in view.task.artifacts for part in _parts_of(artifact)]
            content = [{"type": "text", "text": text}, *_content(parts)]
            return {"content": content, "isError": True, "_meta": view.meta}
        case states.INPUT_REQUIRED | states.AUTH_REQUIRED:
            text = question_forms.question_text(view.status_parts)
            next_step = f'Answer with {ANSWER_TASK_TOOL} {{"task": "{view.handle}", "answer": ...}}'
            form = question_forms.form_of(view.status_parts)
            if form.kind != "text" or form.schema["properties"].get(question_forms.ANSWER, {}).get("enum"):
                next_step += f"; the answer has to match {orjson.dumps(form.schema).decode()}"
            text = f"The task waits for an answer: {text}\n{next_step}."
        case _:
            result = unfinished_result(view.handle, has_output_schema=has_output_schema)
            return {**result, "_meta": view.meta}
    return text_result(text, is_error=has_output_schema, meta=view.meta)


def unfinished_result(handle: str, *, has_output_schema: bool = False) -> dict[str, Any]:
    """The result of a call whose task goes on."""
    text = f'The task {handle} is not finished yet. Call {GET_TASK_TOOL} {{"task": "{handle}"}} later for its result.'
    return text_result(text, is_error=has_output_schema, meta={TASK_META: handle})


def large_result(handle: str, *, has_output_schema: bool = False) -> dict[str, Any]:
    """The result in place of one that is too large for an event of a stream."""
    text = f'The result is too large for a stream. Call {GET_TASK_TOOL} {{"task": "{handle}"}} for it.'
    return text_result(text, is_error=has_output_schema, meta={TASK_META: handle})


def _result(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {"content": _content(parts), "isError": False}
    data = [part["data"] for part in parts if "data" in part]
    if len(data) == 1:
        result["structuredContent"] = data[0]
    return result


def _content(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return list(_content_blocks(parts))


def _content_blocks(parts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(parts):
        media_type, name = part.get("mediaType", ""), part.get("filename", "")
        if "text" in part:
            yield {"type": "text", "text": part["text"]}
        elif "data" in part:
            yield {"type": "text", "text": orjson.dumps(part["data"]).decode()}
        elif "raw" in part:
            kind = media_type.partition("/")[0]
            if kind in ("image", "audio"):
                yield {"type": kind, "data": part["raw"], "mimeType": media_type}
            else:
                uri = f"attachment:///{name or f'file-{number + 1}'}"
                resource = {"uri": uri, "mimeType": media_type or "application/octet-stream", "blob": part["raw"]}
                yield {"type": "resource", "resource": resource}
        elif "url" in part:
            link = {"type": "resource_link", "uri": part["url"], "name": name or part["url"].rpartition("/")[2]}
            yield {**link, **({"mimeType": media_type} if media_type else {})}


def _parts_of(holder: pb.Message | pb.Artifact) -> list[dict[str, Any]]:
    message = pb.Message(parts=holder.parts)
    parts = _MESSAGES.to_dict(message).get("parts", [])
    return [part for part in parts if isinstance(part, dict)]


# Task handles -------------------------------------------------------------------------------------------------


def task_object(view: TaskView, client: ClientFeatures, now: int) -> dict[str, Any]:
    """The task as `tasks/get` shows it (SEP-2663, "Tasks"). `now`: milliseconds since the epoch.

    A failure of the agent is a result: MCP has the status `failed` for failures of the server alone.
    """
    task = view.task
    shown = {**_handle_fields(view, now), "_meta": view.meta}
    if text := question_forms.question_text(view.status_parts):
        shown["statusMessage"] = text[:MAX_PROGRESS_TEXT]
    if view.asks:
        requests = {}
        if request := elicitation_of(view, client):
            requests[view.question_key] = request
        elif text:
            shown["statusMessage"] += f' (answer with the tool {ANSWER_TASK_TOOL}: {{"task": "{view.handle}"}})'
        return {**shown, "status": "input_required", "inputRequests": requests}
    if not view.ended:
        return {**shown, "status": "working"}
    if view.state == states.CANCELED:
        return {**shown, "status": "cancelled"}
    if _failure_reason(task) in _SERVER_REASONS:
        return {**shown, "status": "failed", "error": {"code": -32603, "message": text}}
    return {**shown, "status": "completed", "result": {"resultType": "complete", **task_result(view)}}


def created_task(view: TaskView, now: int) -> dict[str, Any]:
    """The result of a call that began a task, as a handle (`CreateTaskResult`)."""
    status = "input_required" if view.asks else "working"
    return {"resultType": "task", **_handle_fields(view, now), "status": status, "_meta": view.meta}


def _failure_reason(task: pb.Task) -> str:
    """The reason for which the server ended a task; empty for others."""
    metadata = task.status.message.metadata
    return metadata.fields["reason"].string_value if "reason" in metadata.fields else ""


def _handle_fields(view: TaskView, now: int) -> dict[str, Any]:
    updated = view.task.status.timestamp.ToMilliseconds()
    key = task_key_of(view.task.id)
    created = created_of(key) if key else updated
    return {
        "taskId": view.handle,
        "createdAt": _time(min(created, updated)),
        "lastUpdatedAt": _time(updated),
        "ttlMs": None,  # how long a task is kept depends on how and when it ends (retention)
        "pollIntervalMs": min(max((now - created) // 10, MIN_POLL_INTERVAL), MAX_POLL_INTERVAL),
    }


def _time(milliseconds: int) -> str:
    status = pb.TaskStatus()
    status.timestamp.FromMilliseconds(milliseconds)
    return status.timestamp.ToJsonString()


def elicitation_of(view: TaskView, client: ClientFeatures) -> dict[str, Any] | None:
    """The request to the client's user that the question of a task becomes; None if the client can show none."""
    if not view.asks:
        return None
    return questions.elicitation(
        view.status_parts,
        needs_auth=view.needs_auth,
        forms=client.asks_forms,
        urls=client.asks_urls,
        key=view.question_key,
        id_is_required=not client.is_stateless,
    )


# Progress -----------------------------------------------------------------------------------------------------


def progress_text(event: pb.StreamResponse) -> str:
    """The progress in an event of a task: the text of a status, or the end of a streamed text."""
    match event.WhichOneof("payload"):
        case "status_update":
            return question_forms.question_text(_parts_of(event.status_update.status.message))[:MAX_PROGRESS_TEXT]
        case "artifact_update":
            texts = [part.text for part in event.artifact_update.artifact.parts if part.text]
            return "".join(texts)[-MAX_PROGRESS_TEXT:]
    return ""
