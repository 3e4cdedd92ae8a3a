"""Adapter for compiled graphs of LangGraph 1.

A graph without a checkpointer, or with one in memory, gets one whose checkpoint is kept in our store: with the
conversation, with the task while an interrupt waits for its answer, and as a step of the turn while it runs. A graph
with another one keeps it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, get_type_hints

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt

from .adapter import FrameworkAdapter, FrameworkTurn, InputFile, ToolInfo

DEFAULT_NAME = "LangGraph"
"""The name of a graph that its author has not named."""

CHECKPOINT = "checkpoint"
"""The step that is stored after each node, with what the turn has done so far."""


class LangGraphAdapter(FrameworkAdapter):
    """Runs a graph: text and node changes are streamed, interrupts become questions."""

    framework = "langgraph"

    def describe(self) -> tuple[str, str, Iterable[ToolInfo]]:
        nodes = getattr(getattr(self.value, "builder", None), "nodes", {})
        tools = [
            ToolInfo(tool.name, tool.description)
            for node in nodes.values()
            for tool in getattr(getattr(node, "runnable", None), "tools_by_name", {}).values()
        ]
        return "" if self.value.name == DEFAULT_NAME else self.value.name, "", tools

    async def run(self, turn: FrameworkTurn) -> None:
        pending = turn.pending or {}
        graph, saver = self.value, None
        config: RunnableConfig = {"configurable": {"thread_id": turn.turn.context_id}}
        given = _resume(turn, pending) if pending else _graph_input(turn, graph)
        events = GraphEvents(turn)
        if graph.checkpointer in (None, True) or isinstance(graph.checkpointer, InMemorySaver):
            done = json.loads(turn.steps.find(CHECKPOINT) or b"{}")
            if done:  # an earlier run of this turn was interrupted
                given, events.tokens = None, done["tokens"]
                await turn.chunk(done["output"])

            async def save(thread: dict[str, Any]) -> None:
                progress = {"thread": thread, "tokens": events.tokens, "output": turn.output}
                await turn.steps.save(CHECKPOINT, json.dumps(progress).encode(), "application/json")

            saver = ConversationSaver(done.get("thread") or pending.get("thread") or turn.conversation or {}, save)
            graph = graph.copy({"checkpointer": saver})
        modes: Any = ["updates", "messages", "custom"]
        async for mode, event in graph.astream(given, config, stream_mode=modes, durability="sync"):
            await events.handle(mode, event)
            if saver is not None and mode == "updates":
                await saver.release()
        turn.usage(events.tokens)
        thread = saver.dump() if saver else None
        if events.interrupts:
            reviews = {one.id: len(_reviewed(one.value)) for one in events.interrupts}
            turn.save_states(None, {"thread": thread, "interrupts": list(reviews), "reviews": reviews})
            turn.ask(*_question(events.interrupts))
            return
        await events.send_result((await graph.aget_state(config)).values, graph.output_channels)
        turn.save_states(thread)
        turn.complete()


class GraphEvents:
    """Sends what a graph streams, and gathers its interrupts and its usage."""

    def __init__(self, turn: FrameworkTurn) -> None:
        self._turn = turn
        self.interrupts: Sequence[Interrupt] = ()
        self.tokens = 0
        """Tokens of all responses of models."""

    async def handle(self, mode: str, event: Any) -> None:
        if mode == "messages":
            message, _ = event
            if isinstance(message, AIMessage) and not message.tool_calls:
                await self._turn.chunk(message.text)
        elif mode == "custom":
            text = event if isinstance(event, str) else json.dumps(event, default=str)
            await self._turn.progress("custom", "", text, data=json.loads(json.dumps(event, default=str)))
        else:
            for node, update in event.items():
                await self._handle_update(node, update)

    async def _handle_update(self, node: str, update: Any) -> None:
        if node == "__interrupt__":
            self.interrupts = update
            return
        await self._turn.progress("node", node, f"{node} has run")
        for message in _messages_of(update):
            if isinstance(message, AIMessage):
                self.tokens += (message.usage_metadata or {}).get("total_tokens", 0)
                for call in message.tool_calls:
                    details = {"id": call["id"], "arguments": call["args"]}
                    await self._turn.progress("tool_call", call["name"], f"calls {call['name']}", **details)
            elif isinstance(message, ToolMessage):
                name = message.name or ""
                await self._turn.progress("tool_result", name, f"{name} has answered", id=message.tool_call_id)

    async def send_result(self, values: Any, output: str | Sequence[str]) -> None:
        """Sends the output of the final state, as far as it was not streamed: all fields but the messages, as data."""
        if not isinstance(values, dict):
            await self._turn.data_artifact(json.loads(json.dumps(values, default=_plain)))
            return
        rest = {name: value for name, value in values.items() if name != "messages" and name in output}
        if rest:
            await self._turn.data_artifact(json.loads(json.dumps(rest, default=_plain)))
        elif not self._turn.has_output and values.get("messages"):
            await self._turn.chunk(values["messages"][-1].text)


def _messages_of(update: Any) -> Iterator[BaseMessage]:
    for one in update if isinstance(update, list) else [update]:
        found = one.get("messages", []) if isinstance(one, dict) else []
        yield from (message for message in (found if isinstance(found, list) else [found]))


def _graph_input(turn: FrameworkTurn, graph: Any) -> Any:
    """The input of a graph: its messages from text and files, its other fields from data parts."""
    fields = _input_fields(graph)
    given: dict[str, Any] = {}
    for value in turn.data:
        if not isinstance(value, dict):
            raise ValueError(f"the input of this graph is an object with {', '.join(fields)}; send it as a data part")
        given.update(value)
    if "messages" in fields:
        if turn.text or turn.files:
            content = [{"type": "text", "text": turn.text}, *map(_content, turn.files)] if turn.files else turn.text
            given["messages"] = [HumanMessage(content=content)]
    elif turn.text:
        if len(fields) > 1 and (found := _fields_in(turn.text, fields)):
            return given | found
        texts = [name for name, kind in fields.items() if kind is str and name not in given]
        if len(texts) != 1:
            raise ValueError(f"the input of this graph has the fields {', '.join(fields)}; send them as a data part")
        given[texts[0]] = turn.text
    return given


def _fields_in(text: str, fields: Iterable[str]) -> dict[str, Any]:
    """The fields of an input that the text holds as a JSON object; empty for another text."""
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.keys() <= set(fields) else {}


def _input_fields(graph: Any) -> dict[str, Any]:
    """The fields of the input and their types. The graph's own JSON schema needs another TypedDict before 3.12."""
    schema = getattr(getattr(graph, "builder", None), "input_schema", None)
    try:
        return get_type_hints(schema)
    except (TypeError, NameError):  # a graph of the functional API, or a type that only checkers see
        return {}


