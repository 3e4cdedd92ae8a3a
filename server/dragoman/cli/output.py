"""Results on stdout: artifacts and messages as text, or everything as ProtoJSON lines."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC
from pathlib import Path
from typing import Final, Self, TextIO

import orjson
from google.protobuf.message import Message
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from dragoman.client.content import write_file
from dragoman.core.limits.quotas import BILLION, usage_from_metadata
from dragoman.core.task import states
from dragoman.wire.json.protojson import Codec, JsonDialect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_JSON_DIALECT: Final = JsonDialect("1.0")
_PART_JSON_CODEC: Final = Codec(pb.Part, _JSON_DIALECT)
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def state_name(state: int) -> str:
    """The state as people read it: `COMPLETED`."""
    return states.name(state).removeprefix("TASK_STATE_")


def format_status_time(task: pb.Task) -> str:
    """The time of a task's status, where the reader is."""
    time = task.status.timestamp.ToDatetime(UTC).astimezone()
    return f"{time:%Y-%m-%d %H:%M:%S}"


def text_of(message: pb.Message) -> str:
    """What a message says, for one line among others."""
    return " ".join(part.text.strip() for part in message.parts if part.HasField("text"))


def format_usage(task: pb.Task) -> str:
    """What a task has used, as its metadata say; empty where they say nothing."""
    usage = usage_from_metadata(task.metadata)
    return f"{usage.tokens:,} tokens, cost {usage.cost / BILLION:g}" if usage else ""


def json_line(message: Message) -> str:
    """A message as one line of ProtoJSON."""
    return Codec(type(message), _JSON_DIALECT).encode(message).decode()


