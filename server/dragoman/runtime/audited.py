"""The operations of A2A, with a word to the audit log for each that changes something."""

from __future__ import annotations

from typing import Any

from dragoman.runtime.auditing import Auditor
from dragoman.runtime.call import Call
from dragoman.runtime.sending import Sent
from dragoman.runtime.service import TaskService
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class AuditedService(TaskService):
    """Every operation on tasks, told. What only reads is not: that is what the access log is for."""

    def __init__(self, auditor: Auditor, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._auditor = auditor
        if auditor.tasks:
            self._sending.told = self._sent

    def _sent(self, call: Call, sent: Sent) -> None:
        if not sent.repeated and sent.head.id:
            self._tell("task.created" if sent.created else "task.continued", call, sent.head.id)

    async def cancel_task(self, call: Call, request: pb.CancelTaskRequest) -> bytes:
        answer = await super().cancel_task(call, request)
        self._tell("task.canceled", call, request.id)
        return answer

    async def create_push(self, call: Call, request: pb.TaskPushNotificationConfig) -> bytes:
        answer = await super().create_push(call, request)
        self._tell("push.created", call, request.task_id)
        return answer

    async def delete_push(self, call: Call, request: pb.DeleteTaskPushNotificationConfigRequest) -> bytes:
        answer = await super().delete_push(call, request)
        self._tell("push.deleted", call, request.task_id)
        return answer

    def _tell(self, action: str, call: Call, task: str) -> None:
        caller = call.caller
        self._auditor.did(action, caller.identity, caller.owner.scope, caller.agent, task)
