"""Operator calls for the state, events and push configurations of tasks (`dragoman.ops.v1`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final
from urllib.parse import quote

import orjson
from google.protobuf import text_format
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.bindings import event_encoders
from dragoman.bindings.admin.fields import check_present, check_request_id, page_limit, set_timestamps, task_selection
from dragoman.core.access.identity import Identity
from dragoman.core.errors import InvalidParams, TaskNotFound
from dragoman.core.limits.quotas import BILLION
from dragoman.core.names import created_of
from dragoman.core.push.delivery import DeliveryAttempt, PushRecord, PushState
from dragoman.core.task import states
from dragoman.core.task.cursors import FoundTask, SearchOrder, TaskSearch
from dragoman.core.task.log import Event, TaskRecord
from dragoman.core.task.steps import StepRecord
from dragoman.runtime.maintenance.admin import Maintenance
from dragoman.runtime.observe.explain import Explainer, Explanation
from dragoman.runtime.operations.caller_tasks import DEFAULT_TASKS, MAX_TASKS, CallerTasks, TaskFilter
from dragoman.runtime.operations.operator_tasks import OperatorTasks
from dragoman.runtime.push.scheduler import Redelivery
from dragoman.wire.dialects import json_v01
from dragoman_pb.dragoman.ops.v1 import events_pb2 as events_pb
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import push_pb2 as push_pb
from dragoman_pb.dragoman.ops.v1 import steps_pb2 as steps_pb
from dragoman_pb.dragoman.ops.v1 import tasks_pb2 as tasks_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DEFAULT_EVENT_LIMIT: Final = 20
MAX_EVENT_LIMIT: Final = 100
EVENT_HISTORY: Final = 200
"""Messages that are listed with events."""
DEFAULT_PUSH_LIMIT: Final = 100
MAX_PUSH_LIMIT: Final = 1000
WATCH_INTERVAL: Final = 1.0
"""Seconds between two searches of one WatchTasks."""
WATCH_PAUSE: Final = 20
"""The pause after a search, in durations of that search: a watcher takes at most a twentieth of one reader's time."""


class TaskOperations:
    """Operations from request message to response message. They raise A2AError."""

    def __init__(
        self, explainer: Explainer, maintenance: Maintenance, redelivery: Redelivery, trace_url: str = ""
    ) -> None:
        """`trace_url`: the URL of a trace, with `{trace_id}` or `{task_id}`; empty for none."""
        self._trace_url = trace_url
        self._explainer = explainer
        self._maintenance = maintenance
        self._redelivery = redelivery

    async def explain(self, identity: Identity, request: ops.ExplainRequest) -> ops.ExplainResponse:
        """Explains each task with an id, and names delegated ones within the grants. Raises TaskNotFound."""
        check_present("task_id", request.task_id)
        explanations = [
            explanation
            for explanation in await self._explainer.explain(request.task_id)
            if request.agent in ("", explanation.record.agent)
            and request.principal in ("", explanation.record.principal)
            and request.scope in ("", explanation.record.ref.owner.scope)
        ]
        if not explanations:
            raise TaskNotFound
        response = ops.ExplainResponse(tasks=(_explanation_message(each, identity) for each in explanations))
        for message in response.tasks:
            message.trace_url = expand_trace_url(self._trace_url, message.trace_id, message.task_id)
        return response

    async def list_events(self, request: events_pb.ListEventsRequest) -> events_pb.ListEventsResponse:
        """Lists events of a task by sequence."""
        selection = task_selection(request)
        limit = page_limit(request.limit, default=DEFAULT_EVENT_LIMIT, maximum=MAX_EVENT_LIMIT)
        history = EVENT_HISTORY if request.include_history else 0
        log = await self._maintenance.log(selection, request.after, limit, history=history)
        task = pb.Task.FromString(log.task)
        v01_writer = json_v01.V01StreamWriter([artifact.artifact_id for artifact in task.artifacts])
        return events_pb.ListEventsResponse(
            events=[_event_message(event, v01_writer) for event in log.events],
            oldest=log.oldest,
            last=log.record.last_sequence,
            history=task.history if request.include_history else (),
        )

    async def list_steps(self, request: steps_pb.ListStepsRequest) -> steps_pb.ListStepsResponse:
        """Lists the durable steps of a task."""
        steps = await self._maintenance.steps(task_selection(request))
        return steps_pb.ListStepsResponse(steps=map(step_message, steps))

    async def list_push_configs(self, request: push_pb.ListPushConfigsRequest) -> push_pb.ListPushConfigsResponse:
        """Lists the push configurations of a task, or all with pending deliveries."""
        if request.task_id:
            histories = await self._redelivery.of_selection(task_selection(request))
            configs = [push_config_message(history.push, history.attempts) for history in histories]
        else:
            limit = page_limit(request.limit, default=DEFAULT_PUSH_LIMIT, maximum=MAX_PUSH_LIMIT)
            pending = await self._redelivery.waiting(limit)
            configs = [push_config_message(push) for push in pending if _matches_request(request, push)]
        return push_pb.ListPushConfigsResponse(configs=configs)

    async def redeliver(self, request: push_pb.RedeliverRequest) -> push_pb.RedeliverResponse:
        """Restarts the deliveries of a configuration."""
        selection = task_selection(request)
        after = getattr(request, "from") - 1 if request.HasField("from") else None
        restarted = await self._redelivery.redeliver(selection, request.config_id, after)
        return push_pb.RedeliverResponse(configs=map(push_config_message, restarted))