class ConsoleOutput:
    """Stdout. Text is written as it is, but a terminal is not handed control characters that came from afar.

    save: the folder that files are written to; None only names them.
    """

    def __init__(self, save: Path | None = None, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.is_terminal = self._out.isatty()
        self._save = save
        self._artifact_id = ""
        self.at_line_start = True
        """Whether nothing stands yet on the line being written."""

    def write(self, text: str) -> None:
        """Writes text at once."""
        if not text:
            return
        self._out.write(_CONTROL_CHARACTERS.sub("", text) if self.is_terminal else text)
        self._out.flush()
        self.at_line_start = text.endswith("\n")

    def line(self, text: str = "") -> None:
        """Writes a line of its own."""
        self.end_line()
        self.write(f"{text}\n")

    def end_line(self) -> None:
        """Ends the line being written, if there is one."""
        if not self.at_line_start:
            self.write("\n")

    def json(self, message: Message) -> None:
        """Writes a message as one line of ProtoJSON, for programs: as it is."""
        self._out.write(f"{json_line(message)}\n")
        self._out.flush()

    def chunk(self, update: pb.TaskArtifactUpdateEvent) -> None:
        """Writes what an artifact has grown by; another artifact, or one begun anew, begins a line."""
        if update.artifact.artifact_id != self._artifact_id or not update.append:
            self.end_line()
            self._artifact_id = update.artifact.artifact_id
        self._parts(update.artifact.parts)

    def artifacts(self, artifacts: Iterable[pb.Artifact]) -> None:
        """Writes whole artifacts."""
        for artifact in artifacts:
            self.end_line()
            self._parts(artifact.parts)
            self._artifact_id = artifact.artifact_id
        self.end_line()

    def message(self, message: pb.Message) -> None:
        """Writes what a message says, from a line of its own on."""
        self.end_line()
        self._parts(message.parts)
        self.end_line()

    def _parts(self, parts: Iterable[pb.Part]) -> None:
        for part in parts:
            match part.WhichOneof("content"):
                case "text":
                    self.write(part.text)
                case "data":
                    # Objects have no order on the wire; sorted, two runs look alike.
                    self.line(
                        orjson.dumps(_PART_JSON_CODEC.to_dict(part)["data"], option=orjson.OPT_SORT_KEYS).decode()
                    )
                case "raw":
                    self.line(self._describe_file(part))
                case "url":
                    self.line(f"[{' '.join(filter(None, (part.filename, part.media_type, part.url)))}]")

    def _describe_file(self, part: pb.Part) -> str:
        about = f"{part.filename or 'file'}, {part.media_type or 'application/octet-stream'}, {len(part.raw):,} bytes"
        if self._save is None:
            return f"[{about}; --save DIR writes it]"
        path = write_file(self._save, part.filename, part.raw)
        return f"[{about}; written to {path}]"


REMINDER_INTERVAL: Final = 15.0
"""Seconds of silence after which a plain line says that the task is still there."""

SPINNER_DELAY: Final = 0.1
"""Seconds of quiet before the moving line comes up: it must not slow a quick stream down, nor flash."""

MAX_STATUS_WIDTH: Final = 100

_BRIEF_STATES: Final = ("SENT", "SUBMITTED")
"""States that are no news unless they last."""


class Progress:
    """A task's state, for as long as the block runs.

    On a terminal the line is away while somebody writes to the same screen: `hide` before, `show` after, which
    waits until it `may_show` (there is no place for it behind half a line of text).
    """

    def __init__(self, *, may_show: Callable[[], bool] = lambda: True) -> None:
        self._terminal = sys.stderr.isatty()
        self._may_show = may_show
        self._console = Console(stderr=True, highlight=False)
        self._spinner = Spinner("dots")
        self._started_at = time.monotonic()
        self._state = ""
        self._text = ""
        self._live: Live | None = None
        self._show_timer: asyncio.TimerHandle | None = None
        self._reminder_timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self.update("SENT")
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()
        if self._reminder_timer is not None:
            self._reminder_timer.cancel()

    @property
    def elapsed(self) -> str:
        """The time since the block began, as people read it."""
        seconds = time.monotonic() - self._started_at
        if seconds < 1:
            return f"{seconds * 1000:.0f} ms"
        whole = int(seconds + 1e-6)  # the clock's own rounding is no second
        return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60} s"

    def update(self, state: str, text: str = "") -> None:
        """The task is in `state`, and its agent said `text`."""
        text = _printable(" ".join(text.split()))[:MAX_STATUS_WIDTH]
        if (state, text) == (self._state, self._text):
            return
        self._state, self._text = state, text
        if self._terminal:
            self.show()
        elif state not in _BRIEF_STATES:
            self._print(f"{state}  {text}")
        self._remind_later()

    def hide(self) -> None:
        """Takes the moving line off the screen."""
        if self._show_timer is not None:
            self._show_timer.cancel()
            self._show_timer = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self) -> None:
        """Puts the moving line on the screen, if that is a terminal and nothing else is written there for a moment."""
        if self._terminal and self._live is None and self._show_timer is None:
            self._show_timer = asyncio.get_running_loop().call_later(SPINNER_DELAY, self._appear)

    def _appear(self) -> None:
        self._show_timer = None
        if self._may_show():
            self._live = Live(
                console=self._console,
                get_renderable=self._render_line,
                transient=True,
                refresh_per_second=10,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        self.hide()
        self._print(text)

    def _render_line(self) -> Spinner:
        line = f"{self._state}  {self.elapsed}  {self._text}".rstrip()
        self._spinner.update(text=Text(line, overflow="ellipsis", no_wrap=True))
        return self._spinner

    def _print(self, text: str) -> None:
        # Not through rich: texts come from agents and hold no markup, and lines are for programs not to wrap.
        print(_printable(text.rstrip()), file=sys.stderr, flush=True)

    def _remind_later(self) -> None:
        if self._terminal:
            return
        if self._reminder_timer is not None:
            self._reminder_timer.cancel()
        self._reminder_timer = asyncio.get_running_loop().call_later(REMINDER_INTERVAL, self._remind)

    def _remind(self) -> None:
        self._print(f"{self._state}  still, after {self.elapsed}")
        self._remind_later()


def _printable(text: str) -> str:
    """Without what would move the cursor: texts come from agents."""
    return "".join(character for character in text if character.isprintable())
