"""Results on stdout, as text for people or ProtoJSON lines for programs; and progress on stderr."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TextIO, TypeVar

import orjson
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.calling.contents import read_part
from dragoman.cli import escape_controls
from dragoman.client.content import create_file, write_file
from dragoman.core.limits.quotas import BILLION, usage_from_metadata
from dragoman.core.task import states
from dragoman.wire.content_links import ContentLink
from dragoman.wire.json.protojson import Codec, JsonDialect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

M = TypeVar("M", bound=Message)

_JSON_DIALECT: Final = JsonDialect("1.0")
_PART_JSON_CODEC: Final = Codec(pb.Part, _JSON_DIALECT)

state_name: Final = states.short_name

_COLORS: Final[dict[int, int]] = {
    states.COMPLETED: 32,
    **dict.fromkeys((states.FAILED, states.REJECTED), 31),
    states.CANCELED: 90,
    **dict.fromkeys(states.INTERRUPTED, 33),
    **dict.fromkeys((states.WORKING, states.SUBMITTED), 36),
}
"""ANSI colors by state."""


def colored(text: str, state: int, stream: TextIO) -> str:
    """Colors the state's name in a text, if the stream is a terminal and NO_COLOR is not set."""
    if not state or not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    name = state_name(state)
    return text.replace(name, f"\x1b[{_COLORS.get(state, 0)}m{name}\x1b[0m", 1)


def format_elapsed(milliseconds: float) -> str:
    """A time span in its largest unit: `12s`, `5m`, `3h`, `2d`."""
    seconds = max(int(milliseconds / 1000), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def format_time(time: int | Timestamp, *, seconds: bool = True) -> str:
    """A time in the local time zone. An int is milliseconds since the epoch."""
    milliseconds = time if isinstance(time, int) else time.ToMilliseconds()
    local = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}" if seconds else f"{local:%Y-%m-%d %H:%M}"


def rfc3339(milliseconds: int) -> str:
    """A time as all JSON output has it, in UTC: `2026-11-24T10:15:30.123Z`."""
    at = Timestamp()
    at.FromMilliseconds(milliseconds)
    return at.ToJsonString()


def text_of(message: pb.Message) -> str:
    """The text parts of a message, joined into one line."""
    return " ".join(" ".join(part.text.split()) for part in message.parts if part.HasField("text"))


def format_usage(task: pb.Task) -> str:
    """Tokens and cost from a task's metadata; empty if it has none."""
    usage = usage_from_metadata(task.metadata)
    return f"{usage.tokens:,} tokens, cost {usage.cost / BILLION:g}" if usage else ""


def json_line(message: Message) -> str:
    return Codec(type(message), _JSON_DIALECT).encode(message).decode()