def _content(file: InputFile) -> dict[str, Any]:
    kind = file.media_type.partition("/")[0]
    source = {"url": file.url} if file.url else {"base64": b64encode(file.data).decode()}
    return {"type": kind if kind in ("image", "audio", "video") else "file", "mime_type": file.media_type, **source}


def _resume(turn: FrameworkTurn, pending: Any) -> Command[Any]:
    """The caller's answer: a data part, or the text. The same for all interrupts, unless data is keyed by their ids."""
    interrupts: Sequence[str] = pending["interrupts"]
    reviews: dict[str, int] = pending.get("reviews", {})
    answer: Any = turn.data[0] if turn.data else turn.text
    if isinstance(answer, dict) and set(interrupts) <= answer.keys():
        return Command(resume={id: answer[id] for id in interrupts})
    answers = {id: _decisions(turn, answer, reviews[id]) if reviews.get(id) else answer for id in interrupts}
    return Command(resume=answers if len(interrupts) > 1 else answers[interrupts[0]])


def _reviewed(value: Any) -> Sequence[Any]:
    """The calls of tools that an interrupt of LangChain's middleware wants to have reviewed."""
    found = value.get("action_requests") if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _decisions(turn: FrameworkTurn, answer: Any, calls: int) -> Any:
    """The middleware's input, `{"decisions": [...]}`, for an approval or a denial. Other text is a reason."""
    if isinstance(answer, dict) and "decisions" in answer:
        return answer
    decision = {"type": "approve" if turn.approval else "reject"}
    if turn.approval is None:
        decision["message"] = turn.text
    return {"decisions": [decision] * calls}


def _question(interrupts: Sequence[Interrupt]) -> tuple[str, Any]:
    texts = [_question_text(one.value) for one in interrupts]
    data = [{"id": one.id, "value": json.loads(json.dumps(one.value, default=_plain))} for one in interrupts]
    return "\n".join(texts), {"interrupts": data}


