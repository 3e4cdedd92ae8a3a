"""Our descriptors equal the published ones, apart from the extras listed here by name.

The published ones are recorded in `reference/` (made by tools/extract_reference.py);
`make foreign` compares that record with the descriptors inside a2a-sdk itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from google.api import annotations_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1
from tools.extract_reference import Facts, file_facts

REFERENCE = Path(__file__).parent / "reference"

EXTRAS_V03 = {
    # added by the authors of the protocol after 0.3.0, under the same package name
    "a2a.v1.AgentCapabilities.state_transition_history",
    "a2a.v1.Message.reference_task_ids",
    "a2a.v1.A2AService.ListTasks",
    "a2a.v1.ListTasksRequest",
    "a2a.v1.ListTasksRequest.context_id",
    "a2a.v1.ListTasksRequest.status",
    "a2a.v1.ListTasksRequest.page_size",
    "a2a.v1.ListTasksRequest.page_token",
    "a2a.v1.ListTasksRequest.history_length",
    "a2a.v1.ListTasksRequest.last_updated_time",
    "a2a.v1.ListTasksRequest.include_artifacts",
    "a2a.v1.ListTasksRequest.tenant",
    "a2a.v1.ListTasksResponse",
    "a2a.v1.ListTasksResponse.tasks",
    "a2a.v1.ListTasksResponse.next_page_token",
    "a2a.v1.ListTasksResponse.total_size",
    # the tenant of deployments that name their agents by resource
    "a2a.v1.AgentInterface.tenant",
    "a2a.v1.CancelTaskRequest.tenant",
    "a2a.v1.CreateTaskPushNotificationConfigRequest.tenant",
    "a2a.v1.DeleteTaskPushNotificationConfigRequest.tenant",
    "a2a.v1.GetAgentCardRequest.tenant",
    "a2a.v1.GetTaskPushNotificationConfigRequest.tenant",
    "a2a.v1.GetTaskRequest.tenant",
    "a2a.v1.ListTaskPushNotificationConfigRequest.tenant",
    "a2a.v1.SendMessageRequest.tenant",
    "a2a.v1.TaskSubscriptionRequest.tenant",
}

EXTRAS_V1: set[str] = set()

# The extras' numbers: the ones that other servers already use for them.
EXTRA_NUMBERS = {
    "a2a.v1.AgentCapabilities.state_transition_history": 4,
    "a2a.v1.Message.reference_task_ids": 8,
    "a2a.v1.ListTasksRequest.context_id": 1,
    "a2a.v1.ListTasksRequest.status": 2,
    "a2a.v1.ListTasksRequest.page_size": 3,
    "a2a.v1.ListTasksRequest.page_token": 4,
    "a2a.v1.ListTasksRequest.history_length": 5,
    "a2a.v1.ListTasksRequest.last_updated_time": 6,
    "a2a.v1.ListTasksRequest.include_artifacts": 7,
    "a2a.v1.ListTasksRequest.tenant": 9,
    "a2a.v1.ListTasksResponse.tasks": 1,
    "a2a.v1.ListTasksResponse.next_page_token": 2,
    "a2a.v1.ListTasksResponse.total_size": 3,
    "a2a.v1.AgentInterface.tenant": 3,
    "a2a.v1.CancelTaskRequest.tenant": 2,
    "a2a.v1.CreateTaskPushNotificationConfigRequest.tenant": 4,
    "a2a.v1.DeleteTaskPushNotificationConfigRequest.tenant": 2,
    "a2a.v1.GetAgentCardRequest.tenant": 1,
    "a2a.v1.GetTaskPushNotificationConfigRequest.tenant": 2,
    "a2a.v1.GetTaskRequest.tenant": 3,
    "a2a.v1.ListTaskPushNotificationConfigRequest.tenant": 4,
    "a2a.v1.SendMessageRequest.tenant": 4,
    "a2a.v1.TaskSubscriptionRequest.tenant": 2,
}

AGENT = "projects/*/locations/*/collections/*/engines/*/assistants/*/agents/*"


def ours(module: ModuleType) -> Facts:
    return file_facts(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))


def published(name: str) -> Facts:
    facts: Facts = json.loads((REFERENCE / name).read_text("utf-8"))
    return facts


PACKAGES = [
    pytest.param(v03, "a2a_v1.json", EXTRAS_V03, id="a2a.v1"),
    pytest.param(v1, "lf_a2a_v1.json", EXTRAS_V1, id="lf.a2a.v1"),
]


@pytest.mark.parametrize(("module", "reference", "extras"), PACKAGES)
def test_our_descriptors_contain_everything_published_unchanged(
    module: ModuleType, reference: str, extras: set[str]
) -> None:
    mine = ours(module)

    assert {name: mine.get(name) for name in published(reference)} == published(reference)


@pytest.mark.parametrize(("module", "reference", "extras"), PACKAGES)
def test_unpublished_elements_are_exactly_the_listed_extras(
    module: ModuleType, reference: str, extras: set[str]
) -> None:
    assert ours(module).keys() - published(reference).keys() == extras


def test_the_extras_have_the_numbers_of_other_servers() -> None:
    mine = ours(v03)

    assert {name: mine[name]["number"] for name in EXTRAS_V03 if "number" in mine[name]} == EXTRA_NUMBERS


def routes(module: ModuleType, method: str) -> list[str]:
    rule = module.DESCRIPTOR.services_by_name["A2AService"].methods_by_name[method].GetOptions()
    http = rule.Extensions[annotations_pb2.http]
    return [
        f"{binding.WhichOneof('pattern').upper()} {getattr(binding, binding.WhichOneof('pattern'))}"
        for binding in (http, *http.additional_bindings)
    ]


@pytest.mark.parametrize("method", [method.name for method in v03.DESCRIPTOR.services_by_name["A2AService"].methods])
def test_every_v03_method_has_the_agent_base_and_both_resource_forms(method: str) -> None:
    paths = [route.split(" ", 1)[1] for route in routes(v03, method)]

    assert any(path.startswith("/{tenant=*}/v1/") for path in paths)
    assert any(path.startswith(f"/v1/{{tenant={AGENT}}}/a2a/v1/") for path in paths)
    assert any(path.startswith(f"/{{tenant={AGENT}}}/") for path in paths)


@pytest.mark.parametrize("method", [method.name for method in v1.DESCRIPTOR.services_by_name["A2AService"].methods])
def test_every_v1_method_has_the_tenant_and_the_resource_form(method: str) -> None:
    paths = [route.split(" ", 1)[1] for route in routes(v1, method)]

    assert any(path.startswith("/{tenant}/") for path in paths)
    assert any(path.startswith(f"/{{tenant={AGENT}}}/") for path in paths)


@pytest.mark.parametrize(
    ("method", "route"),
    [
        ("SendMessage", f"POST /v1/{{tenant={AGENT}}}/message:send"),
        ("SendStreamingMessage", f"POST /v1/{{tenant={AGENT}}}/message:stream"),
        ("ListTasks", f"GET /v1/{{tenant={AGENT}}}/tasks"),
        ("GetAgentCard", f"GET /v1/{{tenant={AGENT}}}/card"),
        ("GetTask", f"GET /v1/{{name={AGENT}/tasks/*}}"),
        ("CancelTask", f"POST /v1/{{name={AGENT}/tasks/*}}:cancel"),
        ("TaskSubscription", f"GET /v1/{{name={AGENT}/tasks/*}}:subscribe"),
        ("TaskSubscription", f"POST /v1/{{name={AGENT}/tasks/*}}:subscribe"),
        ("CreateTaskPushNotificationConfig", f"POST /v1/{{parent={AGENT}/tasks/*}}/pushNotificationConfigs"),
        ("ListTaskPushNotificationConfig", f"GET /v1/{{parent={AGENT}/tasks/*}}/pushNotificationConfigs"),
        ("GetTaskPushNotificationConfig", f"GET /v1/{{name={AGENT}/tasks/*/pushNotificationConfigs/*}}"),
        ("DeleteTaskPushNotificationConfig", f"DELETE /v1/{{name={AGENT}/tasks/*/pushNotificationConfigs/*}}"),
    ],
)
def test_an_agent_and_its_tasks_are_reachable_by_their_full_resource_names(method: str, route: str) -> None:
    assert route in routes(v03, method)


@pytest.mark.parametrize(("module", "method"), [(v03, "TaskSubscription"), (v1, "SubscribeToTask")])
def test_every_subscribe_route_takes_get_and_post(module: ModuleType, method: str) -> None:
    verbs: dict[str, set[str]] = {}
    for route in routes(module, method):
        verb, path = route.split(" ", 1)
        verbs.setdefault(path, set()).add(verb)

    assert set(map(frozenset, verbs.values())) == {frozenset({"GET", "POST"})}


@pytest.mark.parametrize("module", [v03, v1])
def test_no_route_is_declared_twice(module: ModuleType) -> None:
    every = [
        route
        for method in module.DESCRIPTOR.services_by_name["A2AService"].methods
        for route in routes(module, method.name)
    ]

    assert len(every) == len(set(every))


def test_the_generated_code_does_not_use_the_default_pool() -> None:
    program = """
import google.protobuf.descriptor_pool as pool
from dragoman_pb.a2a.v1 import a2a_pb2 as v03
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1, a2a_pb2_grpc
default = pool.Default()
for module in (v03, v1):
    assert module.DESCRIPTOR.pool is not default
    for name in (module.DESCRIPTOR.package + ".Task", module.DESCRIPTOR.package + ".A2AService"):
        try:
            default.FindFileContainingSymbol(name)
        except KeyError:
            continue
        raise SystemExit(name + " is in the default pool")
"""
    # A separate process, because other tests may have added the same names to the pool.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