class ConsoleOutput:
    """Writes results to stdout. On a terminal, control characters are escaped: texts come from remote agents. save: the
    folder that received files are written to; None prints their names only."""

    def __init__(self, save: Path | None = None, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.is_terminal = self._out.isatty()
        self._save = save
        self._linked_files: dict[tuple[str, str], str] = {}
        """Descriptions of files that are links in a response, by path and file name."""
        self._artifact_id = ""
        self.at_line_start = True  # whether the current line is empty

    def write(self, text: str) -> None:
        if not text:
            return
        self._out.write(escape_controls(text, preserve="\n\t") if self.is_terminal else text)
        self._out.flush()
        self.at_line_start = text.endswith("\n")

    def line(self, text: str = "", *, state: int = 0) -> None:
        """Writes text on a new line. It stays one line, also in a pipe: a caller's task id cannot add another. state:
        the task state whose name is colored."""
        self.end_line()
        self._out.write(f"{colored(escape_controls(text), state, self._out)}\n")
        self._out.flush()

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], row_states: Sequence[int], *, unbroken: int = 99
    ) -> None:
        """Writes rows in columns, each in the color of its task state. Only terminals get the header.

        `unbroken`: columns that share a line of a terminal, however narrow; the others go on on further lines.
        """
        cells = [[escape_controls(cell) for cell in row] for row in (*([header] if self.is_terminal else ()), *rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        limit = shutil.get_terminal_size().columns if self.is_terminal else None
        starts = [0]  # of each line
        for column in range(unbroken, len(widths)):
            if limit and sum(widths[starts[-1] : column + 1]) + 2 * (column - starts[-1] + 2) > limit:
                starts.append(column)
        for row, state in zip(cells, (*([0] if self.is_terminal else ()), *row_states), strict=True):
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            for start, end in pairwise((*starts, len(widths))):
                if start == 0 or any(row[start:end]):
                    text = "    " * (start > 0) + "  ".join(padded[start:end])
                    self.line(text.rstrip()[:limit], state=state * (start == 0))

    def messages(self, messages: Iterable[M], lines: Callable[[M], Iterable[str]], *, json: bool) -> None:
        """Writes messages: each as a line of ProtoJSON, or as `lines` formats it."""
        for message in messages:
            for line in (json_line(message),) if json else lines(message):
                self.line(line)

    def end_line(self) -> None:
        """Ends the current line unless it is empty."""
        if not self.at_line_start:
            self.write("\n")

    def json(self, message: Message, **keys: str) -> None:
        """Writes a protobuf message as one line of ProtoJSON, unfiltered, with further keys after its own."""
        line = json_line(message) if not keys else orjson.dumps({**orjson.loads(json_line(message)), **keys}).decode()
        self._out.write(f"{line}\n")
        self._out.flush()

    def chunk(self, update: pb.TaskArtifactUpdateEvent) -> None:
        """Writes an artifact update. A different or replaced artifact starts on a new line."""
        if update.artifact.artifact_id != self._artifact_id or not update.append:
            self.end_line()
            self._artifact_id = update.artifact.artifact_id
        self._parts(update.artifact.parts)

    def artifacts(self, artifacts: Iterable[pb.Artifact]) -> None:
        for artifact in artifacts:
            self.end_line()
            self._parts(artifact.parts)
            self._artifact_id = artifact.artifact_id
        self.end_line()

    def message(self, message: pb.Message) -> None:
        """Writes the parts of a message, starting on a new line."""
        self.end_line()
        self._parts(message.parts)
        self.end_line()

    async def receive(self, link: ContentLink, chunks: AsyncGenerator[bytes, None]) -> pb.Part:
        """Reads a text that a response links to. Writes a file to the folder as it arrives; its part keeps the link."""
        if link.is_text:
            return await read_part(link, chunks)
        async with aclosing(chunks):
            part, key = link.part, _link_key(link.part)
            if key not in self._linked_files:  # the events of a task, and the task, link to the same file
                size = "" if link.size is None else f", {link.size:,} bytes"
                done = "pass --save DIR to write it"
                if self._save is not None:
                    path, size = await _write_chunks(self._save, part.filename, chunks)
                    done = f"written to {path}"
                self._linked_files[key] = f"{_file_label(part)}{size}; {done}"
        return part

    def _parts(self, parts: Iterable[pb.Part]) -> None:
        for part in parts:
            match part.WhichOneof("content"):
                case "text":
                    self.write(part.text)
                case "data":
                    # A Struct has no field order on the wire; sorted keys make the output of two runs equal.
                    value = _PART_JSON_CODEC.to_dict(part)["data"]
                    self.line(orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode())
                case "raw":
                    done = "pass --save DIR to write it"
                    if self._save is not None:
                        done = f"written to {write_file(self._save, part.filename, part.raw)}"
                    self.line(f"[{_file_label(part)}, {len(part.raw):,} bytes; {done}]")
                case "url":
                    linked = self._linked_files.get(_link_key(part))
                    self.line(f"[{linked or ' '.join(filter(None, (part.filename, part.media_type, part.url)))}]")


def _file_label(part: pb.Part) -> str:
    return f"{part.filename or 'file'}, {part.media_type or 'application/octet-stream'}"


def _link_key(part: pb.Part) -> tuple[str, str]:
    """The identity of a linked file: each response signs its link anew."""
    return part.url.partition("?")[0], part.filename


async def _write_chunks(folder: Path, name: str, chunks: AsyncGenerator[bytes, None]) -> tuple[str, str]:
    """Writes a file as it arrives. Returns its path, and its size in words. Leaves no incomplete file behind."""
    with create_file(folder, name) as file:
        try:
            async for chunk in chunks:
                file.write(chunk)
        except BaseException:
            os.unlink(file.name)
            raise
        return str(file.name), f", {file.tell():,} bytes"


REMINDER_INTERVAL: Final = 15.0  # seconds without a change until a line repeats the state, if stderr is no terminal
SPINNER_DELAY: Final = 0.1  # seconds without output, so that it neither slows a fast stream down nor flickers
MAX_STATUS_WIDTH: Final = 100
_BRIEF_STATES: Final = ("SENT", "SUBMITTED")  # states that are printed only when they last


class Progress:
    """Shows a task's state on stderr while the block runs: a spinner on a terminal, else lines. Other output to the
    terminal must call `hide` before and `show` after. The spinner appears only where `may_show` allows it: not after
    half a line of text."""

    def __init__(self, *, may_show: Callable[[], bool] = lambda: True) -> None:
        self._terminal = sys.stderr.isatty()
        self._may_show = may_show
        self._spinner: Spinner | None = None
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
        """The time since the block began, such as `250 ms`, `3.1 s` or `2 min 5 s`."""
        seconds = time.monotonic() - self._started_at
        if seconds < 1:
            return f"{seconds * 1000:.0f} ms"
        total = int(seconds + 1e-6)  # a float just below 60 is 60
        return f"{seconds:.1f} s" if seconds < 60 else f"{total // 60} min {total % 60} s"

    def update(self, state: str, text: str = "") -> None:
        """Shows the state of the task and the text of its status message."""
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
        if self._show_timer is not None:
            self._show_timer.cancel()
            self._show_timer = None
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self) -> None:
        """Shows the spinner on a terminal, after a short time without other output."""
        if self._terminal and self._live is None and self._show_timer is None:
            self._show_timer = asyncio.get_running_loop().call_later(SPINNER_DELAY, self._appear)

    def _appear(self) -> None:
        from rich.console import Console  # imported for long calls on a terminal only
        from rich.live import Live

        self._show_timer = None
        if self._may_show():
            self._live = Live(
                console=Console(stderr=True, highlight=False),
                get_renderable=self._render_line,
                transient=True,
                refresh_per_second=10,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def note(self, text: str, *, state: int = 0) -> None:
        """Prints a permanent line. state: the task state whose name is colored."""
        self.hide()
        self._print(text, state=state)

    def _render_line(self) -> Spinner:
        from rich.spinner import Spinner
        from rich.text import Text

        self._spinner = self._spinner or Spinner("dots")
        line = f"{self._state}  {self.elapsed}  {self._text}".rstrip()
        self._spinner.update(text=Text(line, overflow="ellipsis", no_wrap=True))
        return self._spinner

    def _print(self, text: str, *, state: int = 0) -> None:
        # Not through rich: texts come from agents and are not markup, and programs expect unwrapped lines.
        print(colored(_printable(text.rstrip()), state, sys.stderr), file=sys.stderr, flush=True)

    def _remind_later(self) -> None:
        if self._terminal:
            return
        if self._reminder_timer is not None:
            self._reminder_timer.cancel()
        self._reminder_timer = asyncio.get_running_loop().call_later(REMINDER_INTERVAL, self._remind)

    def _remind(self) -> None:
        self._print(f"{self._state}  unchanged after {self.elapsed}")
        self._remind_later()


def _printable(text: str) -> str:
    """Removes characters that could move the cursor: texts come from agents."""
    return "".join(character for character in text if character.isprintable())
