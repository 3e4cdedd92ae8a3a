"""Agents as tools: names, definitions, and the message of a call's arguments (2026-07-28 server/tools)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.core.cards.skill_schemas import NO_SCHEMAS, SkillSchemas, schemas_of, schemas_of_skill
from dragoman.core.errors import InvalidParams
from dragoman.core.schemas import FindProblem, compile_schema
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

GET_TASK_TOOL: Final = "get_task"
ANSWER_TASK_TOOL: Final = "answer_task"
CANCEL_TASK_TOOL: Final = "cancel_task"

MAX_TOOL_NAME_LENGTH: Final = 64
"""Names that every model API accepts; MCP allows 128 characters."""

SKILL_METADATA: Final = "skill"
"""The key of a message's metadata that names the called skill."""

_OTHER_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_TEXT_MODES: Final = ("text/plain", "text/*", "text", "*/*", "*")
_DATA_MODES: Final = ("application/json", "application/*", "*/*", "*")

_TASK_PROPERTY: Final = {"type": "string", "description": "The task, as its call named it: AGENT/ID"}

_FILE_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "File name"},
        "mimeType": {"type": "string", "description": "Media type, such as text/csv"},
        "data": {"type": "string", "description": "Content in base64; or pass uri"},
        "uri": {"type": "string", "description": "URL of the content; or pass data"},
    },
    "additionalProperties": False,
}

_SEND_REQUESTS: Final = protojson.compile(pb.SendMessageRequest, json_proto.PROTOJSON_V1)


class InvalidArguments(InvalidParams):
    """The arguments of a call do not match the tool's input schema. Answered as the result of the tool."""


@dataclass(frozen=True, slots=True)
class TaskTool:
    """A tool for a task that an earlier call began, for clients without task handles or elicitation."""

    name: str
    definition: Mapping[str, Any]


def _task_tool(name: str, title: str, description: str, hints: Mapping[str, bool], **properties: Any) -> TaskTool:
    schema = {
        "type": "object",
        "properties": {"task": _TASK_PROPERTY, **properties},
        "required": ["task", *properties],
        "additionalProperties": False,
    }
    annotations = {"title": title, **hints, "openWorldHint": False}
    return TaskTool(
        name,
        {
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": schema,
            "annotations": annotations,
        },
    )


