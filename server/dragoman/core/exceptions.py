"""Causes, text and traceback of any exception.

Code of others raises classes that we do not know. Causes may form a ring; `__str__` and attributes may raise, lie or
return megabytes. These functions read what the interpreter itself has stored, bound how much of it, and never raise.
Executor processes load this file, too: it needs nothing but the standard library of Python 3.10.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from types import FrameType, TracebackType
from typing import Any, Final, TypeGuard, TypeVar, cast

MAX_CAUSES: Final = 64  # exceptions that are looked at, of all that are connected by causes and groups

MAX_TEXT_CHARS: Final = 4_000  # characters of an exception's text
MAX_NAME_CHARS: Final = 200  # characters of a class's name
MAX_FRAMES: Final = 400  # frames of a traceback text, of all its exceptions together

MAX_TRACEBACK_ENTRIES: Final = 2_000
"""Entries of one traceback that are looked at: a raise of the same object adds to them each time."""

MAX_GROUP_DEPTH: Final = 8  # groups in groups whose exceptions a traceback text shows
MAX_TRACEBACK_CHARS: Final = 30_000  # characters of a traceback text
MAX_NOTES: Final = 8  # notes of an exception that a traceback text shows
MAX_CAUSE_FRAMES: Final = 20  # frames of the author's code that are stored with a failure
MAX_STORED_CAUSES: Final = 4  # exceptions behind one that are stored with a failure
MAX_LINE_CHARS: Final = 300  # characters of the line of a frame, of its file and of its function

# A class may replace these attributes; the descriptors of the interpreter read what it has stored.
_CAUSE: Final[Any] = BaseException.__dict__["__cause__"]
_CONTEXT: Final[Any] = BaseException.__dict__["__context__"]
_IS_CONTEXT_HIDDEN: Final[Any] = BaseException.__dict__["__suppress_context__"]
_TRACEBACK: Final[Any] = BaseException.__dict__["__traceback__"]
_ATTRIBUTES: Final[Any] = BaseException.__dict__["__dict__"]
_CLASS_NAME: Final[Any] = type.__dict__["__name__"]
try:
    _GROUP: type[BaseException] | None = BaseExceptionGroup
    _MEMBERS: Any = BaseExceptionGroup.__dict__["exceptions"]
except NameError:  # Python 3.10
    _GROUP = _MEMBERS = None


E = TypeVar("E", bound=BaseException)


def is_a(error: BaseException, kind: type[E] | tuple[type[E], ...]) -> TypeGuard[E]:
    """`isinstance` for exceptions of others, whose `__class__` may raise or lie."""
    return issubclass(type(error), kind)


def walk(error: BaseException) -> Iterator[BaseException]:
    """The exception, its causes, contexts and members of groups: each once, nearest first, at most MAX_CAUSES."""
    seen, pending = {id(error)}, deque([error])
    while pending:
        current = pending.popleft()
        yield current
        for other in (_CAUSE.__get__(current), _CONTEXT.__get__(current), *members(current)):
            if len(seen) == MAX_CAUSES:
                break
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                pending.append(other)


def members(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions of a group; empty if it is none."""
    found: tuple[BaseException, ...] = _MEMBERS.__get__(error) if _GROUP and is_a(error, _GROUP) else ()
    return found


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group and in the groups in it, in order; the exception itself if it is no group.

    At most MAX_CAUSES. Deeper groups than that are not opened.
    """
    found: list[BaseException] = []
    pending, opened = [error], 0
    while pending and len(found) < MAX_CAUSES:
        current = pending.pop()
        inner, opened = (members(current), opened + 1) if opened < MAX_CAUSES else ((), opened)
        if inner:
            pending += reversed(inner[:MAX_CAUSES])
        else:
            found.append(current)
    return found


def name_of(error: BaseException) -> str:
    name: str = _CLASS_NAME.__get__(type(error))
    return str.__getitem__(name, slice(MAX_NAME_CHARS))


def text_of(error: BaseException, limit: int = MAX_TEXT_CHARS) -> str:
    """Its text, in valid UTF-8, cut after `limit` characters."""
    try:
        text = str(error)
        cut = str.__getitem__(text, slice(limit))  # of a subclass of str, too
        is_whole = str.__len__(text) <= limit
    except BaseException as failure:
        return f"its text is unknown: __str__ failed with {name_of(failure)}"
    return cut.encode(errors="backslashreplace").decode()[:limit] + ("" if is_whole else "…")


def describe(error: BaseException, limit: int = MAX_TEXT_CHARS) -> str:
    """`Name: text`, or the name alone if there is no text."""
    text = text_of(error, limit)
    return f"{name_of(error)}: {text}" if text else name_of(error)


def describe_leaf(error: BaseException, text: str = "") -> str:
    """Describes the first exception of a group, or repeats `text`, and adds how many others it has, up to a limit."""
    first, *rest = leaves(error)
    more = f" (and {len(rest)}{'+' * (len(rest) == MAX_CAUSES - 1)} more)" if rest else ""
    return (text or describe(first)) + more


ERROR_ID_BYTES: Final = 6  # random bytes of an error id, which is written in hexadecimal


def generic_error_text(error_id: str) -> str:
    """The text that a caller sees in place of an exception's."""
    return f"The agent failed. The operator finds the cause in the log under error id {error_id}."


