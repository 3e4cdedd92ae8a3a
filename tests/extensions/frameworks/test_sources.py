"""Parsing of the settings of executors, and their agent ids."""

from __future__ import annotations

import pytest

from dragoman.extensions.frameworks.process import passed_environment
from dragoman.extensions.frameworks.sources import (
    ExecutorSpec,
    executor_id,
    is_object_name,
    parse_executors,
    parse_variables,
)


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


@pytest.mark.parametrize(
    ("value", "names"),
    [("", ()), ("A, B_*,*", ("A", "B_*", "*")), (["A,b", "C1"], ("A", "b", "C1"))],
)
def test_variables_are_names_with_a_star_at_the_end(value: str | list[str], names: tuple[str, ...]) -> None:
    assert parse_variables(value) == names


@pytest.mark.parametrize("value", ["A=1", "1A", "A B", "*_KEY", "A**", "a-b"])
def test_other_names_of_variables_are_rejected(value: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an environment variable"):
        parse_variables(value)


@pytest.mark.parametrize("value", ["DRAGOMAN_TOKEN", "A,dragoman_*"])
def test_variables_that_are_never_passed_on_are_rejected(value: str) -> None:
    with pytest.raises(ValueError, match="is never passed on"):
        parse_variables(value)


def test_an_executor_gets_what_every_program_needs_and_no_password_of_the_server() -> None:
    environment = {
        **{"PATH": "p", "HOME": "h", "LC_ALL": "C", "PYTHONPATH": "x", "https_proxy": "y", "SSL_CERT_FILE": "z"},
        **{"PGPASSWORD": "1", "AWS_SECRET_ACCESS_KEY": "2", "DRAGOMAN_STORE": "3", "OPENAI_API_KEY": "4"},
    }
    usual = {"PATH", "HOME", "LC_ALL", "PYTHONPATH", "https_proxy", "SSL_CERT_FILE"}
    assert passed_environment(environment, ()).keys() == usual
    assert passed_environment(environment, ("OPENAI_*",)).keys() == usual | {"OPENAI_API_KEY"}
    assert passed_environment(environment, ("*",)).keys() == environment.keys() - {"DRAGOMAN_STORE"}
    assert "DRAGOMAN_STORE" not in passed_environment(environment, ("DRAGOMAN_*",))
    assert passed_environment({"dragoman_token": "5"}, ("*",)) == {}  # settings are read in any case