TASK_TOOLS: Final = {
    tool.name: tool
    for tool in (
        _task_tool(
            GET_TASK_TOOL,
            "Get a task",
            "Returns the result of a task that was not finished when its call returned, or waits for it a while.",
            {"readOnlyHint": True},
        ),
        _task_tool(
            ANSWER_TASK_TOOL,
            "Answer a task",
            "Answers the question of a task that waits for input, then waits for its result.",
            {"readOnlyHint": False, "destructiveHint": False},
            answer={"type": "string", "description": "The answer; an object as JSON, if the question wants one"},
        ),
        _task_tool(
            CANCEL_TASK_TOOL,
            "Cancel a task",
            "Cancels a task that has not ended.",
            {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
        ),
    )
}
"""Tools beside those of the agents, by name."""


@dataclass(frozen=True)
class AgentTool:
    """A skill of an agent as a tool, or the agent itself if it has no skills."""

    name: str
    spec: AgentSpec
    skill: Skill | None = None
    schemas: SkillSchemas = field(default=NO_SCHEMAS)
    is_validated: bool = False
    """Whether the agent itself validates the arguments, by the type that it declares."""

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        spec, skill = self.spec, self.skill
        title = f"{spec.name}: {skill.name}" if skill else spec.name
        description = skill.description if skill else spec.description
        if skill and skill.examples:
            description += "\nExamples: " + "; ".join(skill.examples)
        definition: dict[str, Any] = {
            "name": self.name,
            "title": title,
            "description": description,
            "inputSchema": self.input_schema,
            "annotations": {"title": title, **(self.schemas.annotations or {})},
        }
        if self.schemas.output is not None:
            definition["outputSchema"] = self.schemas.output
        if spec.icon_url:
            definition["icons"] = [{"src": spec.icon_url}]
        return definition

    @cached_property
    def check_arguments(self) -> FindProblem:
        """Checks arguments against the declared input, unless the agent does that itself."""
        return compile_schema(None if self.is_validated else self.schemas.input).find_problem

    @cached_property
    def check_result(self) -> FindProblem:
        """Checks structured content against the declared output."""
        return compile_schema(self.schemas.output).find_problem

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, always of an object."""
        declared = self.schemas.input
        if declared is None:
            return self._message_schema()
        return dict(declared)

    def _message_schema(self) -> dict[str, Any]:
        """The schema of arguments without a declared input: text, data and files, as far as the agent takes them."""
        modes = (self.skill.input_modes if self.skill else ()) or self.spec.input_modes
        properties: dict[str, Any] = {}
        if any(mode in _TEXT_MODES for mode in modes):
            properties["message"] = {"type": "string", "description": "What to say to the agent"}
        if any(mode in _DATA_MODES for mode in modes):
            properties["data"] = {"type": "object", "description": "JSON for the agent"}
        files = [mode for mode in modes if mode not in ("text/plain", "application/json", "text")]
        if files:
            description = f"Files for the agent. Accepted types: {', '.join(files)}"
            properties["files"] = {"type": "array", "items": _FILE_SCHEMA, "description": description}
        properties["contextId"] = {
            "type": "string",
            "description": "Conversation to continue: dragoman/contextId of an earlier result",
        }
        required = ["message"] if set(properties) == {"message", "contextId"} else []
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }


def agent_tools(spec: AgentSpec, *, is_authenticated: bool = False) -> list[AgentTool]:
    """The tools of an agent. `is_authenticated`: with the skills that only authenticated callers see."""
    schemas = schemas_of(spec)
    skills = (*spec.skills, *(spec.extended_skills if is_authenticated else ()))
    if not skills:
        return [AgentTool(tool_name(spec.id), spec, None, schemas_of_skill(schemas, ""), "" in spec.validates_input)]
    tools: dict[str, AgentTool] = {}
    for skill in skills:
        name = tool_name(spec.id, skill.id)
        if name in tools or name in TASK_TOOLS:  # two ids that differ only in characters that names cannot have
            name = _with_digest(name, skill.id)
        declared_at = skill.id if schemas.get(skill.id, NO_SCHEMAS).input is not None else ""
        is_validated = declared_at in spec.validates_input
        tools[name] = AgentTool(name, spec, skill, schemas_of_skill(schemas, skill.id), is_validated)
    return list(tools.values())


def tool_name(agent: str, skill: str = "") -> str:
    """The name of a tool: `AGENT`, or `AGENT_SKILL`. Agent ids have no underscore, so the first one ends the agent."""
    if not skill:
        return agent
    name = f"{agent}_{_OTHER_CHARACTERS.sub('_', skill)}"
    return name if len(name) <= MAX_TOOL_NAME_LENGTH else _with_digest(name, skill)


def _with_digest(name: str, skill: str) -> str:
    digest = hashlib.sha256(skill.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_TOOL_NAME_LENGTH - 9]}-{digest}"


def call_request(tool: AgentTool, arguments: Mapping[str, Any], message_id: str, context: str) -> pb.SendMessageRequest:
    """The send that a call becomes. `context`: the conversation, if the call names one beside its arguments.

    Raises InvalidArguments, naming the argument and the rule.
    """
    parts: list[dict[str, Any]] = []
    if tool.schemas.input is not None:
        parts.append({"data": arguments})
    else:
        context = _text_argument(arguments, "contextId") or context
        parts.extend(_message_parts(tool, arguments))
    message: dict[str, Any] = {"messageId": message_id, "role": "ROLE_USER", "parts": parts}
    if context:
        message["contextId"] = context
    if tool.skill is not None:
        message["metadata"] = {SKILL_METADATA: tool.skill.id}
    try:
        request = _SEND_REQUESTS.decode({"message": message})
    except InvalidParams as error:
        raise InvalidArguments(_argument_terms(error.message), violations=error.violations) from error
    request.tenant = tool.spec.id
    return request


def _message_parts(tool: AgentTool, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = tool.input_schema["properties"]
    if unknown := [name for name in arguments if name not in known]:
        raise InvalidArguments.field(unknown[0], f"is no argument of {tool.name}; use {', '.join(known)}")
    parts: list[dict[str, Any]] = []
    if text := _text_argument(arguments, "message"):
        parts.append({"text": text})
    if arguments.get("data") is not None:
        parts.append({"data": arguments["data"]})
    files = arguments.get("files")
    if files is not None:
        if not isinstance(files, list):
            raise InvalidArguments.field("files", "must be a list of files")
        parts.extend(_file_part(number, file) for number, file in enumerate(files))
    if not parts:
        if "message" not in arguments:
            wanted = [name for name in known if name != "contextId"]
            raise InvalidArguments.field(wanted[0], f"is required; pass {' or '.join(wanted)}")
        parts.append({"text": ""})
    return parts


def _file_part(number: int, file: object) -> dict[str, Any]:
    path = f"files[{number}]"
    if not isinstance(file, dict):
        raise InvalidArguments.field(path, "must be an object with mimeType, and data or uri")
    known = _FILE_SCHEMA["properties"]
    assert isinstance(known, dict)
    for name, value in file.items():
        if name not in known or not isinstance(value, str):
            rule = "must be a string" if name in known else f"is not one of {', '.join(known)}"
            raise InvalidArguments.field(f"{path}.{name}", rule)
    if ("data" in file) == ("uri" in file):
        raise InvalidArguments.field(path, "must have exactly one of data (base64) and uri")
    content = {"raw": file["data"]} if "data" in file else {"url": file["uri"]}
    return {**content, "filename": file.get("name", ""), "mediaType": file.get("mimeType", "")}


def _text_argument(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidArguments.field(name, "must be a string")
    return value


def _argument_terms(text: str) -> str:
    """A text about the message of a send, in terms of arguments."""
    return text.replace(".raw", ".data (base64)").replace("message.parts", "arguments.parts")


def task_arguments(name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The handle and the answer of a call of a task tool. Raises InvalidArguments."""
    known = TASK_TOOLS[name].definition["inputSchema"]["properties"]
    if unknown := [key for key in arguments if key not in known]:
        raise InvalidArguments.field(unknown[0], f"is no argument of {name}; use {', '.join(known)}")
    for key in known:
        if not isinstance(arguments.get(key), str) or not arguments[key]:
            raise InvalidArguments.field(key, "is required, and must be a string that is not empty")
    return arguments["task"], arguments.get("answer", "")


NewId = Callable[[], str]


def split_handle(handle: str) -> tuple[str, str]:
    """The agent's tenant and the task id of a handle, `AGENT/ID`; two empty texts for anything else."""
    tenant, slash, task = handle.rpartition("/")
    return (tenant, task) if slash else ("", "")


def handle_of(tenant: str, task_id: str) -> str:
    """The handle of a task: what MCP has as the id of a task. `tenant`: of its agent."""
    return f"{tenant}/{task_id}"
