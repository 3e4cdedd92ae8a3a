"""Adapter for flows of CrewAI. The state of a flow is the conversation; `@human_feedback` asks the caller."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from crewai.flow import Flow
from crewai.flow.async_feedback import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.flow_config import flow_config
from crewai.flow.persistence import FlowPersistence
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from .adapter import FrameworkAdapter, FrameworkTurn, ToolInfo
from .crewai_events import files_of, run_with_events

TEXT_FIELD = "prompt"
"""The field of the state for the text of the message, unless the state has only one field for text."""


class FlowAdapter(FrameworkAdapter):
    """Runs a flow of its own for each turn, with the state of the conversation."""

    framework = "crewai_flow"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        flow_config.hitl_provider = AskCaller()
        flow_config.input_provider = RefuseInput()

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        flow: Flow[Any] = self.value
        has_own_text = type(flow).__doc__ and type(flow).__doc__ != Flow.__doc__
        description = (type(flow).__doc__ or "").strip().partition("\n")[0] if has_own_text else ""
        return flow.name or type(flow).__name__, description, ()

    async def run(self, turn: FrameworkTurn) -> None:
        states = TurnStates(turn)
        given = {name: getattr(self.value, name) for name in self.value.model_fields_set}
        given["persistence"] = states
        flow: Flow[Any]
        if turn.pending:
            flow = type(self.value).from_pending(turn.turn.context_id, **given)
            run = flow.resume_async(turn.prompt)
        else:
            flow = type(self.value)(**given)
            inputs = {"id": turn.turn.context_id, **_inputs_of(turn, flow.state)}
            run = flow.kickoff_async(inputs, files_of(turn.files) or None)
        try:
            result = await run_with_events(turn, run, lambda _: True)
        finally:
            turn.usage(flow.usage_metrics.total_tokens)
        if isinstance(result, HumanFeedbackPending):
            context = result.context
            turn.save_states(None, {"state": states.state, "feedback": states.feedback})
            turn.ask(_question(context), {"method": context.method_name, "outcomes": context.emit or []})
            return
        await _send_result(turn, result)
        turn.save_states(_as_json(flow.state))
        turn.complete()


class TurnStates(FlowPersistence):
    """Gives a flow the state of its conversation, and keeps the one with which it pauses."""

    persistence_type: str = "turn"
    state: dict[str, Any] | None = None
    feedback: dict[str, Any] | None = None

    def __init__(self, turn: FrameworkTurn) -> None:
        pending = turn.pending or {}
        super().__init__(state=pending.get("state") or turn.conversation, feedback=pending.get("feedback"))

    def init_db(self) -> None:
        """Does nothing: the store is the server's."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """Keeps the state of `@persist`; what is stored is the state at the end of the turn."""
        self.state = _as_json(state_data)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        return self.state

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        self.state, self.feedback = _as_json(state_data), context.to_dict()

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        if self.state is None or self.feedback is None:
            return None
        return self.state, PendingFeedbackContext.from_dict(self.feedback)


class AskCaller:
    """Pauses a flow at `@human_feedback`."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Any) -> str:
        raise HumanFeedbackPending(context)


class RefuseInput:
    """Refuses `Flow.ask()`, which waits inside a method."""

    def request_input(self, message: str, flow: Any, metadata: dict[str, Any] | None = None) -> None:
        raise NotImplementedError("Flow.ask() cannot be stored while it waits; use @human_feedback")


def _inputs_of(turn: FrameworkTurn, state: Any) -> dict[str, Any]:
    """The fields of the data parts, and the text in the field for it."""
    inputs: dict[str, Any] = {}
    for value in turn.data:
        if isinstance(value, dict):
            inputs.update(value)
    if turn.text:
        inputs.setdefault(_text_field(state), turn.text)
    return inputs


def _text_field(state: Any) -> str:
    if not isinstance(state, BaseModel):
        return TEXT_FIELD
    fields = type(state).model_fields
    texts = [name for name, field in fields.items() if field.annotation is str and name != "id"]
    if TEXT_FIELD in fields or not texts:
        return TEXT_FIELD
    if len(texts) > 1:
        raise ValueError(
            f"the state of this flow has no field {TEXT_FIELD!r} for text; "
            f"send a data part with fields of it: {', '.join(texts)}"
        )
    return texts[0]


def _question(context: PendingFeedbackContext) -> str:
    shown = context.method_output
    shown = shown if isinstance(shown, str) else json.dumps(_as_json({"output": shown})["output"], ensure_ascii=False)
    outcomes = f"\n\nPossible answers: {', '.join(context.emit)}." if context.emit else ""
    return f"{context.message}\n\n{shown}{outcomes}"


async def _send_result(turn: FrameworkTurn, result: Any) -> None:
    result = getattr(result, "raw", result)  # of a crew that the last method ran
    if isinstance(result, str):
        if not turn.has_output:
            await turn.chunk(result)
    elif result is not None:
        await turn.data_artifact(_as_json({"result": result})["result"])


def _as_json(value: dict[str, Any] | BaseModel) -> dict[str, Any]:
    """JSON of a state. Raises TypeError or ValueError for values that have none."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    converted: dict[str, Any] = to_jsonable_python(value)
    return converted
