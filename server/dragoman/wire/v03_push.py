"""Push configurations of A2A 0.3 (`a2a.v1`) and of the domain vocabulary, one into the other.

In 0.3 a configuration is a resource, `tasks/TASK/pushNotificationConfigs/ID`, in a wrapper that carries its name, and
may list several schemes, of which the first counts. Its id is taken from where clients agree on it: beside the
configuration (`config_id`), else inside of it, never from `name`, into which one SDK writes `None` where it has none.
"""

from __future__ import annotations

from typing import Final

from dragoman.core.errors import InvalidParams
from dragoman.core.names import split_resource
from dragoman.core.webhook import FIRST
from dragoman.wire.v03 import read_push_config, task_name
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

COLLECTION: Final = "/pushNotificationConfigs"

_NOBODY: Final = ("", "None", "undefined", "null")
"""What stands in a name where a client wrote down an id that it does not have."""


# Requests --------------------------------------------------------------------------------------------------


def read_create(request: v03.CreateTaskPushNotificationConfigRequest) -> pb.TaskPushNotificationConfig:
    """CreateTaskPushNotificationConfig. Raises InvalidParams for a parent that is no task's.

    The published HTTP rule takes the collection into `parent`.
    """
    tenant, task_id = task_name("parent", request.parent.removesuffix(COLLECTION), request.tenant)
    out = read_push_config(request.config.push_notification_config)
    out.tenant, out.task_id, out.id = tenant, task_id, request.config_id or out.id
    return out


def read_get(
    request: v03.GetTaskPushNotificationConfigRequest,
) -> pb.GetTaskPushNotificationConfigRequest:
    """GetTaskPushNotificationConfig. Who names no configuration means the first. Raises InvalidParams."""
    tenant, task_id, id = _config_name(request.name, request.tenant)
    return pb.GetTaskPushNotificationConfigRequest(tenant=tenant, task_id=task_id, id=FIRST if id in _NOBODY else id)


def read_list(
    request: v03.ListTaskPushNotificationConfigRequest,
) -> pb.ListTaskPushNotificationConfigsRequest:
    """ListTaskPushNotificationConfig. Raises InvalidParams for a parent that is no task's."""
    tenant, task_id = task_name("parent", request.parent.removesuffix(COLLECTION), request.tenant)
    return pb.ListTaskPushNotificationConfigsRequest(
        tenant=tenant, task_id=task_id, page_size=request.page_size, page_token=request.page_token
    )


def read_delete(
    request: v03.DeleteTaskPushNotificationConfigRequest,
) -> pb.DeleteTaskPushNotificationConfigRequest:
    """DeleteTaskPushNotificationConfig. Raises InvalidParams for a name without a configuration."""
    tenant, task_id, id = _config_name(request.name, request.tenant)
    if not id:
        raise InvalidParams.field("name", f"must be tasks/TASK{COLLECTION}/ID")
    return pb.DeleteTaskPushNotificationConfigRequest(tenant=tenant, task_id=task_id, id=id)


def _config_name(name: str, tenant: str) -> tuple[str, str, str]:
    """Tenant, task and configuration of a resource name."""
    within, rest = split_resource(name)
    task, _, id = rest.partition(f"{COLLECTION}/")
    task = f"{within}/{task}" if within else task
    return *task_name("name", task.removesuffix(COLLECTION), tenant), id


# Answers ---------------------------------------------------------------------------------------------------


def write_config(config: pb.TaskPushNotificationConfig) -> v03.TaskPushNotificationConfig:
    """A configuration of a task."""
    out = v03.TaskPushNotificationConfig(name=f"tasks/{config.task_id}{COLLECTION}/{config.id}")
    inner = out.push_notification_config
    inner.id, inner.url, inner.token = config.id, config.url, config.token
    if config.HasField("authentication"):
        inner.authentication.credentials = config.authentication.credentials
        if config.authentication.scheme:
            inner.authentication.schemes.append(config.authentication.scheme)
    return out


def write_list(
    response: pb.ListTaskPushNotificationConfigsResponse,
) -> v03.ListTaskPushNotificationConfigResponse:
    """One page of configurations."""
    return v03.ListTaskPushNotificationConfigResponse(
        configs=map(write_config, response.configs), next_page_token=response.next_page_token
    )
