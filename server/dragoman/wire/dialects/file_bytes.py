"""Files of `a2a.v1`: the same `bytes` field holds the file for some implementations, its base64 text for others.

| in `file_with_bytes` | implementations |
|---|---|
| the bytes of the file, as the proto says | @a2a-js/sdk, Google's clients, a2a-go 2.0 to 2.3 |
| base64 text | a2a-sdk 0.3 and the 0.3 layer of 1.x, a2a-java, a2a-go 0.3 and the 0.3 layer after 2.3 |

Content that is base64 in every detail (standard alphabet, padding, unused bits zero, no line breaks) is text. A file
whose bytes are themselves such text is ambiguous, and read as text: it is all that the second kind ever sends. As one
implementation wrote the entire message, one file that is not base64 proves that none is. Empty files are equal in both.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import Message

from dragoman.core.agent_sources import FileForm
from dragoman.core.errors import InvalidParams
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_PACKAGE: Final = pb.DESCRIPTOR.package


def decode_base64(data: bytes) -> bytes | None:
    """The content of canonical base64 text; None for anything else, and for nothing."""
    if not data or len(data) % 4:
        return None
    try:
        content = a2b_base64(data, strict_mode=True)
    except Base64Error:
        return None
    return content if b2a_base64(content, newline=False) == data else None


def read_files(message: Message, form: FileForm = "auto") -> bool | None:
    """Decodes the files of a 1.0 message that was converted from `a2a.v1`, in place.

    Returns whether they were base64 text; None if it has no files, or only empty ones. Raises InvalidParams, naming the
    part, for a file that is not the base64 text that `form` demands.
    """
    files = list(_files(message, ""))
    if not files:
        return None
    if form == "bytes":
        return False
    contents = [decode_base64(part.raw) for _, part in files]
    if form == "auto" and None in contents:
        return False
    for (path, part), content in zip(files, contents, strict=True):
        if content is None:
            raise InvalidParams.field(f"{path}.file.fileWithBytes", "must be base64 text with padding, by v03_files")
        part.raw = content
    return True


def write_base64(message: Message) -> None:
    """Replaces the files of a 1.0 message with their base64 text, in place, before it is converted to `a2a.v1`."""
    for _, part in _files(message, ""):
        part.raw = b2a_base64(part.raw, newline=False)


def _files(message: Any, path: str) -> Iterator[tuple[str, pb.Part]]:
    """The parts with content as bytes anywhere in a message, with their paths; empty ones are left out."""
    if isinstance(message, pb.Part):
        if message.raw:
            yield path, message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.file.package != _PACKAGE:
            continue
        name = f"{path}.{field.json_name}" if path else field.json_name
        if isinstance(value, Message):
            yield from _files(value, name)
        else:
            for index, item in enumerate(value):
                yield from _files(item, f"{name}[{index}]")
