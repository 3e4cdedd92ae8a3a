"""The public names of the package; everything else is internal."""

from __future__ import annotations

import importlib
import inspect
from typing import Final

import pytest

from dragoman import Turn, types
from dragoman.client import Result

PUBLIC: Final = {
    "dragoman": {
        *(
            "agent",
            "retry",
            "Retry",
            "StepCall",
            "StepMismatch",
            "TurnSuspended",
            "on_startup",
            "Turn",
            "AgentError",
            "TurnEnded",
            "Skill",
            "Provider",
            "Extension",
            "types",
        ),
        *("open_app", "RunningServer", "__version__"),
    },
    "dragoman.types": {
        *("Part", "Artifact", "Message", "text", "data", "file", "link", "artifact", "message"),
        *("ReceivedFile", "Incoming", "InvalidAgentResponse", "TaskId", "ContextId", "MessageId", "ArtifactId"),
        *("SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED", "REJECTED"),
        *("is_terminal", "can_transition_to"),
    },
    "dragoman.asgi": {"AsgiApp", "Identity"},
    "dragoman.client": {
        *("connect", "Connection"),
        *("Event", "Text", "Status", "Artifact", "Data", "File", "Question", "Finished", "Result"),
        *("ClientError", "TaskFailed", "NotFound", "NotAllowed", "NotSupported", "Invalid", "Conflict", "Busy"),
        *("ServerUnavailable", "InactivityTimeout", "ProtocolError"),
    },
    "dragoman.testing": {
        *("AgentUnderTest", "run", "record", "replay", "replayed", "Recording", "Different", "TaskRun"),
        *("Story", "Step", "GivenArtifact", "Clock", "Ids", "BlockingAgent", "BlockingRun", "LiveServer"),
    },
    "dragoman.transcoding": {
        *("ServiceRoutes", "Binding", "MatchedBinding", "NoMatch", "Routes", "Match", "Candidate"),
        *("rules", "parse", "Rule", "Template", "Variable", "Wildcard", "TemplateError"),
        *("Transcoder", "ResponseEncoder", "WHOLE_REQUEST", "JsonDialect", "Codec", "codec", "loads"),
        *("http_status", "error_body", "invalid_argument"),
        *("frame", "comment", "KEEP_ALIVE", "SseEvent", "SseParser"),
        *("InvalidParams", "Violation", "ParseError", "PayloadTooLarge"),
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_exports_exactly_these_names(module: str) -> None:
    assert set(importlib.import_module(module).__all__) == PUBLIC[module]


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in sorted(names)]
)
def test_a_public_name_can_be_imported(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


def test_the_rules_of_states_are_public() -> None:
    assert [state for state in (types.WORKING, types.AUTH_REQUIRED, types.REJECTED) if types.is_terminal(state)] == [
        types.REJECTED
    ]
    assert types.can_transition_to(types.SUBMITTED, types.COMPLETED)
    assert not types.can_transition_to(types.SUBMITTED, types.COMPLETED, strict=True)
    assert not types.can_transition_to(types.COMPLETED, types.WORKING)


@pytest.mark.parametrize("owner", [Turn, Result])
def test_ids_have_types_of_their_own(owner: type) -> None:
    members = dict(inspect.getmembers(owner, lambda member: isinstance(member, property)))
    assert members["task_id"].fget.__annotations__["return"] == "TaskId"
    assert members["context_id"].fget.__annotations__["return"] == "ContextId"
