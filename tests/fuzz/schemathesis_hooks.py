"""Hooks and checks for schemathesis: existing task ids, commands of the playground, and failure conditions.

schemathesis loads this file through the variable SCHEMATHESIS_HOOKS. Generated requests nearly always name unknown
tasks, so half of them are changed to an existing one. A hash of the request decides which half and which task, so that
a failure can be replayed.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import Any, Final

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from tests.fuzz.request_reading import described, fits

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
"""Messages whose tasks end at once, and those whose tasks stay open."""
TASKS: Final[dict[str, list[str]]] = json.loads(os.environ.get("FUZZ_TASKS", "{}"))
"""Ids of the tasks created with them, in this order: in the default scope, and under RESOURCE."""

COMMANDS: Final = ("ask", "auth", "fail", "reject", "reply yes", "file", "data", "stream 3", "stream x", "sleep 0.01")
REFUSED: Final = ("UNSUPPORTED_OPERATION",)
"""Reasons that 0.3 reports with 501, as the official server does."""
UNUSED_ADDRESS: Final = "http://127.0.0.1:65535/"
"""The webhook URL of all requests: nothing listens there, so no other host is called. Ports of other
protocols, such as 9, are refused."""

EXISTING_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TRACES: Final = ("Traceback (most recent call last)", 'File "/', "site-packages")


def _choice(case: Case[Any]) -> int:
    parts = (case.operation.label, case.path_parameters, case.query, case.body)
    return zlib.crc32(repr(parts).encode(errors="replace"))


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Changes half of the requests to existing tasks, and streams to ones that end soon."""
    _use_existing_task(case)
    if case.operation.label.endswith(":stream"):
        _end_soon(case.body)


def _use_existing_task(case: Case[Any]) -> None:
    choice, names = _choice(case), case.path_parameters
    for name, value in names.items():
        if value == "":  # taken from a request without an id: the path would be another
            names[name] = "none"
    _use_unused_address(case.body, aimed=choice % 2 == 0)
    # schemathesis takes ids from earlier responses; the task of such an id may be open.
    follows_task = case.operation.label.endswith(":subscribe") and EXISTING_ID.fullmatch(str(names.get("task", "")))
    if choice % 2 and not follows_task:
        return
    if "project" in names:
        names.update(RESOURCE)
    elif "tenant" in names:
        names["tenant"] = "playground"
    tasks = TASKS["resource" if "project" in names else "default"]
    if case.operation.label.endswith(":subscribe"):
        tasks = tasks[: len(ENDED)]  # the stream of an open task is silent for longer than the fuzzer's timeout
    if "task" in names:
        names["task"] = tasks[choice // 64 % len(tasks)]
    if choice % 3 == 0:
        _command(case.body, COMMANDS[choice // 6 % len(COMMANDS)])


def _end_soon(body: Any) -> None:
    """Replaces commands whose stream may be silent for longer than the fuzzer's timeout: Google's form does not end it
    while a task waits for authentication. The generator draws texts from the constants of this file, too."""
    for key, value in body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ():
        if isinstance(value, str) and value.split()[:1] in (["auth"], ["sleep"]):
            body[key] = "echo"
        _end_soon(value)


def _use_unused_address(body: Any, *, aimed: bool) -> None:
    """Replaces every callable webhook URL by UNUSED_ADDRESS, and all others if `aimed`."""
    for value in body.values() if isinstance(body, dict) else body if isinstance(body, list) else ():
        _use_unused_address(value, aimed=aimed)
    if isinstance(body, dict) and isinstance(body.get("url"), str) and (aimed or "://" in body["url"]):
        body["url"] = UNUSED_ADDRESS


def _command(body: Any, text: str) -> None:
    """Replaces the first text of a message by a command."""
    message = body.get("message") if isinstance(body, dict) else None
    parts = message.get("parts", message.get("content")) if isinstance(message, dict) else None
    if isinstance(parts, list) and parts and isinstance(parts[0], dict) and isinstance(parts[0].get("text"), str):
        parts[0]["text"] = text


@schemathesis.check
def no_server_error(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """No request causes a server error."""
    if response.status_code < 500:
        return
    if response.status_code == 501:
        reason = response.json()["error"]["details"][0]["reason"]
        if reason in REFUSED:
            return
    raise AssertionError(f"status {response.status_code}: {response.text[:500]}")


@schemathesis.check
def no_trace(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """No response contains a stack trace."""
    text = response.content.decode(errors="replace")
    for trace in TRACES:
        # Agents echo their input.
        if trace in text and trace not in repr(case.body):
            raise AssertionError(f"the response contains {trace!r}: {text[:500]}")


# Whether the document says which requests are valid -----------------------------------------------------------------

REJECTED_THOUGH_VALID: Final[dict[str, str]] = {
    "the task has ended|cannot be canceled|accepts no messages": "the task's state decides",
    "This operation is not supported": "the agent or the server has no such capability",
    "must lie between|has more than .* levels": "JSON of any kind has bounds that no schema can state",
    "must be valid base64": "contentEncoding states no rule (JSON Schema 2020-12, validation, section 8)",
    "was not issued by this server|is not a token of this server": "tokens of pages are opaque",
    "fields: ": "a mask names fields of the response",
    "is given .* times|is also given as|as the path says|differs from|is not the context of": "one value, given twice",
    "is not a field|is not a parameter": "unknown keys are refused on Google's paths",
    "url: ": "the operator decides which hosts are called",
    "must be printable ASCII|authentication[.]scheme": "values that are sent in headers (RFC 9110)",
    "at most 32 push configurations": "the task's configurations decide, of which earlier requests made some",
    "mediaType": "the agent's card has the media types that it takes",
}
"""Texts of errors, and why a request that fits the schema may get one."""


def _reads_two_packages(case: Case[Any]) -> bool:
    """Whether a path serves 0.3 and 1.0: the header decides which of two schemas a body has to fit."""
    return '"anyOf"' in json.dumps(case.operation.definition.raw.get("requestBody", {}))


@schemathesis.check
def valid_requests_are_accepted(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """A request that fits the document is not refused, but for REJECTED_THOUGH_VALID."""
    if response.status_code in (400, 422) and not _reads_two_packages(case):
        error = response.json().get("error", {})
        if not any(re.search(pattern, str(error.get("message", ""))) for pattern in REJECTED_THOUGH_VALID):
            positive_data_acceptance(context, response, case)


@schemathesis.check
def invalid_requests_are_rejected(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """A request that does not fit the document, as its description has it read, is refused."""
    operation = case.operation
    if response.status_code < 300 and not fits(
        operation.schema.raw_schema, operation.path, operation.method, described(case)
    ):
        negative_data_rejection(context, response, case)
