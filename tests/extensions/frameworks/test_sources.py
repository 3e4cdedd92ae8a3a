"""Parsing of the settings of executors, and their agent ids."""

from __future__ import annotations

import pytest

from dragoman.extensions.frameworks.sources import ExecutorSpec, executor_id, is_object_name, parse_executors


@pytest.mark.parametrize(
    ("app", "is_object"),
    [
        ("agents.py:graph", True),
        ("company.agents:Desk.inner", True),
        ("agents.py", False),
        ("company.agents", False),
        (":graph", False),
        ("agents.py:", False),
        ("agents.py:a-b", False),
        ("", False),
    ],
)
def test_an_app_with_a_name_after_a_colon_is_an_object(app: str, is_object: bool) -> None:
    assert is_object_name(app) is is_object


@pytest.mark.parametrize(
    ("text", "id", "target"),
    [
        ("app:HelloWorldAgentExecutor", "hello-world", "app:HelloWorldAgentExecutor"),
        ("a.b.c:make_agent", "make-agent", "a.b.c:make_agent"),
        ("a.billing_desk:Executor", "billing-desk", "a.billing_desk:Executor"),
        ("some/folder/desk.py:Worker", "desk", "some/folder/desk.py:Worker"),
        ("app:HTTPWorker", "http", "app:HTTPWorker"),
        ("app:Desk.inner", "desk-inner", "app:Desk.inner"),
        ("desk=app:Executor", "desk", "app:Executor"),
        (" desk=app:Executor ", "desk", "app:Executor"),
    ],
)
def test_an_executor_has_the_given_id_or_one_from_its_name(text: str, id: str, target: str) -> None:
    assert ExecutorSpec.parse(text) == ExecutorSpec(id, target)


def test_a_name_that_is_only_a_suffix_gives_the_module_name() -> None:
    assert executor_id("app", "AgentExecutor") == "app"


@pytest.mark.parametrize("text", ["", "app", "app:", ":Class", "app:a-b", "app:a b", "=app:"])
def test_an_invalid_target_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not \[ID=\]MODULE:NAME"):
        ExecutorSpec.parse(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Desk=app:X", "must be a lower-case letter"),
        ("tasks=app:X", "is taken by a route of the server; choose one with"),
        ("app:_", "must be a lower-case letter"),
    ],
)
def test_an_invalid_id_is_rejected(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ExecutorSpec.parse(text)


def test_several_executors_are_in_a_list_or_separated_by_commas() -> None:
    both = (ExecutorSpec("a", "x:A"), ExecutorSpec("b", "y:B"))
    assert (
        parse_executors("x:A,y:B")
        == parse_executors(["x:A", "y:B"])
        == parse_executors(["x:A,y:B"])
        == parse_executors(both)
        == both
    )
    assert parse_executors("") == parse_executors(()) == ()


def test_duplicate_executor_ids_are_rejected() -> None:
    with pytest.raises(ValueError, match='"a" is the id of two executors'):
        parse_executors("x:A,y:A")


def test_a_list_of_other_values_is_rejected() -> None:
    with pytest.raises(ValueError, match="must be a list of"):
        parse_executors({"a": "x:A"})
