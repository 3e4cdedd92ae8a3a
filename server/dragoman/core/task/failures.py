"""Why a task failed, as it is stored beside the task. For operators: nothing that a caller reads has any of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dragoman.core.exceptions import MAX_CAUSE_FRAMES, MAX_LINE_CHARS, MAX_NAME_CHARS, MAX_STORED_CAUSES
from dragoman.core.task.projection import MAX_STATUS_TEXT
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MAX_TEXT_BYTES: Final = 4096  # of the text of an exception
CAUSE_DIGITS: Final = 16  # hexadecimal digits of the name of a group of failures

_NUMBER: Final = re.compile(r"[0-9A-Fa-f-]+")


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The failure of a task."""

    cause: str  # the same for equal failures of an agent: see `FailureGroup` in ops/v1/failures.proto
    text: str  # `Class: text`, on one line
    data: bytes  # a serialized `Failure`


def task_failure(reported: bytes, message: bytes, agent: str, attempt: int) -> TaskFailure:
    """The failure of a task that ends as FAILED.

    reported: the serialized `Failure` of its agent, within no limits; empty if the status `message` alone explains it.
    """
    failure = wk.Failure.FromString(reported)
    if not reported and message:
        status = pb.Message.FromString(message)
        failure.type = status.metadata.fields["reason"].string_value if "reason" in status.metadata.fields else ""
        failure.text = "".join(part.text for part in status.parts).removeprefix(f"{failure.type}: ")
    failure.attempt = attempt
    failure.type, failure.step = failure.type[:MAX_NAME_CHARS], failure.step[:MAX_NAME_CHARS]
    failure.text = failure.text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
    failure.causes[:] = [text[: MAX_LINE_CHARS + 100] for text in failure.causes[:MAX_STORED_CAUSES]]
    del failure.frames[:-MAX_CAUSE_FRAMES]
    for frame in failure.frames:
        frame.file, frame.function = frame.file[-MAX_LINE_CHARS:], frame.function[:MAX_LINE_CHARS]
        frame.code = frame.code[:MAX_LINE_CHARS]
    text = " ".join(": ".join(filter(None, (failure.type, failure.text))).split())
    return TaskFailure(_cause(agent, failure), text[:MAX_STATUS_TEXT], failure.SerializeToString())


def _cause(agent: str, failure: wk.Failure) -> str:
    place = _NUMBER.sub(lambda match: "#" if any(map(str.isdigit, match[0])) else match[0], failure.text)
    if failure.frames:
        deepest = failure.frames[-1]
        place = f"{deepest.file.rpartition('/')[2]} {deepest.function}"
    return sha256("\n".join((agent, failure.type, place)).encode()).hexdigest()[:CAUSE_DIGITS]
