"""The public names of the package; everything else is internal."""

from __future__ import annotations

import importlib
from typing import Final

import pytest

PUBLIC: Final = {
    "dragoman": {
        *("agent", "retry", "on_startup", "Turn", "TurnEnded", "Skill", "Provider", "Extension", "types"),
        *("open_app", "RunningServer", "__version__"),
    },
    "dragoman.client": {
        *("connect", "Connection", "Client", "message"),
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
