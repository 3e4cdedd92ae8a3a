"""What schemathesis is told besides the description: tasks that exist, words that the playground knows, and what
counts as a failure. It loads this file by the variable SCHEMATHESIS_HOOKS.

Without aim nearly every request names a task that is not there. Half of the requests are turned to one that is; which
half, and which task, is decided by the request itself, so that a failure can be replayed.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any, Final

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response

RESOURCE: Final = {
    "project": "p",
    "location": "l",
    "collection": "c",
    "engine": "e",
    "assistant": "a",
    "agent": "playground",
}
ENDED: Final = ("echo hello", "stream 3", "data", "fail", "reject")
OPEN: Final = ("ask", "auth", "sleep 3600")
"""Messages whose tasks end at once, and those whose tasks stay."""
TASKS: Final[dict[str, list[str]]] = json.loads(os.environ.get("FUZZ_TASKS", "{}"))
"""Ids of the tasks that they made, in this order: for callers without a scope, and for those of RESOURCE."""

COMMANDS: Final = ("ask", "auth", "fail", "reject", "reply yes", "file", "data", "stream 3", "stream x", "sleep 0.01")
REFUSED: Final = ("UNSUPPORTED_OPERATION",)
"""What 0.3 answers with 501, as its official server does."""
UNUSED_ADDRESS: Final = "http://127.0.0.1:9/"
"""Where webhooks are: nothing listens there, and no stranger is called."""

TRACES: Final = ("Traceback (most recent call last)", 'File "/', "site-packages")


def _choice(case: Case[Any]) -> int:
    parts = (case.operation.label, case.path_parameters, case.query, case.body)
    return zlib.crc32(repr(parts).encode(errors="replace"))


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Turns half of the requests to something that is there."""
    choice = _choice(case)
    _use_unused_address(case.body, aimed=choice % 2 == 0)
    if choice % 2:
        return
    names = case.path_parameters
    if "project" in names:
        names.update(RESOURCE)
    elif "tenant" in names:
        names["tenant"] = "playground"
    tasks = TASKS["resource" if "project" in names else "default"]
    if case.operation.label.endswith(":subscribe"):
        tasks = tasks[: len(ENDED)]  # the stream of an open task is silent for longer than the fuzzer has patience
    if "task" in names:
        names["task"] = tasks[choice // 64 % len(tasks)]
    if choice % 3 == 0:
        _command(case.body, COMMANDS[choice // 6 % len(COMMANDS)])


def _use_unused_address(body: Any, *, aimed: bool) -> None:
    """Puts NOBODY in the place of every webhook that could be called, and of any other if it is `aimed`."""
    for value in body.values() if isinstance(body, dict) else body if isinstance(body, list) else ():
        _use_unused_address(value, aimed=aimed)
    if isinstance(body, dict) and isinstance(body.get("url"), str) and (aimed or "://" in body["url"]):
        body["url"] = UNUSED_ADDRESS


def _command(body: Any, text: str) -> None:
    """Puts a command in the place of a message's first text."""
    message = body.get("message") if isinstance(body, dict) else None
    parts = message.get("parts", message.get("content")) if isinstance(message, dict) else None
    if isinstance(parts, list) and parts and isinstance(parts[0], dict) and isinstance(parts[0].get("text"), str):
        parts[0]["text"] = text


@schemathesis.check
def no_server_error(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """Nothing that a stranger sends is our fault."""
    if response.status_code < 500:
        return
    if response.status_code == 501:
        reason = response.json()["error"]["details"][0]["reason"]
        if reason in REFUSED:
            return
    raise AssertionError(f"answered with {response.status_code}: {response.text[:500]}")


@schemathesis.check
def no_trace(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """No answer shows where in the code it comes from."""
    text = response.content.decode(errors="replace")
    for trace in TRACES:
        # Agents give back what they are sent.
        if trace in text and trace not in repr(case.body):
            raise AssertionError(f"the answer holds {trace!r}: {text[:500]}")