class ListedTaskOperations:
    """Lists tasks: of all principals for operators and viewers, else the caller's. Cancels and reruns them."""

    def __init__(self, caller_tasks: CallerTasks, operator_tasks: OperatorTasks) -> None:
        self._caller_tasks = caller_tasks
        self._operator_tasks = operator_tasks

    async def list_tasks(
        self, identity: Identity, is_viewer: bool, request: tasks_pb.ListTasksRequest
    ) -> tasks_pb.ListTasksResponse:
        """Lists tasks, most recently changed first unless the request says otherwise."""
        check_state_names(request)
        limit = page_limit(request.limit, default=DEFAULT_TASKS, maximum=MAX_TASKS)
        if is_viewer and not request.own:
            return await self._search(identity, request, limit)
        for field, _ in request.ListFields():
            if field.name in _SEARCH_FIELDS:
                text = "is for operators and viewers, in lists of tasks of all principals"
                raise InvalidParams.field(field.camelcase_name, text)
        listed = await self._caller_tasks.list_tasks(
            identity,
            TaskFilter(
                request.task_id,
                request.scope,
                request.agent,
                request.context_id,
                request.state,
                limit,
                request.include_artifacts,
            ),
            is_operator=is_viewer,
        )
        return tasks_pb.ListTasksResponse(
            tasks=[
                tasks_pb.ListedTask(scope=one.scope, agent=one.agent, task=one.task, summary=one.summary)
                for one in listed.tasks
            ],
            total=listed.total,
            scopes=listed.scopes,
        )

    async def watch_tasks(
        self, identity: Identity, is_viewer: bool, request: tasks_pb.WatchTasksRequest
    ) -> AsyncGenerator[tasks_pb.WatchTasksResponse, None]:
        """Lists tasks as `list_tasks` does, and again whenever the list has changed. Does not end."""
        clock = asyncio.get_running_loop().time
        listed: tasks_pb.ListTasksResponse | None = None
        while True:
            began = clock()
            found = await self.list_tasks(identity, is_viewer, request.filter)
            pause = max(WATCH_INTERVAL, WATCH_PAUSE * (clock() - began))
            if found != listed:
                listed = found
                yield tasks_pb.WatchTasksResponse(list=found)
            await asyncio.sleep(pause)

    async def _search(
        self, identity: Identity, request: tasks_pb.ListTasksRequest, limit: int
    ) -> tasks_pb.ListTasksResponse:
        query = task_search(request, limit)
        found = await self._operator_tasks.search(identity, query, request.page_token)
        response = tasks_pb.ListTasksResponse(
            tasks=map(_listed_task, found.tasks),
            total=found.total,
            total_is_minimum=not found.is_total_exact and not request.page_token,
            scopes=await self._operator_tasks.scopes(identity),
        )
        if found.next is not None:
            response.next_page_token = self._operator_tasks.token(identity, query, found.next)
        if request.count_states and not request.page_token:
            counts = await self._operator_tasks.count_states(identity, query)
            response.state_counts.extend(
                tasks_pb.StateCount(state=one.state, count=one.count, is_minimum=not one.is_exact)  # type: ignore[arg-type]
                for one in counts
            )
        return response

    async def cancel_task(self, identity: Identity, request: tasks_pb.CancelTaskRequest) -> tasks_pb.CancelTaskResponse:
        """Cancels a task of any principal."""
        for_agent = pb.CancelTaskRequest()
        if request.HasField("metadata"):
            for_agent.metadata.CopyFrom(request.metadata)
        record, data = await self._operator_tasks.cancel(identity, task_selection(request), for_agent)
        return tasks_pb.CancelTaskResponse(task=_named_task(record, data))

    async def rerun_task(self, identity: Identity, request: tasks_pb.RerunTaskRequest) -> tasks_pb.RerunTaskResponse:
        """Sends the first message of a task of any principal again."""
        check_request_id(request.request_id)
        selection = task_selection(request)
        snapshot = await self._operator_tasks.rerun(
            identity, selection, request.request_id, repeat_steps=request.repeat_steps
        )
        return tasks_pb.RerunTaskResponse(task=_named_task(snapshot.record, snapshot.task))


