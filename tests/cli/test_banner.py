"""The part of the printed curl line."""

from __future__ import annotations

import pytest

from dragoman.cli.banner import sample_part
from dragoman.core.card import AgentSpec, Skill
from dragoman.core.messages import media_type_of
from dragoman.wire.protojson import Codec, JsonDialect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def agent(*modes: str, examples: tuple[str, ...] = ()) -> AgentSpec:
    skill = Skill(id="s", name="s", description="s", examples=examples)
    return AgentSpec(id="a", name="a", description="a", input_modes=modes, skills=(skill,))


def test_an_example_of_the_agent_is_the_best_text() -> None:
    assert sample_part(agent("text/plain", examples=("echo hello", "other"))) == {"text": "echo hello"}
    assert sample_part(agent("image/png", "text/*")) == {"text": "hello"}


@pytest.mark.parametrize("mode", ["application/json", "text/csv", "image/png", "application/pdf"])
def test_an_agent_without_text_gets_what_it_takes(mode: str) -> None:
    part = Codec(pb.Part, JsonDialect("1.0")).decode(sample_part(agent(mode)))
    assert media_type_of(part) == mode
