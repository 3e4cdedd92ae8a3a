"""Requests that fit the OpenAPI document as the server reads it, and those that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.fuzz.request_reading import fits

DOCUMENT: Final = json.loads((Path(__file__).parents[2] / "gen/openapi/dragoman.openapi.json").read_text())
AGENT: Final = "/projects/{project}/locations/{location}/collections/{collection}/engines/{engine}"
GOOGLE: Final = f"{AGENT}/assistants/{{assistant}}/agents/{{agent}}/tasks"
NAMES: Final = dict.fromkeys(("project", "location", "collection", "engine", "assistant"), "x") | {"agent": "lab"}
V1: Final = {"A2A-Version": "1.0"}


def listed(path: str = "/tasks", headers: dict[str, str] | None = None, **query: Any) -> bool:
    names = NAMES if path == GOOGLE else {}
    return fits(DOCUMENT, path, "GET", {"path": names, "query": query, "headers": headers or {}})


def sent(path: str = "/message:send", **message: Any) -> bool:
    content = {"parts": [{"text": "hello"}]} if path == "/message:send" else {"content": [{"text": "hello"}]}
    body = {"message": {"messageId": "m", "role": "ROLE_USER", **content, **message}}
    return fits(DOCUMENT, path, "POST", {"body": body})


@pytest.mark.parametrize(
    "query",
    [
        {"status": ""},
        {"status": "2"},
        {"status": "TASK_STATE_WORKING"},
        {"statusTimestampAfter": ""},
        {"pageSize": "7"},
        {"pageSize": "7.0"},
        {"includeArtifacts": "true"},
        {"unknown": "x"},
        {"pageSize": ["7", "7"]},
    ],
)
def test_query_parameters_are_texts_of_numbers_and_empty_ones_count_as_absent(query: dict[str, Any]) -> None:
    assert listed(**query)


@pytest.mark.parametrize(
    "query",
    [
        {"status": "WORKING"},
        {"status": "1.5"},
        {"statusTimestampAfter": "0"},
        {"pageSize": "0"},
        {"pageSize": "101"},
        {"pageSize": "7.5"},
        {"pageSize": ["7", "8"]},
        {"includeArtifacts": "2"},
    ],
)
def test_other_texts_do_not_fit(query: dict[str, Any]) -> None:
    assert not listed(**query)


def test_googles_paths_take_any_size_of_a_page_and_ignore_their_parameters_in_1_0() -> None:
    assert listed(GOOGLE, pageSize="101")
    assert not listed(GOOGLE, pageSize="-1")
    assert not listed(GOOGLE, alt="xml")
    assert listed(GOOGLE, V1, alt="xml")
    assert not listed(GOOGLE, {"A2A-Version": "7"})
    assert listed(GOOGLE, {"A2A-Version": ""})


@pytest.mark.parametrize(
    "message",
    [{"metadata": None}, {"role": 1}, {"extensions": None, "unknown": 7}, {"parts": [{"data": None}]}],
)
def test_null_counts_as_absent_and_a_number_stands_for_the_name_of_an_enum(message: dict[str, Any]) -> None:
    assert sent(**message)


@pytest.mark.parametrize(
    "message",
    [
        {"messageId": None},
        {"messageId": ""},
        {"messageId": 7},
        {"role": True},
        {"role": "7"},
        {"metadata": 7},
        {"metadata": ""},
        {"parts": []},
        {"parts": [{"text": 7}]},
        {"parts": [{"text": "a", "url": "b"}]},
        {"contextId": 0},
        {"extensions": [7]},
        {"extensions": ""},
    ],
)
def test_other_numbers_and_empty_values_do_not_fit(message: dict[str, Any]) -> None:
    assert not sent(**message)


def test_a_number_may_be_a_text_within_its_bounds() -> None:
    def configured(length: object) -> bool:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        body = {"message": message, "configuration": {"historyLength": length}}
        return fits(DOCUMENT, "/message:send", "POST", {"body": body})

    assert all(map(configured, (1, "1", "1.0", None)))
    assert not any(map(configured, (-1, "-1", "1.5", "", "one", True, [1])))


def test_a_query_may_name_the_configuration_whose_id_the_body_has_too() -> None:
    def configured(id: object, **query: str) -> bool:
        body = {"pushNotificationConfig": {"id": id, "url": "http://x"}}
        path = {"task": "t"}
        return fits(
            DOCUMENT, "/v1/tasks/{task}/pushNotificationConfigs", "POST", {"path": path, "query": query, "body": body}
        )

    assert configured("a")
    assert not configured("a/b")
    assert configured("a/b", configId="c")