def traceback_of(error: BaseException) -> TracebackType | None:
    found: TracebackType | None = _TRACEBACK.__get__(error)
    return found


def forget_frames(error: BaseException) -> None:
    """Drops what refers to the frames that an exception has passed, so that they do not live as long as it."""
    error.__traceback__ = error.__context__ = None


def stack_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames of its traceback with the lines, outermost first."""
    return islice(traceback.walk_tb(traceback_of(error)), MAX_TRACEBACK_ENTRIES)


def format_traceback(
    error: BaseException, is_hidden: Callable[[str], bool] = lambda file: False, *, hides_all: bool = False
) -> str:
    """Its traceback after those of its causes, as Python prints them.

    Frames of files that are hidden are left out, where others remain or `hides_all` is set.
    """
    text = _valid(_TracebackText(is_hidden, hides_all).of(error))
    return text if len(text) <= MAX_TRACEBACK_CHARS else f"…{text[-MAX_TRACEBACK_CHARS:]}"


_PACKAGE: Final = __file__.rpartition("core/")[0]  # of this file
_OWN_AGENTS: Final = f"{_PACKAGE}playground.py"
_STANDARD_LIBRARY: Final = f"{sysconfig.get_path('stdlib')}/"
_LIBRARY_FOLDERS: Final = frozenset(("site-packages", "dist-packages"))
_STEP_KEY: Final = "__dragoman_step__"  # in the attributes of an exception


def is_own_file(file: str) -> bool:
    """Whether a file is ours, which explains nothing to the author of an agent."""
    return file.startswith(_PACKAGE) and file != _OWN_AGENTS


def note_step(error: BaseException, step: str) -> None:
    """Notes with an exception the durable step that it ended."""
    dict.__setitem__(_ATTRIBUTES.__get__(error), _STEP_KEY, step)


def failure_fields(error: BaseException, group: BaseException | None = None, own_file: str = "") -> dict[str, Any]:
    """The fields of the `Failure` (dragoman.worker.v1) that is stored for operators.

    The type and the text of a group are those of its first leaf; the other leaves are the first causes. group: what was
    raised, if `error` was in it. own_file: a file of the author's, whose folder is the author's, too: an agent may be
    installed as a library.
    """
    raised = group or error
    error = leaves(error)[0]
    others = {id(leaf): leaf for one in walk(raised) for leaf in leaves(one) if leaf is not error}
    behind = [one for one in others.values() if not members(one)]
    frames = _frames([error, *behind], lambda file: _is_library(file, own_file))
    steps = (dict.get(_ATTRIBUTES.__get__(one), _STEP_KEY) for one in (error, *behind))
    return {
        "type": _valid(name_of(error)),
        "text": text_of(error),
        "frames": frames or _frames([error, *behind], is_own_file),
        "step": next((step for step in steps if type(step) is str), ""),
        "causes": list(dict.fromkeys(describe(one, MAX_LINE_CHARS) for one in behind[:MAX_CAUSES]))[:MAX_STORED_CAUSES],
    }


def _frames(errors: list[BaseException], is_hidden: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The last frames of the first exception that has some, as fields of `FailureFrame`."""
    found: deque[tuple[FrameType, int]] = deque(maxlen=MAX_CAUSE_FRAMES)
    for error in errors:
        found.extend(entry for entry in stack_of(error) if not is_hidden(entry[0].f_code.co_filename))
        if found:
            break
    return [
        {
            "file": _valid(frame.f_code.co_filename[-MAX_LINE_CHARS:]),
            "line": line or 0,
            "function": _valid(frame.f_code.co_name[:MAX_LINE_CHARS]),
            "code": _valid(_source(frame.f_code.co_filename, line or 0).strip()[:MAX_LINE_CHARS]),
        }
        for frame, line in found
    ]


