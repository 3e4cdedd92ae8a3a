"""The table of operators' operations (`dragoman.ops.v1`): handler, grants, and what the audit log gets.

gRPC serves every operation, HTTP those with a `google.api.http` rule, under `/operations`. Both authenticate the caller
and call the table. Handlers take the caller and the request message, return the response message, and raise A2AError.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.bindings.admin.actions import Operation, OperatorActions, OperatorCall
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


class OperationTable:
    """The operations by name. `run` and `stream` are the only way to their handlers."""

    def __init__(self, cards: Cards, services: AdminServices) -> None:
        self.worker_hub = services.worker_hub
        self._actions = services.actions
        self.rows: Final[Mapping[str, Operation]] = {row.name: row for row in _rows(cards, services)}

    async def run(self, name: str, operator: OperatorCall, request: Message) -> Message:
        """Calls a unary operation, and records it. Raises A2AError."""
        return await self._actions.run(self._narrowed(name, operator, request), operator, request)

    def stream(self, name: str, operator: OperatorCall, request: Message) -> AsyncGenerator[Message, None]:
        """Calls a streaming operation, and records it. Raises A2AError, as does the stream."""
        return self._actions.stream(self._narrowed(name, operator, request), operator, request)

    def _narrowed(self, name: str, operator: OperatorCall, request: Message) -> Operation:
        """Limits a request to the grants of its caller. Returns its operation."""
        operation = self.rows[name]
        if operation.grant != "none" and not operation.covers_grants:
            narrow_request(request, operator.identity)
        return operation


def _rows(cards: Cards, services: AdminServices) -> tuple[Operation, ...]:
    runtime, pauses = services.runtime, services.runtime.scheduler.pauses
    store, operations, maintenance = runtime.store, runtime.operations, runtime.maintenance
    agents = AgentOperations(cards, runtime.explainer, pauses, services.worker_hub, services.upstream_registry)
    lists = TaskLists(store, operations.access, operations.admission)
    usage = UsageOperations(store, operations.admission, services.clock)
    tasks = TaskOperations(runtime.explainer, maintenance, services.trace_url)
    changes = TaskChanges(store, operations, maintenance, runtime.auditor)
    stored = MaintenanceOperations(maintenance)
    api_keys = ApiKeyOperations(services.api_keys)
    signing = SigningKeyOperations(services.signing_keys)
    # fmt: off
    return (
        # agents and the servers behind them
        Operation("ListAgents", agents.list_agents, "viewer", limited=True, remote=True, reads=True, audited=False),
        Operation("PauseAgent", agents.pause_agent, limited=True),
        Operation("ResumeAgent", agents.resume_agent, limited=True),
        Operation("ListWorkers", agents.list_workers, "viewer", reads=True, audited=False),
        Operation("ForgetAgent", agents.forget_agent),
        Operation("ListUpstreams", agents.list_upstreams, "viewer", reads=True, audited=False),
        Operation("AddUpstream", agents.add_upstream),
        Operation("RemoveUpstream", agents.remove_upstream),
        # lists and figures
        Operation("ListTasks", lists.list_tasks, "none", remote=True, reads=True),
        Operation("WatchTasks", lists.watch_tasks, "none", remote=True, reads=True),
        Operation("ListUsage", usage.list_usage, "none", reads=True),
        Operation(
            "GetOverview", usage.get_overview, "viewer", limited=True, covers_grants=True, reads=True, audited=False
        ),
        # one task
        Operation("Explain", tasks.explain, "viewer", limited=True, reads=True),
        Operation("ListEvents", tasks.list_events, "viewer", limited=True, reads=True),
        Operation("ListSteps", tasks.list_steps, "viewer", limited=True, reads=True),
        Operation("ListPushConfigs", tasks.list_push_configs, "viewer", limited=True, reads=True),
        Operation("Redeliver", tasks.redeliver, limited=True),
        # changes of tasks
        Operation("CancelTask", changes.cancel_task, limited=True),
        Operation("RerunTask", changes.rerun_task, limited=True),
        Operation("CancelTasks", changes.cancel_tasks, limited=True),
        Operation("RerunTasks", changes.rerun_tasks, limited=True),
        Operation("EraseTasks", changes.erase_tasks, limited=True),
        # the store
        Operation("Purge", stored.purge, limited=True),
        Operation("ExportTask", stored.export_task, limited=True, reads=True),
        Operation("Backup", stored.backup, reads=True),
        Operation("ExportAudit", stored.export_audit, reads=True),
        # keys
        Operation("CreateKey", api_keys.create_key),
        Operation("ListKeys", api_keys.list_keys, reads=True),
        Operation("RotateKey", api_keys.rotate_key),
        Operation("RevokeKey", api_keys.revoke_key),
        Operation("ListSigningKeys", signing.list_signing_keys, reads=True),
        Operation("RotateSigningKey", signing.rotate_signing_key),
        Operation("WithdrawSigningKey", signing.withdraw_signing_key),
    )
    # fmt: on
