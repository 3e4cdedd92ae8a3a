"""Messages and artifacts as JSON that people read in a diff, without what is another each time.

| part                  | as JSON                                                                  |
|-----------------------|--------------------------------------------------------------------------|
| text                  | `{"text": "one line"}`, or `{"text": ["one", "line each"]}`               |
| data                  | `{"data": ...}`                                                          |
| bytes, of the agent   | `{"file": "a.csv", "mediaType": "text/csv", "text": [...]}`, or their size and digest |
| bytes, of the caller  | `{"file": "a.png", "mediaType": "image/png", "base64": "..."}`           |
| link                  | `{"url": "https://..."}`                                                 |

Text parts that follow each other are one: where a chunk ends is chance.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Final

from dragoman.agents.plain import fill, fill_object, read, read_object
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

READABLE: Final = 64 * 1024
"""Bytes of a text file that stand in a recording."""

RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b|\bid-\d+\b")
"""A UUID, one without dashes, or what `dragoman.testing.Ids` counts."""

TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")

Cleaned = Callable[[str], str]


def cleaner(known: Iterable[tuple[str, str]]) -> Cleaned:
    """Takes ids and times out of a text: those known by their own words, the others as `<id>` and `<time>`."""
    words = [(text, instead) for text, instead in known if text]

    def clean(text: str) -> str:
        for word, instead in words:
            text = text.replace(word, instead)
        return TIME.sub("<time>", RANDOM_ID.sub("<id>", text))

    return clean


def as_is(text: str) -> str:
    """Leaves a text alone: what callers said is sent again as it was."""
    return text


def lines(text: str) -> str | list[str]:
    """A text as JSON: one line, or a list of them."""
    return text.split("\n") if "\n" in text else text


def text_of(value: str | list[str]) -> str:
    """The text that `lines` made something of."""
    return value if isinstance(value, str) else "\n".join(value)


def parts_as_json(parts: Iterable[pb.Part], clean: Cleaned, *, whole: bool) -> list[dict[str, Any]]:
    """Parts; `whole`: with the bytes of files, so that they can be sent again."""
    found: list[dict[str, Any]] = []
    for part in joined(parts):
        about: dict[str, Any] = {}
        match part.WhichOneof("content"):
            case "text":
                about["text"] = lines(clean(part.text))
            case "data":
                about["data"] = cleaned(read(part.data), clean)
            case "raw":
                about["file"] = clean(part.filename)
            case "url":
                about["url"] = clean(part.url)
                if part.filename:
                    about["file"] = clean(part.filename)
        if part.media_type:
            about["mediaType"] = part.media_type
        if part.WhichOneof("content") == "raw":
            about |= _content(part.raw, part.media_type, clean, whole)
        if part.HasField("metadata"):
            about["metadata"] = cleaned(read_object(part.metadata), clean)
        found.append(about)
    return found


def parts_from_json(told: Iterable[dict[str, Any]]) -> list[pb.Part]:
    """What `parts_as_json` made whole."""
    made = []
    for one in told:
        part = pb.Part(media_type=one.get("mediaType", ""), filename=one.get("file", ""))
        if "base64" in one:
            part.raw = base64.b64decode(one["base64"])
        elif "url" in one:
            part.url = one["url"]
        elif "data" in one:
            fill(part.data, one["data"])
        elif "file" in one:
            part.raw = text_of(one["text"]).encode()
        else:
            part.text = text_of(one["text"])
        if "metadata" in one:
            fill_object(part.metadata, one["metadata"])
        made.append(part)
    return made


def joined(parts: Iterable[pb.Part]) -> list[pb.Part]:
    """Parts, with neighbours of nothing but text joined."""
    found: list[pb.Part] = []
    for part in parts:
        if found and _only_text(part) and _only_text(found[-1]):
            found[-1] = pb.Part(text=found[-1].text + part.text)
        else:
            found.append(part)
    return found


def cleaned(value: Any, clean: Cleaned) -> Any:
    """JSON with its texts cleaned."""
    match value:
        case str():
            return clean(value)
        case list():
            return [cleaned(one, clean) for one in value]
        case dict():
            return {clean(name): cleaned(one, clean) for name, one in value.items()}
    return value


def _content(raw: bytes, media_type: str, clean: Cleaned, whole: bool) -> dict[str, Any]:
    if len(raw) <= READABLE and (media_type.startswith("text/") or media_type == "application/json"):
        try:
            return {"text": lines(clean(raw.decode()))}
        except UnicodeDecodeError:
            pass
    if whole:
        return {"base64": base64.b64encode(raw).decode()}
    return {"bytes": len(raw), "sha256": sha256(raw).hexdigest()}


def _only_text(part: pb.Part) -> bool:
    return part.WhichOneof("content") == "text" and not (part.media_type or part.filename or part.HasField("metadata"))
