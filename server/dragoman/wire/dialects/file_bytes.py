"""Files of `a2a.v1`: the `bytes` field holds the file, or its base64 text if a caller says so.

| in `file_with_bytes` | implementations |
|---|---|
| the bytes of the file, as the proto says | @a2a-js/sdk, Google's clients, a2a-go 2.0 to 2.3, generated stubs |
| base64 text | a2a-sdk 0.3 and the 0.3 layer of 1.x, a2a-java, a2a-go 0.3 and the 0.3 layer after 2.3 |

No header, field or content tells the two apart: the file `test` is base64 text as well, and so is any base64 text that
is itself the file, whatever its media type. So nothing is guessed. Bytes are the file, unless the setting or an
extension that the caller activates says that they are base64 text. Google's resource paths always have bytes.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Collection
from typing import Final

from google.protobuf.message import Message

from dragoman.core.agent_sources import FileForm
from dragoman.core.cards.agent_spec import BASE64_FILES_EXTENSION
from dragoman.core.errors import InvalidParams
from dragoman.core.names import RESOURCE_NAME
from dragoman.wire.dialects.parts import find_parts


def are_base64(form: FileForm, tenant: str, extensions: Collection[str] = ()) -> bool:
    """Whether the files of a call in 0.3 over gRPC or REST are base64 text, both ways.

    `form`: the setting. `tenant`: of the request. `extensions`: those that the caller activates.
    """
    return (form == "base64" or BASE64_FILES_EXTENSION.uri in extensions) and not RESOURCE_NAME.match(tenant.strip("/"))


def read_base64(message: Message, *, strict: bool = True) -> None:
    """Decodes the files of a 1.0 message that was converted from `a2a.v1`, in place.

    Raises InvalidParams, naming the part, for a file that is not canonical base64 text; it stays if not `strict`.
    """
    for path, part in find_parts(message):
        if not part.raw:
            continue
        content = _decode(part.raw)
        if content is None and strict:
            raise InvalidParams.field(
                f"{path}.file.fileWithBytes",
                "must be base64 text with padding, as v03_files or the extension of the call says",
            )
        part.raw = part.raw if content is None else content


def write_base64(message: Message) -> None:
    """Replaces the files of a 1.0 message with their base64 text, in place, before it is converted to `a2a.v1`."""
    for _, part in find_parts(message):
        if part.raw:
            part.raw = b2a_base64(part.raw, newline=False)


_LINE_CHARS: Final = frozenset((64, 76))


def _decode(data: bytes) -> bytes | None:
    """The content of canonical base64 text, in one line or in those of MIME or PEM; None for anything else."""
    if len(lines := data.splitlines()) > 1 and {len(line) for line in lines[:-1]} <= _LINE_CHARS:
        data = b"".join(lines)
    try:
        content = a2b_base64(data, strict_mode=True)
    except Base64Error:
        return None
    return content if b2a_base64(content, newline=False) == data else None
