"""Prints a task from its events: results on stdout, progress on stderr."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from dragoman.calling.errors import ClientError
from dragoman.calling.transport import StreamResponses
from dragoman.cli import ExitCode
from dragoman.cli.output import ConsoleOutput, Progress, state_name, text_of
from dragoman.cli.tasks.client import command_line
from dragoman.client.calls import Client
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_UNSUCCESSFUL: Final = states.TERMINAL - {states.COMPLETED}


class TaskPrinter:
    """Prints a task from its events: each event as it arrives (`live`), or the complete task at the end.
    until_terminal: the stream ends only with the task. Otherwise it also ends when the task waits for its caller.
    asks: a question is left to the caller of `follow`, which asks it, instead of being printed."""

    def __init__(
        self,
        client: Client,
        out: ConsoleOutput,
        *,
        json: bool,
        live: bool,
        until_terminal: bool = False,
        asks: bool = False,
    ) -> None:
        self._client = client
        self._out = out
        self._json = json
        self._live = live
        self._until_terminal = until_terminal
        self._asks = asks
        self.task_id = ""  # empty before the first event, and for an answer without a task
        self._artifact_ids: set[str] = set()
        self._status = pb.TaskStatus()
        self._progress = Progress(may_show=lambda: out.at_line_start or not out.is_terminal)

    @property
    def question(self) -> pb.Message | None:
        """The question for which the task waits, if its printer leaves questions to the caller."""
        return self._status.message if self._asks and self._status.state == states.INPUT_REQUIRED else None

    async def follow(self, events: StreamResponses) -> ExitCode:
        """Prints the events to their end. Returns the exit code for the task's last state."""
        with self._progress:
            try:
                async with aclosing(events):
                    async for event in events:
                        self._progress.hide()
                        self._on_event(event)
                        self._progress.show()
                if self.task_id and not self._live:
                    await self._print_task()
            except (asyncio.CancelledError, ClientError):
                if self._out.is_terminal:  # what follows begins on a line of its own, not after half a chunk
                    self._out.end_line()
                if self.task_id and self._status.state not in states.TERMINAL:
                    self._progress.note(f"the task continues; follow it with: {self._follow_up('watch')}")
                raise
            if self.task_id:
                self._finish()
        return ExitCode.FAILED if self._status.state in _UNSUCCESSFUL else ExitCode.OK

    def _on_event(self, event: pb.StreamResponse) -> None:
        if self._json and (self._live or event.HasField("message")):
            self._out.json(event)
        as_text = self._live and not self._json
        match event.WhichOneof("payload"):
            case "task":
                self.task_id = event.task.id
                self._on_status(event.task.status)
                if as_text:
                    for artifact in event.task.artifacts:
                        self._on_artifact(artifact, append=False)
                    self._out.artifacts(event.task.artifacts)
            case "status_update":
                self.task_id = self.task_id or event.status_update.task_id  # streams of 0.1 contain no Task
                self._on_status(event.status_update.status)
            case "artifact_update" if as_text:
                self._on_artifact(event.artifact_update.artifact, append=event.artifact_update.append)
                self._out.chunk(event.artifact_update)
            case "message" if not self._json:
                self._out.message(event.message)

    def _on_artifact(self, artifact: pb.Artifact, *, append: bool) -> None:
        """Notes that what was printed of an artifact is void: stdout shows both texts, and not which one counts."""
        if artifact.artifact_id in self._artifact_ids and artifact.parts and not append:
            self._out.end_line()
            name = artifact.name or artifact.artifact_id
            self._progress.note(f"artifact {name} starts over; discard its earlier text")
        self._artifact_ids.add(artifact.artifact_id)

    def _on_status(self, status: pb.TaskStatus) -> None:
        self._status = status
        ends = states.TERMINAL if self._until_terminal else states.TERMINAL | states.INTERRUPTED
        if status.state not in ends:
            self._progress.update(state_name(status.state), text_of(status.message))

    async def _print_task(self) -> None:
        task = await self._client.get(self.task_id, history=0)
        self._status = task.status
        self._progress.hide()
        if self._json:
            self._out.json(pb.SendMessageResponse(task=task))
        else:
            self._out.artifacts(task.artifacts)

    def _finish(self) -> None:
        """Prints the status message on stdout, unless it explains a failure, and the outcome on stderr."""
        self._progress.hide()
        state, text = self._status.state, text_of(self._status.message)
        self._out.end_line()
        if self.question is not None:
            return
        if self._status.HasField("message") and state not in _UNSUCCESSFUL and not self._json:
            self._out.message(self._status.message)
        reason = f": {text}" if text and state in _UNSUCCESSFUL else ""
        outcome = f"{state_name(state)}  task {self.task_id}  {self._progress.elapsed}{reason}"
        self._progress.note(outcome, state=state)
        if state in states.INTERRUPTED:
            self.print_hint()
        elif state not in states.TERMINAL:
            self._progress.note(f"follow it with: {self._follow_up('watch')}")

    def print_hint(self) -> None:
        """Prints the command that answers the question."""
        self._progress.note(f"answer it with: {self._follow_up('send --task')} TEXT")

    def _follow_up(self, verb: str) -> str:
        return command_line(verb, self.task_id, self._client)


async def single_event(event: pb.StreamResponse) -> StreamResponses:
    """Yields one event, as a stream that ends after it."""
    yield event