def _question_text(value: Any) -> str:
    """The text of an interrupt: its value, or the field of it that is for people."""
    if calls := _reviewed(value):
        texts = [f"{call['name']}({json.dumps(call['args'], default=_plain)})" for call in calls]
        return f"Approve {', '.join(texts)}? Answer yes or no."
    for name in ("question", "message", "description"):
        if isinstance(value, dict) and isinstance(value.get(name), str):
            return str(value[name])
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


class ConversationSaver(BaseCheckpointSaver[int]):
    """Keeps the last checkpoint of each namespace of one thread, as JSON.

    A node writes its result when it ends, which may be before its text was read from the stream. A stored result means
    that the node does not run again, so it is stored only after its text: the update that follows the text releases it.
    The checkpoint of the graph itself comes when everything before it was read, and releases all.
    """

    def __init__(self, saved: dict[str, Any], on_change: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """saved: what `dump` has returned. on_change: stores such a value."""
        super().__init__()
        self._checkpoints: dict[str, Any] = saved
        self._released = dict(saved)
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        """Namespaces with their new checkpoints, in order, that are not released."""
        self._on_change = on_change

    def dump(self) -> dict[str, Any]:
        """JSON of the checkpoints."""
        return self._checkpoints

    async def release(self) -> None:
        """Stores the first change that waits: what it belongs to was read from the stream."""
        if self._waiting:
            namespace, saved = self._waiting.popleft()
            self._released[namespace] = saved
            await self._on_change(self._released)

    def _change(self, config: RunnableConfig, saved: dict[str, Any]) -> None:
        namespace = config["configurable"].get("checkpoint_ns", "")
        self._checkpoints[namespace] = saved
        self._waiting.append((namespace, saved))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        namespace = config["configurable"].get("checkpoint_ns", "")
        saved = self._checkpoints.get(namespace)
        wanted = config["configurable"].get("checkpoint_id")
        if saved is None or (wanted and wanted != saved["id"]):
            return None
        writes = [(task, channel, self._load(value)) for task, _, channel, value in saved["writes"]]
        return CheckpointTuple(
            _config(config, saved["id"]),
            self._load(saved["checkpoint"]),
            self._load(saved["metadata"]),
            _config(config, saved["parent"]) if saved["parent"] else None,
            writes,
        )

    def list(self, config: RunnableConfig | None, **_: Any) -> Iterator[CheckpointTuple]:
        found = self.get_tuple(config) if config is not None else None
        yield from [found] if found is not None else []

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        saved = {
            "id": checkpoint["id"],
            "parent": config["configurable"].get("checkpoint_id"),
            "checkpoint": self._dump(checkpoint),
            "metadata": self._dump(metadata),
            "writes": [],
        }
        self._change(config, saved)
        return _config(config, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        saved = self._checkpoints.get(config["configurable"].get("checkpoint_ns", ""))
        if saved is None or saved["id"] != config["configurable"].get("checkpoint_id"):
            return
        new = {(task_id, number): (channel, value) for number, (channel, value) in enumerate(writes)}
        kept = [write for write in saved["writes"] if (write[0], write[1]) not in new]
        kept += [[task, number, channel, self._dump(value)] for (task, number), (channel, value) in new.items()]
        self._change(config, {**saved, "writes": kept})

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(self, config: RunnableConfig | None, **_: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config):
            yield found

    async def aput(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        stored = self.put(config, checkpoint, metadata, new_versions)
        if not config["configurable"].get("checkpoint_ns"):
            self._waiting.clear()
            self._released = dict(self._checkpoints)
            await self._on_change(self._released)
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    def _dump(self, value: Any) -> Sequence[str]:
        kind, data = self.serde.dumps_typed(value)
        return [kind, b64encode(data).decode()]

    def _load(self, saved: Sequence[str]) -> Any:
        return self.serde.loads_typed((saved[0], b64decode(saved[1])))


def _config(config: RunnableConfig, checkpoint_id: str) -> RunnableConfig:
    given = config["configurable"]
    return {
        "configurable": {
            "thread_id": given["thread_id"],
            "checkpoint_ns": given.get("checkpoint_ns", ""),
            "checkpoint_id": checkpoint_id,
        }
    }
