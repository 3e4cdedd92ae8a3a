"""Operator calls that show a task's state, events, steps and push configurations (`dragoman.ops.v1`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final
from urllib.parse import quote

import orjson
from google.protobuf import text_format
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.bindings import event_encoders
from dragoman.bindings.admin import fields
from dragoman.bindings.admin.actions import OperatorCall
from dragoman.core.errors import TaskNotFound
from dragoman.core.limits.quotas import BILLION
from dragoman.core.names import created_of
from dragoman.core.push.delivery import DeliveryAttempt, PushRecord
from dragoman.core.task import states
from dragoman.core.task.log import Event
from dragoman.core.task.steps import StepRecord, result_text
from dragoman.runtime import Runtime
from dragoman.runtime.observe.explain import Explanation
from dragoman.wire.dialects import json_v01
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_CONTENTS_BYTES: Final = 1024 * 1024  # of steps in one response
MAX_STEPS_READ: Final = 256  # steps that are read at once
MAX_TEXT_CHARS: Final = 64 * 1024  # characters of a result that is shown

MAX_EVENT_LIMIT: Final = 100
EVENT_HISTORY: Final = 200  # messages that are listed with events


@dataclass(frozen=True, slots=True)
class TaskOperations:
    """Explains tasks, and lists and restarts what belongs to them."""

    runtime: Runtime
    trace_url: str = ""  # the URL of a trace, with `{trace_id}` or `{task_id}`; empty for none

    async def explain(self, operator: OperatorCall, request: ops.ExplainRequest) -> ops.ExplainResponse:
        """Explains every task of this id, with the delegated ones that the caller may see. Raises TaskNotFound."""
        fields.check_present("task_id", request.task_id)
        found = await self.runtime.explainer.explain(request.task_id)
        explanations = [one for one in found if fields.matches_task(request, one.record)]
        if not explanations:
            raise TaskNotFound
        return ops.ExplainResponse(tasks=[self._explained(one, operator) for one in explanations])

    def _explained(self, explanation: Explanation, operator: OperatorCall) -> ops.Explanation:
        record, usage, identity = explanation.record, explanation.usage, operator.identity
        failure = explanation.failure if operator.is_operator else None
        queued = 0 if states.is_terminal(record.state) else max(record.last_received - record.last_delivered, 0)
        return fields.message_from(
            ops.Explanation, explanation, record, usage, task_id=record.id, scope=record.ref.owner.scope,
            context_id=record.context, state=states.name(record.state), since=record.updated,
            last_event=record.last_sequence, queued_messages=queued, cost=usage.cost / BILLION,
            delegated_cost=usage.delegated_cost / BILLION, pushes=map(push_config_message, explanation.pushes),
            failure=wk.Failure.FromString(failure.failure) if failure else None, cause=failure.cause if failure else "",
            trace_id=explanation.trace, trace_url=expand_trace_url(self.trace_url, explanation.trace, record.id),
            delegated=[
                ops.DelegatedTask(
                    task_id=one.id, agent=one.agent, scope=one.ref.owner.scope, state=states.name(one.state),
                    created=created_of(one.ref.key), since=one.updated,
                )
                for one in explanation.delegated
                if identity.may_call(one.ref.owner.scope, one.agent)
            ],
        )  # fmt: skip

    async def list_events(self, _: OperatorCall, request: ops.ListEventsRequest) -> ops.ListEventsResponse:
        selection = fields.task_selection(request)
        limit = fields.page_limit(request.limit, default=20, maximum=MAX_EVENT_LIMIT)
        history = EVENT_HISTORY if request.include_history else 0
        log = await self.runtime.maintenance.log(selection, request.after, limit, history=history)
        task = pb.Task.FromString(log.task)
        v01_writer = json_v01.V01StreamWriter([artifact.artifact_id for artifact in task.artifacts])
        return ops.ListEventsResponse(
            events=[_event_message(event, v01_writer) for event in log.events],
            oldest=log.oldest,
            last=log.record.last_sequence,
            history=task.history if request.include_history else (),
        )

    async def list_steps(self, operator: OperatorCall, request: ops.ListStepsRequest) -> ops.ListStepsResponse:
        steps = (await self.runtime.maintenance.steps(fields.task_selection(request)))[1]
        if not operator.is_operator:
            steps = [replace(step, error="") for step in steps]
        return ops.ListStepsResponse(steps=map(step_message, steps))

    async def list_step_contents(
        self, _: OperatorCall, request: ops.ListStepContentsRequest
    ) -> ops.ListStepContentsResponse:
        """Reads steps in batches: their results are large, and many."""
        ref, steps = await self.runtime.maintenance.steps(fields.task_selection(request))
        if request.name:
            steps = [step for step in steps if (step.label, step.turn) == (request.name, request.turn)]
        response, left = ops.ListStepContentsResponse(), MAX_CONTENTS_BYTES
        while steps:
            sizes = accumulate(step.size for step in steps[:MAX_STEPS_READ])
            count = max(bisect_right(list(sizes), MAX_CONTENTS_BYTES), 1) if left > 0 else len(steps)
            batch, steps = steps[:count], steps[count:]
            for step in await self.runtime.store.steps(ref, only=batch) if left > 0 else batch:
                message = step_message(replace(step, result=b"", details=step.details if left > 0 else b""))
                if step.size:
                    message.text.CopyFrom(_result_text(step) if left > 0 else ops.TaskStepText(omitted=step.size))
                left -= message.ByteSize()
                response.steps.append(message)
        if request.name and not response.steps:
            raise TaskNotFound(f"the task has no step {request.name} in turn {request.turn}")
        return response

    async def list_push_configs(
        self, _: OperatorCall, request: ops.ListPushConfigsRequest
    ) -> ops.ListPushConfigsResponse:
        """Lists the push configurations of a task, or all with pending deliveries."""
        if request.task_id:
            histories = await self.runtime.maintenance.push_histories_of(fields.task_selection(request))
            configs = [push_config_message(history.push, history.attempts) for history in histories]
        else:
            limit = fields.page_limit(request.limit, default=100, maximum=1000)
            pending = await self.runtime.maintenance.store.pushes.unfinished(limit)
            configs = [
                push_config_message(push)
                for push in pending
                if fields.matches_owner(request, push.agent, push.task.owner.principal, push.task.owner.scope)
            ]
        return ops.ListPushConfigsResponse(configs=configs)

    async def redeliver(self, _: OperatorCall, request: ops.RedeliverRequest) -> ops.RedeliverResponse:
        selection = fields.task_selection(request)
        after = getattr(request, "from") - 1 if request.HasField("from") else None
        restarted = await self.runtime.maintenance.redeliver(selection, request.config_id, after)
        return ops.RedeliverResponse(configs=map(push_config_message, restarted))


def expand_trace_url(template: str, trace_id: str, task_id: str) -> str:
    """The URL of a task's trace; empty if the template needs a trace id and there is none."""
    if "{trace_id}" in template and not trace_id:
        return ""
    return template.replace("{trace_id}", trace_id).replace("{task_id}", quote(task_id, safe=""))


