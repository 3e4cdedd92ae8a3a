"""Answers to the questions of tasks: checked against the question that is open, and sent once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from dragoman.core.errors import IdempotencyKeyReused, TaskEnded, UnsupportedOperation
from dragoman.extensions.mcp.wire import questions
from dragoman.extensions.mcp.wire.results import TaskView, view_of
from dragoman.extensions.mcp.wire.tools import NewId
from dragoman.runtime import Operations
from dragoman.runtime.access import Call
from dragoman.runtime.feeds import EventStream
from dragoman.wire import question_forms
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_SENDS = protojson.compile(pb.SendMessageRequest, json_proto.PROTOJSON_V1)


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """Answers to a task: `ElicitResult`s by the key of their question, or a text for the question that is open."""

    by_key: Mapping[str, Any]
    text: str | None = None


async def answer_task(
    operations: Operations, answers: TaskAnswers, new_id: NewId, call: Call, request: pb.GetTaskRequest
) -> bytes:
    """Sends the answer to the open question of a task, and does not wait for the turn that it begins.

    Those to other questions are ignored (SEP-2663, "Task Update Requests"). Raises TaskNotFound, InvalidParams, and
    UnsupportedOperation for a text while no question is open.
    """
    send = await _send_request(operations, answers, new_id, call, request)
    if send is None:
        if answers.text is not None:
            raise UnsupportedOperation("the task waits for no answer; get_task shows its state")
        return b""
    try:
        await operations.send.send_message(_once(call, send), send)
    except (IdempotencyKeyReused, TaskEnded, UnsupportedOperation):
        pass  # another answer came first, or the agent goes on by itself after a sign-in
    return b""


async def answer_and_follow(
    operations: Operations, answers: TaskAnswers, new_id: NewId, call: Call, request: pb.GetTaskRequest
) -> EventStream:
    """Sends the answer to the open question of a task, then yields the task and its events until its turn ends.

    Raises as `answer_task`, and UnsupportedOperation for a text while no question is open.
    """
    await answer_task(operations, answers, new_id, call, request)
    follow = replace(call, stops_with_turn=True, shows_finished=True, cursor="")
    events = operations.read.subscribe_to_task(follow, pb.SubscribeToTaskRequest(id=request.id))
    async with aclosing(events):
        async for batch in events:
            yield batch


async def read_view(operations: Operations, call: Call, tenant: str, task_id: str) -> TaskView:
    """The task as it is, without its history. Raises TaskNotFound."""
    request = pb.GetTaskRequest(id=task_id, history_length=0)
    return view_of(tenant, pb.Task.FromString(await operations.read.get_task(call, request)))


async def _send_request(
    operations: Operations, answers: TaskAnswers, new_id: NewId, call: Call, request: pb.GetTaskRequest
) -> pb.SendMessageRequest | None:
    """The message that answers the open question; None if no answer is for it."""
    view = await read_view(operations, call, request.tenant, request.id)
    key = view.question_key
    if not key:
        return None
    message: dict[str, Any] = {"messageId": new_id(), "role": "ROLE_USER", "taskId": request.id}
    if answers.text is not None:
        part = question_forms.answer_part(answers.text, question_forms.form_of(view.status_parts))
        message["parts"] = [part]
    elif key in answers.by_key:
        parts, action = questions.answer_parts(answers.by_key[key], view.status_parts, needs_auth=view.needs_auth)
        message["parts"] = parts
        if action != "accept":
            message["metadata"] = {questions.ACTION_METADATA: action}
    else:
        return None
    send: pb.SendMessageRequest = _SENDS.decode({"message": message})
    send.tenant = request.tenant
    send.configuration.return_immediately = True
    send.metadata["question"] = key
    return send


def _once(call: Call, send: pb.SendMessageRequest) -> Call:
    """The call with an idempotency key of the question: it is answered once, also when two servers get answers."""
    key = f"answer:{send.metadata['question']}"
    return replace(call, idempotency_key=key, cursor="", answers_question=True)