MAX_SEARCH_TEXT: Final = 200
MAX_SEARCH_ENTRIES: Final = 8
_SEARCH_FIELDS: Final = (
    "principal", "states", "changed_since", "changed_before", "text", "metadata", "order", "page_token",
    "count_states",
)  # fmt: skip
"""Fields of a request that select among the tasks of all principals."""


def check_state_names(request: tasks_pb.ListTasksRequest) -> None:
    """Raises InvalidParams for a state that no stored task has."""
    for state in (request.state, *request.states):
        if state and state not in states.STORED_STATES:
            names = ", ".join(map(states.name, sorted(states.STORED_STATES)))
            raise InvalidParams.field("state", f"must be one of {names}")


def task_search(request: tasks_pb.ListTasksRequest, limit: int) -> TaskSearch:
    """The search that a request describes. Raises InvalidParams."""
    if len(request.text) > MAX_SEARCH_TEXT:
        raise InvalidParams.field("text", f"must have at most {MAX_SEARCH_TEXT} characters")
    if len(request.metadata) > MAX_SEARCH_ENTRIES:
        raise InvalidParams.field("metadata", f"must have at most {MAX_SEARCH_ENTRIES} entries")
    entries = []
    for entry in request.metadata:
        key, separator, value = entry.partition("=")
        if not key or not separator:
            raise InvalidParams.field("metadata", "must have the form KEY=VALUE")
        entries.append((key, value))
    return TaskSearch(
        task_id=request.task_id,
        scopes=frozenset(filter(None, (request.scope,))),
        agents=frozenset(filter(None, (request.agent,))),
        principal=request.principal,
        context=request.context_id,
        states=frozenset(filter(None, (request.state, *request.states))),
        changed_since=max(request.changed_since.ToMilliseconds(), 0),
        changed_before=max(request.changed_before.ToMilliseconds(), 0),
        text=request.text,
        metadata=tuple(entries),
        order=_search_order(request),
        page_size=limit,
        artifacts=request.include_artifacts,
    )


def _search_order(request: tasks_pb.ListTasksRequest) -> SearchOrder:
    if request.order == tasks_pb.TASK_ORDER_UNSPECIFIED and request.text:
        # The index by creation has the texts; others are for searches that have few tasks to look at.
        return "changed" if request.principal or request.state or request.states else "created"
    return "created" if request.order == tasks_pb.TASK_ORDER_CREATED else "changed"


def _named_task(record: TaskRecord, data: bytes) -> tasks_pb.ListedTask:
    """The message for a task after a change. `data`: a serialized Task."""
    task = pb.Task.FromString(data)
    task.ClearField("history")
    return tasks_pb.ListedTask(
        scope=record.ref.owner.scope, agent=record.agent, task=task, principal=record.principal, summary=record.summary
    )


def _listed_task(found: FoundTask) -> tasks_pb.ListedTask:
    record = found.record
    message = tasks_pb.ListedTask(
        scope=record.ref.owner.scope,
        agent=record.agent,
        task=pb.Task.FromString(found.task),
        principal=record.principal,
        summary=record.summary,
        status_text=record.status_text if record.state in states.EXPLAINED else "",
        tokens=found.usage.tokens,
        cost=found.usage.cost / BILLION,
    )
    set_timestamps(message, created=found.created)
    return message


def expand_trace_url(template: str, trace_id: str, task_id: str) -> str:
    """The URL of a task's trace; empty if the template needs a trace id and there is none."""
    if "{trace_id}" in template and not trace_id:
        return ""
    return template.replace("{trace_id}", trace_id).replace("{task_id}", quote(task_id, safe=""))