def _source(file: str, line: int) -> str:
    """A line of a source file; empty if it cannot be read."""
    try:
        return linecache.getline(file, line)
    except Exception:  # of the file's name, or of a loader of others
        return ""


def _is_library(file: str, own_file: str) -> bool:
    """Whether a file is ours, or of a library whose folder has none of the author's files."""
    if is_own_file(file) or file.startswith((_STANDARD_LIBRARY, "<frozen")):
        return True
    is_installed = not _LIBRARY_FOLDERS.isdisjoint(file.split("/"))
    return is_installed and not (own_file and file.startswith(own_file.rpartition("/")[0] + "/"))


def _valid(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


_CAUSED: Final = "\nThe above exception was the direct cause of the following exception:\n"
_DURING: Final = "\nDuring handling of the above exception, another exception occurred:\n"


class _TracebackText:
    """Formats the traceback of one failure within the limits."""

    def __init__(self, is_hidden: Callable[[str], bool], hides_all: bool) -> None:
        self._is_hidden = is_hidden
        self._hides_all = hides_all
        self._seen: set[int] = set()
        self._frames_left = MAX_FRAMES

    def of(self, error: BaseException, depth: int = 0) -> str:
        """The text of an exception and its causes. `depth`: the groups that it is in."""
        self._seen.add(id(error))
        parts, current = [self._one(error, depth)], error  # the nearest takes its frames first: it matters most
        while True:
            cause, link = _CAUSE.__get__(current), _CAUSED
            if cause is None and not _IS_CONTEXT_HIDDEN.__get__(current):
                cause, link = _CONTEXT.__get__(current), _DURING
            if cause is None:
                break
            if id(cause) in self._seen or len(self._seen) >= MAX_CAUSES:
                parts.append("(further causes are not shown)")
                break
            self._seen.add(id(cause))
            parts += [link, self._one(cause, depth)]
            current = cause
        return "\n".join(reversed(parts))

    def _one(self, error: BaseException, depth: int) -> str:
        lines = [*self._stack(error), describe(error), *_notes(error)]
        for number, member in enumerate(members(error), 1):
            if len(self._seen) >= MAX_CAUSES or depth >= MAX_GROUP_DEPTH:
                lines.append("  | (further exceptions of the group are not shown)")
                break
            if id(member) not in self._seen:
                lines.append(f"  +---------------- {number} ----------------")
                lines += [f"  | {line}" for line in self.of(member, depth + 1).splitlines()]
        return "\n".join(lines)

    def _stack(self, error: BaseException) -> list[str]:
        try:
            frames = traceback.extract_tb(traceback_of(error), limit=self._frames_left)
        except Exception:  # of a file's name, or of a loader of others
            return ["Traceback (its lines cannot be read)"]
        self._frames_left -= len(frames)
        shown = [frame for frame in frames if not self._is_hidden(frame.filename)]
        if not (shown or self._hides_all):
            shown = frames
        lines = "".join(traceback.StackSummary.from_list(shown).format()).splitlines()
        return ["Traceback (most recent call last):", *lines] if lines else []


def _notes(error: BaseException) -> list[str]:
    try:
        notes = dict.get(cast("dict[str, object]", _ATTRIBUTES.__get__(error)), "__notes__")
    except BaseException:
        return []
    if type(notes) is not list:
        return []
    return [note[:MAX_TEXT_CHARS] for note in notes[:MAX_NOTES] if type(note) is str]