def _event_message(event: Event, v01_writer: json_v01.V01StreamWriter) -> ops.EncodedEvent:
    response = pb.StreamResponse.FromString(event.data)
    updates = json_v01.to_updates(response)
    v01 = [orjson.dumps(v01_writer.write(one, event.ends and one is updates[-1])).decode() for one in updates]
    return ops.EncodedEvent(
        sequence=event.sequence, time=event_time(response), text=text_format.MessageToString(response, as_utf8=True),
        v1_json=event_encoders.V1_STREAM_ENCODERS.json(event, False).decode(),
        v03_json=b"".join(event_encoders.v03_results()(event, event.ends)).decode(), v01_json=v01,
    )  # fmt: skip


def step_message(step: StepRecord) -> ops.TaskStep:
    """The message for a durable step; with its contents, if these were read."""
    message = fields.message_from(
        ops.TaskStep, step, name=step.label, state=ops.TaskStepState.Name(step.state),
        result_bytes=step.size, result=None, details=None, text=None,
    )  # fmt: skip
    for content in ("result", "details"):
        if data := getattr(step, content):
            getattr(message, content).MergeFromString(data)
    return message


def _result_text(step: StepRecord) -> ops.TaskStepText:
    part = pb.Part.FromString(step.result)
    text, kind = result_text(part.raw, part.media_type)
    shown = text[:MAX_TEXT_CHARS].encode(errors="replace").decode()
    return ops.TaskStepText(text=shown, media_type=kind, omitted=len(text) - len(shown) if text else step.size)


def event_time(event: pb.StreamResponse) -> Timestamp | None:
    """The time of a task or status event; other events have none."""
    for status in (event.task.status, event.status_update.status):
        if status.HasField("timestamp"):
            return status.timestamp
    return None


def push_config_message(push: PushRecord, attempts: Sequence[DeliveryAttempt] = ()) -> ops.PushConfig:
    """The message for a push configuration, without its secrets: many put one into the query of the URL."""
    address, question_mark, _ = push.config.url.partition("?")
    return fields.message_from(
        ops.PushConfig, push, push.config, push.task.owner, state=f"PUSH_STATE_{push.state.name}",
        url=address + question_mark + ("..." if question_mark else ""), last=push.last_sequence,
        delivered=max(push.last_delivered - push.given_up_events, 0), delivering=bool(push.session) and push.lag > 0,
        next_attempt=push.due_at if push.lag and not push.session else 0,
        attempts=[
            fields.message_from(ops.PushAttempt, one, time=one.at, milliseconds=one.duration_ms) for one in attempts
        ],
    )  # fmt: skip
