"""The agent and the scope of a task are found; unknown agents are named."""

from __future__ import annotations

import json
import urllib.request

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server

pytestmark = pytest.mark.long

NOT_THERE = "00000000-0000-7000-8000-000000000000"
SCOPE = "projects/p/locations/l/collections/c/engines/e/assistants/a"


def test_tasks_of_every_scope_are_listed_and_found(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    context = ("--context", "of-scopes", *at)
    here = dragoman("send", "hi", "--agent", "quote", "--no-wait", *context).out.strip()
    there = dragoman("send", "hi", "--agent", "quote", "--scope", SCOPE, "--no-wait", *context).out.strip()
    dragoman("watch", there, *at)
    lines = [line.split() for line in dragoman("list", *context).out.splitlines()]
    assert {(line[3], line[1]) for line in lines} == {(here, "quote"), (there, f"{SCOPE}/agents/quote")}
    for scope, task in (("default", here), (SCOPE, there)):
        (line,) = dragoman("list", "--scope", scope, *context).out.splitlines()
        assert line.split()[3] == task
        (json_line,) = dragoman("list", "--scope", scope, "--json", *context).out.splitlines()
        listed = json.loads(json_line)
        assert (listed["id"], listed["agent"], listed["scope"]) == (task, "quote", scope)
        for narrowed in ((), ("--scope", scope), ("--agent", "quote")):
            shown = dragoman("get", task, *narrowed, *at)
            assert shown.code == 0
            assert f"\nscope    {scope}\n" in shown.out
            explained = dragoman("explain", task, *narrowed, *at).out
            assert f"\nscope        {scope}\n" in explained
    assert dragoman("list", "--scope", SCOPE, "--agent", "files", *context).err == "no tasks\n"


def test_a_task_in_another_scope_than_the_named_one_is_missing(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    task = dragoman("send", "hi", "--agent", "quote", "--scope", SCOPE, "--no-wait", *at).out.strip()
    for command in ("get", "watch", "cancel"):
        missing = dragoman(command, task, "--agent", "quote", "--scope", "default", *at)
        assert (missing.code, "(TASK_NOT_FOUND)" in missing.err) == (4, True)
        unnamed = dragoman(command, NOT_THERE, "--scope", SCOPE, *at)
        assert (unnamed.code, unnamed.out) == (2, "")
        assert "name the agent in this scope: --agent NAME" in unnamed.err
    assert dragoman("explain", task, "--scope", "default", *at).code == 4
    assert dragoman("send", "hi", "--scope", SCOPE).code == 2


def test_follow_up_commands_name_the_scope(dragoman: Run, served: Server) -> None:
    question = dragoman("send", "ask", "--agent", "still", "--scope", SCOPE, "--server", served.grpc)
    assert f"--agent still --scope {SCOPE}" in question.err


def test_an_id_of_several_tasks_has_to_be_narrowed(dragoman: Run, served: Server) -> None:
    for agent in ("quote", "still"):
        params = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params}
        request = urllib.request.Request(f"{served.http}/{agent}", json.dumps(body).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["result"]["id"] == "mine"
    several = dragoman("get", "mine", "--server", served.grpc)
    assert (several.code, several.out) == (2, "")
    assert "--agent quote --scope default; --agent still --scope default" in several.err
    assert "\nstate    COMPLETED\n" in dragoman("get", "mine", "--agent", "still", "--server", served.grpc).out


def test_a_message_to_a_task_needs_no_agent(dragoman: Run, served: Server) -> None:
    at = ("--server", served.grpc)
    for scope in ((), ("--scope", SCOPE)):
        task = dragoman("send", "ask", "--agent", "still", *scope, "--json", *at).out
        id = json.loads(task)["task"]["id"]
        answered = dragoman("send", "--task", id, "forty-two", *at)
        assert answered.code == 0, answered


@pytest.mark.parametrize("binding", ["grpc", "http"])
def test_a_similar_agent_is_proposed(dragoman: Run, served: Server, binding: str) -> None:
    at = ("--server", getattr(served, binding))
    similar = dragoman("send", "x", "--agent", "quotes", *at)
    assert (similar.code, similar.out) == (4, "")
    assert 'error: no agent "quotes"; did you mean quote? (AGENT_NOT_FOUND)\n' in similar.err
    other = dragoman("get", NOT_THERE, "--agent", "nobody_here", *at)
    assert other.code == 4
    assert 'no agent "nobody_here"; use one of ' in other.err
    listed = dragoman("list", "--agent", "quotes", *at)
    assert (listed.code, listed.out) == (4, "")
    assert 'error: no agent "quotes"; did you mean quote? (AGENT_NOT_FOUND)\n' in listed.err
