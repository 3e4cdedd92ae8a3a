"""Elicitations as questions of a task, and messages as their answers.

A form is a question with a data part `{"schema": ...}`, which the console shows as a form. A URL to visit is a status
AUTH_REQUIRED with that URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from dragoman.agents.values import NewId, data_part, message_of, value_to_json
from dragoman.core.schemas import compile_schema
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.extensions.mcp.servers.readers import read_model, read_object
from dragoman.extensions.mcp.servers.tool_choice import only_text_property
from dragoman.ports import TurnContext
from dragoman.wire.json.remote_values import exact_integers
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_REFUSALS: Final[Mapping[str, str]] = {"decline": "decline", "cancel": "cancel"}
"""Texts that refuse to answer, and the action they stand for."""


class InvalidAnswer(Exception):
    """A message that does not answer the question. The text says what would."""


class UnsupportedInput(Exception):
    """A request of the server that an A2A caller cannot answer."""


def question_of(request: Mapping[str, Any]) -> types.ElicitRequestParams:
    """The question in an input request, in its JSON form. Raises UnsupportedInput, ProtocolError."""
    method = request.get("method")
    if method != "elicitation/create":
        raise UnsupportedInput(f'the MCP server asks for "{method}", which is not supported')
    params = request.get("params") or {}
    if params.get("mode", "form") == "url":
        return read_model(types.ElicitRequestURLParams, params)
    return read_model(types.ElicitRequestFormParams, params)


def question_status(
    params: types.ElicitRequestParams, context: TurnContext, new_id: NewId, *, problem: str = ""
) -> StatusChange:
    """The status that asks a question. problem: why the last answer was not one."""
    text = f"{problem}\n{params.message}" if problem else params.message
    parts = [pb.Part(text=text)]
    if isinstance(params, types.ElicitRequestURLParams):
        parts.append(pb.Part(url=params.url))
        state = states.AUTH_REQUIRED
    else:
        parts.append(data_part({"schema": exact_integers(params.requested_schema)}))
        state = states.INPUT_REQUIRED
    message = message_of(parts, new_id, context)
    return StatusChange(state, message.SerializeToString())


def read_answer(message: pb.Message, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The answer in a message. Raises InvalidAnswer.

    A form takes a data part, a JSON object as text, or, if it has one text property, a text. A URL takes any message.
    The texts `decline` and `cancel` are these actions.
    """
    text = "\n".join(part.text for part in message.parts if part.HasField("text")).strip()
    data = [value_to_json(part.data) for part in message.parts if part.HasField("data")]
    if not data and (action := _REFUSALS.get(text.lower())):
        return types.ElicitResult(action="decline" if action == "decline" else "cancel")
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    content = _content(text, data, params.requested_schema)
    if problem := _problem(content, params.requested_schema):
        raise InvalidAnswer(f"The answer does not fit: {problem}.")
    return types.ElicitResult(action="accept", content=content)


def _content(text: str, data: list[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    if len(data) == 1 and isinstance(data[0], dict):
        return data[0]
    name = only_text_property(schema)
    if not data and isinstance(value := read_object(text), dict):
        return value
    if not data and text and name is not None:
        return {name: text}
    if not schema.get("properties"):
        return {}
    form = "an object as a data part that matches the schema"
    raise InvalidAnswer(f"Please answer with {form}{', or a text' if name else ''}; or with decline or cancel.")


def _problem(content: dict[str, Any], schema: Mapping[str, Any]) -> str:
    """Why a content does not match a schema; empty if it does, or if the schema cannot be used."""
    check = compile_schema(schema)
    return "" if check.invalid else check.find_problem(content)
