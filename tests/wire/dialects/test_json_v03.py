"""JSON of 0.2 and 0.3: unions by kind, `blocking`, push configurations, and the last event of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.wire.dialects import json_v01, json_v03
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({"blocking": "yes"}, "configuration.blocking"),
        ({"acceptedOutputModes": "x"}, "configuration.acceptedOutputModes"),
        ({"historyLength": "x"}, "configuration.historyLength"),
        ({"pushNotificationConfig": {"authentication": {"schemes": "x"}}}, ".authentication.schemes"),
    ],
)
def test_an_invalid_configuration_is_rejected_with_its_field(configuration: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        protojson.compile(pb.SendMessageRequest, json_v03.JSON_V03).decode({"configuration": configuration})
    assert caught.value.violations[0].field.endswith(field)


@pytest.mark.parametrize(
    ("value", "member"),
    [
        ({"kind": "task"}, "task"),
        ({"kind": "message", "id": "t"}, "message"),
        ({"kind": "status-update", "artifact": {}}, "statusUpdate"),
        ({"kind": "artifact-update"}, "artifactUpdate"),
        ({"artifact": {}, "parts": []}, "artifactUpdate"),
        ({"parts": [], "id": "t"}, "message"),
        ({"id": "t", "status": {}}, "task"),
        ({"kind": "poem", "taskId": "t", "status": {}}, "statusUpdate"),
    ],
)
def test_a_union_is_read_by_its_kind_or_by_its_keys(value: dict[str, Any], member: str) -> None:
    assert json_v03.union_member(value) == member


@pytest.mark.parametrize("returns_immediately", [False, True])
def test_blocking_is_always_written(returns_immediately: bool) -> None:
    codec = protojson.compile(pb.SendMessageConfiguration, json_v03.JSON_V03)
    configuration = pb.SendMessageConfiguration(return_immediately=returns_immediately)
    assert codec.to_dict(configuration) == {"blocking": not returns_immediately}
    assert codec.decode({"blocking": not returns_immediately}) == configuration


@pytest.mark.parametrize(
    ("params", "open_"),
    [
        (None, True),
        ({"configuration": None}, True),
        ({"configuration": {"blocking": None}}, True),
        ({"configuration": {"blocking": False}}, False),
        ({"configuration": {"returnImmediately": True}}, False),
        ({"configuration": {"return_immediately": False}}, False),
    ],
)
def test_a_send_that_does_not_say_whether_it_waits_is_recognized(params: object, open_: bool) -> None:
    assert json_v03.leaves_blocking_open(params) is open_


@pytest.mark.parametrize("key", ["pushNotificationConfig", "push_notification_config", "pushNotification"])
def test_a_send_has_its_push_configuration_under_any_of_three_keys(key: str) -> None:
    codec = protojson.compile(pb.SendMessageConfiguration, json_v03.JSON_V03)
    push = {"url": "https://x", "authentication": {"schemes": ["Basic", "Bearer"], "credentials": "c"}}
    read = codec.decode({key: push})
    assert read.task_push_notification_config.authentication.scheme == "Basic, Bearer"
    assert codec.to_dict(read) == {"blocking": True, "pushNotificationConfig": push}


@pytest.mark.parametrize(
    ("params", "config"),
    [
        ({"id": "t"}, "/"),
        ({"id": "t", "pushNotificationConfigId": ""}, "/"),
        ({"id": "t", "pushNotificationConfigId": "c"}, "c"),
        ({"taskId": "t", "id": "other", "pushNotificationConfigId": "c"}, "c"),
    ],
)
def test_a_get_without_a_configuration_id_reads_the_oldest(params: dict[str, Any], config: str) -> None:
    codec = protojson.compile(pb.GetTaskPushNotificationConfigRequest, json_v03.JSON_V03)
    assert codec.decode(params) == pb.GetTaskPushNotificationConfigRequest(task_id="t", id=config)


@pytest.mark.parametrize("dialect", [json_v03.JSON_V03, json_v01.JSON_V01], ids=["0.3", "0.1"])
@pytest.mark.parametrize("params", [{}, {"id": ""}, {"id": None}])
def test_a_task_that_is_not_named_is_named_as_the_caller_does(
    dialect: protojson.JsonDialect, params: dict[str, Any]
) -> None:
    codec = protojson.compile(pb.GetTaskPushNotificationConfigRequest, dialect)
    with pytest.raises(InvalidParams, match=r"^id: is required$"):
        codec.decode(dict(params))
    listing = protojson.compile(pb.ListTaskPushNotificationConfigsRequest, json_v03.JSON_V03)
    with pytest.raises(InvalidParams, match=r"^id: is required$"):
        listing.decode(dict(params))


@pytest.mark.parametrize("id", [None, ""])
def test_a_delete_without_a_configuration_id_is_rejected(id: str | None) -> None:
    codec = protojson.compile(pb.DeleteTaskPushNotificationConfigRequest, json_v03.JSON_V03)
    with pytest.raises(InvalidParams, match="pushNotificationConfigId: is required"):
        codec.decode({"id": "t", "pushNotificationConfigId": id})


def test_configurations_are_listed_for_0_3_and_fasta2a_0_5_together() -> None:
    configs = [
        pb.TaskPushNotificationConfig(id="a", task_id="t", url="https://x"),
        pb.TaskPushNotificationConfig(
            id="b",
            task_id="t",
            url="https://y",
            authentication=pb.AuthenticationInfo(scheme="Basic, Bearer", credentials="c"),
        ),
    ]
    authentication = {"schemes": ["Basic", "Bearer"], "credentials": "c", "type": "http", "scheme": "Basic"}
    assert json_v03.write_push_list(pb.ListTaskPushNotificationConfigsResponse(configs=configs)) == [
        {"id": "t", "taskId": "t", "pushNotificationConfig": {"id": "a", "url": "https://x"}},
        {
            "id": "t",
            "taskId": "t",
            "pushNotificationConfig": {"id": "b", "url": "https://y", "authentication": authentication},
        },
    ]


@pytest.mark.parametrize(
    ("state", "is_last", "final"),
    [
        (pb.TASK_STATE_WORKING, False, False),
        (pb.TASK_STATE_WORKING, True, True),
        (pb.TASK_STATE_COMPLETED, False, True),
    ],
)
def test_a_status_update_is_final_at_the_end_of_the_stream_or_the_task(
    state: pb.TaskState, is_last: bool, final: bool
) -> None:
    update = pb.TaskStatusUpdateEvent(task_id="t", context_id="c", status=pb.TaskStatus(state=state))
    written = json_v03.write_event(pb.StreamResponse(status_update=update), is_last)
    assert (written["kind"], written["final"]) == ("status-update", final)


def test_only_status_updates_are_final() -> None:
    event = pb.StreamResponse(task=pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_COMPLETED)))
    written = json_v03.write_event(event, True)
    assert written["kind"] == "task"
    assert "final" not in written
