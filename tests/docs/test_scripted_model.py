"""The model of the pages of frameworks follows its script, and only that."""

from __future__ import annotations

import json
import tomllib
import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.docs.scripted_model import SCRIPT, Script, ScriptedModel

from tools.pages import ROOT

STEPS: Script = {"Is it open?": [{"call": "is_open", "day": "Monday"}, "It is {result}."]}


def ask(model: ScriptedModel, *messages: dict[str, Any], stream: bool = False) -> str:
    """Sends Chat Completions a request. Returns the body of the response."""
    body = json.dumps({"messages": messages, "stream": stream}).encode()
    with urllib.request.urlopen(f"{model.url}/v1/chat/completions", data=body) as response:
        return str(response.read().decode())


def test_a_call_is_followed_by_a_text_with_its_result() -> None:
    user = {"role": "user", "content": "Is it open?"}
    with ScriptedModel(STEPS) as model:
        (choice,) = json.loads(ask(model, user))["choices"]
        called = choice["message"]
        assert called["tool_calls"][0]["function"] == {"name": "is_open", "arguments": '{"day": "Monday"}'}
        result = {"role": "tool", "content": "closed", "tool_call_id": called["tool_calls"][0]["id"]}
        (choice,) = json.loads(ask(model, user, called, result))["choices"]
        streamed = ask(model, user, called, result, stream=True).split("\n\n")
    assert choice["message"]["content"] == "It is closed."
    chunks = [json.loads(one.removeprefix("data: ")) for one in streamed if one.startswith("data: {")]
    words = [one["choices"][0]["delta"].get("content") for one in chunks if one["choices"]]
    assert words == ["It ", "is ", "closed.", None]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"role": "user", "content": "Who?"}], "no reply 1 to 'Who?'"),
        ([{"role": "user", "content": "Is it open?"}, {"role": "assistant"}], "the conversation has none"),
    ],
)
def test_without_an_answer_the_request_fails(messages: list[dict[str, Any]], reason: str) -> None:
    with ScriptedModel(STEPS) as model, pytest.raises(urllib.error.HTTPError) as failure:
        ask(model, *messages)
    assert reason in json.load(failure.value)["error"]["message"]


def test_every_prompt_of_the_script_is_on_a_page() -> None:
    shown = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "how-to" / "frameworks").glob("*.md"))
    assert not [prompt for prompt in tomllib.loads(SCRIPT.read_text("utf-8")) if f'"{prompt}"' not in shown]
