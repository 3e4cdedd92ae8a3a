"""The table of operators' operations (`dragoman.ops.v1`): handler, grants, and what the audit log gets.

gRPC serves every operation, HTTP those with a `google.api.http` rule, under `/operations`. Both authenticate the caller
and call the table. Handlers take the caller and the request message, return the response message, and raise A2AError.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.bindings.admin.actions import AdminOperation, OperatorActions, OperatorCall
from dragoman.bindings.admin.fields import narrow_request
from dragoman.bindings.admin.maintenance import MaintenanceOperations
from dragoman.bindings.admin.server import AgentOperations, ApiKeyOperations, SigningKeyOperations
from dragoman.bindings.admin.task_changes import TaskChanges
from dragoman.bindings.admin.task_lists import TaskLists
from dragoman.bindings.admin.tasks import TaskOperations
from dragoman.bindings.admin.usage import UsageOperations
from dragoman.bindings.cards import Cards
from dragoman.ports import SigningKeys, UpstreamRegistry, WorkerHub
from dragoman.runtime import Runtime
from dragoman.runtime.maintenance.api_keys import ApiKeyService
from dragoman_pb.dragoman.ops.v1 import ops_pb2

OPS_SERVICE: Final = ops_pb2.DESCRIPTOR.services_by_name["OpsService"]


def request_type_of(name: str) -> type[Message]:
    return GetMessageClass(OPS_SERVICE.methods_by_name[name].input_type)


@dataclass(frozen=True, slots=True)
class AdminServices:
    """The services that operator calls use."""

    actions: OperatorActions
    runtime: Runtime
    api_keys: ApiKeyService
    signing_keys: SigningKeys
    worker_hub: WorkerHub
    upstream_registry: UpstreamRegistry
    clock: Callable[[], int]  # milliseconds since the epoch
    trace_url: str = ""  # the URL of a trace, with `{trace_id}` or `{task_id}`; empty for none


class AdminTable:
    """The operations by name. `run` and `stream` are the only way to their handlers."""

    def __init__(self, cards: Cards, services: AdminServices) -> None:
        self.worker_hub = services.worker_hub
        self._actions = services.actions
        self._admission = services.runtime.operations.admission
        self.rows: Final[Mapping[str, AdminOperation]] = {row.name: row for row in _rows(cards, services)}

    async def run(self, name: str, operator: OperatorCall, request: Message) -> Message:
        """Calls a unary operation, and records it. Raises A2AError."""
        self._admission.check_rate(operator.identity)
        return await self._actions.run(self._narrowed(name, operator, request), operator, request)

    async def stream(self, name: str, operator: OperatorCall, request: Message) -> AsyncGenerator[Message, None]:
        """Calls a streaming operation, counts it as a stream of its caller, and records it. Raises A2AError."""
        self._admission.check_rate(operator.identity)
        operation = self._narrowed(name, operator, request)
        with self._admission.stream(operator.identity):
            async with aclosing(self._actions.stream(operation, operator, request)) as responses:
                async for response in responses:
                    yield response

    def _narrowed(self, name: str, operator: OperatorCall, request: Message) -> AdminOperation:
        """Limits a request to the grants of its caller. Returns its operation."""
        operation = self.rows[name]
        if operation.grant != "none" and not operation.spans_grants:
            narrow_request(request, operator.identity)
        return operation


def _rows(cards: Cards, services: AdminServices) -> tuple[AdminOperation, ...]:
    runtime = services.runtime
    agents = AgentOperations(cards, runtime, services.worker_hub, services.upstream_registry)
    lists = TaskLists(runtime)
    usage = UsageOperations(runtime, services.clock)
    tasks = TaskOperations(runtime, services.trace_url)
    changes = TaskChanges(runtime)
    stored = MaintenanceOperations(runtime.maintenance)
    api_keys = ApiKeyOperations(services.api_keys)
    signing = SigningKeyOperations(services.signing_keys)
    # fmt: off
    return (
        # agents and the servers behind them
        AdminOperation("ListAgents", agents.list_agents, "viewer", limited_grants=True, open_remotely=True,
                       read_only=True, audited=False),
        AdminOperation("PauseAgent", agents.pause_agent, limited_grants=True),
        AdminOperation("ResumeAgent", agents.resume_agent, limited_grants=True),
        AdminOperation("ListWorkers", agents.list_workers, "viewer", read_only=True, audited=False),
        AdminOperation("ForgetAgent", agents.forget_agent),
        AdminOperation("ListUpstreams", agents.list_upstreams, "viewer", read_only=True, audited=False),
        AdminOperation("AddUpstream", agents.add_upstream),
        AdminOperation("RemoveUpstream", agents.remove_upstream),
        # lists and figures
        AdminOperation("ListTasks", lists.list_tasks, "none", open_remotely=True, read_only=True),
        AdminOperation("WatchTasks", lists.watch_tasks, "none", open_remotely=True, read_only=True),
        AdminOperation("ListUsage", usage.list_usage, "none", read_only=True),
        AdminOperation("GetOverview", usage.get_overview, "viewer", limited_grants=True, spans_grants=True,
                       read_only=True, audited=False),
        # one task
        AdminOperation("Explain", tasks.explain, "viewer", limited_grants=True, read_only=True),
        AdminOperation("ListEvents", tasks.list_events, "viewer", limited_grants=True, read_only=True),
        AdminOperation("ListSteps", tasks.list_steps, "viewer", limited_grants=True, read_only=True),
        AdminOperation("ListStepContents", tasks.list_step_contents, limited_grants=True, read_only=True),
        AdminOperation("ListPushConfigs", tasks.list_push_configs, "viewer", limited_grants=True, read_only=True),
        AdminOperation("Redeliver", tasks.redeliver, limited_grants=True),
        AdminOperation("ListFailures", lists.list_failures, limited_grants=True, spans_grants=True, read_only=True),
        # changes of tasks
        AdminOperation("CancelTask", changes.cancel_task, limited_grants=True),
        AdminOperation("RerunTask", changes.rerun_task, limited_grants=True),
        AdminOperation("CancelTasks", changes.cancel_tasks, limited_grants=True),
        AdminOperation("RerunTasks", changes.rerun_tasks, limited_grants=True),
        AdminOperation("EraseTasks", changes.erase_tasks, limited_grants=True),
        # the store
        AdminOperation("Purge", stored.purge, limited_grants=True),
        AdminOperation("ExportTask", stored.export_task, limited_grants=True, read_only=True),
        AdminOperation("Backup", stored.backup, read_only=True),
        AdminOperation("ExportAudit", stored.export_audit, "auditor", read_only=True),
        # keys
        AdminOperation("CreateKey", api_keys.create_key),
        AdminOperation("ListKeys", api_keys.list_keys, read_only=True),
        AdminOperation("RotateKey", api_keys.rotate_key),
        AdminOperation("RevokeKey", api_keys.revoke_key),
        AdminOperation("ListSigningKeys", signing.list_signing_keys, read_only=True),
        AdminOperation("RotateSigningKey", signing.rotate_signing_key),
        AdminOperation("WithdrawSigningKey", signing.withdraw_signing_key),
    )
    # fmt: on
