"""Results on stdout: artifacts and messages as text, or everything as ProtoJSON lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import Final, TextIO

import orjson
from google.protobuf.message import Message

from dragoman.client.files import written
from dragoman.core import states
from dragoman.core.usage import BILLION, said
from dragoman.wire.protojson import Codec, JsonDialect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_JSON: Final = JsonDialect("1.0")
_PART: Final = Codec(pb.Part, _JSON)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def state_name(state: int) -> str:
    """The state as people read it: `COMPLETED`."""
    return states.name(state).removeprefix("TASK_STATE_")


def when(task: pb.Task) -> str:
    """The time of a task's status, where the reader is."""
    time = task.status.timestamp.ToDatetime(UTC).astimezone()
    return f"{time:%Y-%m-%d %H:%M:%S}"


def text_of(message: pb.Message) -> str:
    """What a message says, for one line among others."""
    return " ".join(part.text.strip() for part in message.parts if part.HasField("text"))


def used_of(task: pb.Task) -> str:
    """What a task has used, as its metadata say; empty where they say nothing."""
    usage = said(task.metadata)
    return f"{usage.tokens:,} tokens, cost {usage.cost / BILLION:g}" if usage else ""


def json_line(message: Message) -> str:
    """A message as one line of ProtoJSON."""
    return Codec(type(message), _JSON).encode(message).decode()


class Output:
    """Stdout. Text is written as it is, but a terminal is not handed control characters that came from afar.

    save: the folder that files are written to; None only names them.
    """

    def __init__(self, save: Path | None = None, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.is_terminal = self._out.isatty()
        self._save = save
        self._shown = ""
        self.at_line_start = True
        """Whether nothing stands yet on the line being written."""

    def write(self, text: str) -> None:
        """Writes text at once."""
        if not text:
            return
        self._out.write(_CONTROL.sub("", text) if self.is_terminal else text)
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
        if update.artifact.artifact_id != self._shown or not update.append:
            self.end_line()
            self._shown = update.artifact.artifact_id
        self._parts(update.artifact.parts)

    def artifacts(self, artifacts: Iterable[pb.Artifact]) -> None:
        """Writes whole artifacts."""
        for artifact in artifacts:
            self.end_line()
            self._parts(artifact.parts)
            self._shown = artifact.artifact_id
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
                    self.line(orjson.dumps(_PART.to_dict(part)["data"], option=orjson.OPT_SORT_KEYS).decode())
                case "raw":
                    self.line(self._file(part))
                case "url":
                    self.line(f"[{' '.join(filter(None, (part.filename, part.media_type, part.url)))}]")

    def _file(self, part: pb.Part) -> str:
        about = f"{part.filename or 'file'}, {part.media_type or 'application/octet-stream'}, {len(part.raw):,} bytes"
        if self._save is None:
            return f"[{about}; --save DIR writes it]"
        path = written(self._save, part.filename, part.raw)
        return f"[{about}; written to {path}]"