def _explanation_message(explanation: Explanation, identity: Identity) -> ops.Explanation:
    record = explanation.record
    queued_messages = max(record.last_received - record.last_delivered, 0)
    if states.is_terminal(record.state):
        queued_messages = 0
    return ops.Explanation(
        task_id=record.id,
        agent=record.agent,
        scope=record.ref.owner.scope,
        principal=record.principal,
        context_id=record.context,
        state=states.name(record.state),
        since=record.updated,
        dialect=record.dialect,
        last_event=record.last_sequence,
        queued_messages=queued_messages,
        attempt=record.attempt,
        attempts_allowed=explanation.attempts_allowed,
        session=record.session,
        session_expires=explanation.session_expires,
        here=explanation.here,
        stopping=explanation.stopping,
        subscribers=explanation.subscribers,
        ready=record.ready,
        free_slots=explanation.free_slots,
        next=explanation.next,
        pushes=map(push_config_message, explanation.pushes),
        worker=explanation.worker,
        tokens=explanation.usage.tokens,
        cost=explanation.usage.cost / BILLION,
        delegated_tokens=explanation.usage.delegated_tokens,
        delegated_cost=explanation.usage.delegated_cost / BILLION,
        trace_id=explanation.trace,
        delegated=[
            ops.DelegatedTask(
                task_id=one.id,
                agent=one.agent,
                scope=one.ref.owner.scope,
                state=states.name(one.state),
                created=created_of(one.ref.key),
                since=one.updated,
            )
            for one in explanation.delegated
            if identity.may_call(one.ref.owner.scope, one.agent)
        ],
    )


def _event_message(event: Event, v01_writer: json_v01.V01StreamWriter) -> events_pb.EncodedEvent:
    response = pb.StreamResponse.FromString(event.data)
    updates = json_v01.to_updates(response)
    return events_pb.EncodedEvent(
        sequence=event.sequence,
        time=event_time(response),
        v1_json=event_encoders.V1_STREAM_ENCODERS.json(event, False).decode(),
        v03_json=b"".join(event_encoders.v03_results()(event, event.ends)).decode(),
        v01_json=[
            orjson.dumps(v01_writer.write(update, event.ends and update is updates[-1])).decode() for update in updates
        ],
        text=text_format.MessageToString(response, as_utf8=True),
    )


def step_message(step: StepRecord) -> steps_pb.TaskStep:
    """The message for a durable step; with its result, if that was read."""
    message = steps_pb.TaskStep(
        name=step.label,
        state=steps_pb.TaskStepState.Name(step.state),
        turn=step.turn,
        attempt=step.attempt,
        result_bytes=step.size,
        error=step.error,
    )
    set_timestamps(message, started=step.started, ended=step.ended, wake_at=step.wake_at)
    if step.result:
        message.result.MergeFromString(step.result)
    return message


def event_time(event: pb.StreamResponse) -> Timestamp | None:
    """The time of a task or status event; other events have none."""
    for status in (event.task.status, event.status_update.status):
        if status.HasField("timestamp"):
            return status.timestamp
    return None


def _matches_request(request: push_pb.ListPushConfigsRequest, push: PushRecord) -> bool:
    owner = push.task.owner
    return (
        request.agent in ("", push.agent)
        and request.principal in ("", owner.principal)
        and request.scope in ("", owner.scope)
    )


_PUSH_STATES: Final = {
    PushState.LIVE: push_pb.PUSH_STATE_LIVE,
    PushState.DONE: push_pb.PUSH_STATE_DONE,
    PushState.DEAD: push_pb.PUSH_STATE_DEAD,
    PushState.ENDED: push_pb.PUSH_STATE_ENDED,
}


def push_config_message(push: PushRecord, attempts: Sequence[DeliveryAttempt] = ()) -> push_pb.PushConfig:
    """The message for a push configuration, without its secrets."""
    config = push_pb.PushConfig(
        task_id=push.task_id,
        agent=push.agent,
        principal=push.task.owner.principal,
        scope=push.task.owner.scope,
        id=push.config.id,
        url=push.config.url,
        dialect=push.config.dialect,
        state=_PUSH_STATES[push.state],
        why=push.reason,
        delivered=push.last_delivered,
        last=push.last_sequence,
        failures=push.failures,
        delivering=bool(push.session) and push.lag > 0,
        tries=push.attempt_count,
        attempts=map(_attempt_message, attempts),
    )
    next_try = push.due_at if push.lag and not push.session else 0
    set_timestamps(config, created=push.created, failing_since=push.failing_since, next_try=next_try)
    return config


def _attempt_message(attempt: DeliveryAttempt) -> push_pb.PushAttempt:
    message = push_pb.PushAttempt(
        sequence=attempt.sequence, status=attempt.status, error=attempt.error, milliseconds=attempt.duration_ms
    )
    set_timestamps(message, time=attempt.at)
    return message
