"""Questions of agents as elicitations, and answers to them as messages (2026-07-28 client/elicitation).

Elicitation knows flat objects of texts, numbers, booleans and choices only, so a question that wants anything else is
asked for JSON in a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from dragoman.core.errors import InvalidParams
from dragoman.wire.question_forms import ANSWER, Form, Part, answer_part, form_of, link_of, question_text

ACTION_METADATA: Final = "elicitation"
"""The key of an answer's metadata for a user that declined (`decline`) or dismissed the question (`cancel`)."""

_REFUSALS: Final = {
    "decline": "The user declined to answer.",
    "cancel": "The user dismissed the question without an answer.",
}
_CONFIRM_FORM: Final = Form({"type": "object", "properties": {}}, "text")
"""Asks for no content: the user only confirms."""


def elicitation(
    parts: Sequence[Part], *, needs_auth: bool, forms: bool, urls: bool, key: str, id_is_required: bool = False
) -> dict[str, Any] | None:
    """The `elicitation/create` request for a question; None if the client can show no such request.

    `needs_auth`: the task is AUTH_REQUIRED. `forms`, `urls`: the modes that the client has. `key`: of the question.
    `id_is_required`: the client's revision has an id in requests with a URL (2025-11-25).
    """
    text = question_text(parts) or "The agent waits for your answer."
    if needs_auth and urls and (link := link_of(parts)):
        params: dict[str, Any] = {"mode": "url", "message": text, "url": link}
        if id_is_required:
            params["elicitationId"] = key
    elif forms:
        form = _CONFIRM_FORM if needs_auth else form_of(parts)
        params = {"mode": "form", "message": text, "requestedSchema": form.schema}
    else:
        return None
    return {"method": "elicitation/create", "params": params}


def answer_parts(result: object, parts: Sequence[Part], *, needs_auth: bool) -> tuple[list[dict[str, Any]], str]:
    """The parts of the message that an `ElicitResult` becomes, and its action.

    `parts`: of the question. Raises InvalidParams, naming the field.
    """
    action = result.get("action") if isinstance(result, dict) else None
    if not isinstance(result, dict) or action not in ("accept", "decline", "cancel"):
        raise InvalidParams.field("action", "must be accept, decline or cancel")
    form = _CONFIRM_FORM if needs_auth else form_of(parts)
    if action != "accept":
        return [{"text": form.refusal or _REFUSALS[action]}], action
    content = result.get("content") or {}
    if not isinstance(content, dict):
        raise InvalidParams.field("content", "must be an object")
    if form is _CONFIRM_FORM:
        return [{"text": "done"}], action
    required = form.schema.get("required", ())
    if missing := [name for name in required if content.get(name) is None]:
        raise InvalidParams.field(f"content.{missing[0]}", "is required")
    if form.kind == "fields":
        return [{"data": content}], action
    value = content.get(ANSWER)
    return [answer_part(value if isinstance(value, str) else orjson.dumps(value).decode(), form)], action
