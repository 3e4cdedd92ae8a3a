r"""Parts in JSON: three families, all accepted in every dialect.

| family | text | bytes | data |
|---|---|---|---|
| flat (1.0 §4.1.6, fasta2a 2.x) | `{text}` | `{raw, filename, mediaType}` | `{data}`: any JSON |
| `kind` (0.2, 0.3), or `type` (0.1, a2a-rust 0.3) | `{kind: "text", text}` \
| `{kind: "file", file: {bytes, name, mimeType}}` | `{kind: "data", data}`: an object |

A link is `url` in the first family and `file.uri` in the others. In the older two, data that is not an object is
`{"value": …}` with the part metadata `data_part_compat`, as in the official converters; media type and file name of a
part that is not a file are omitted, because they have no field for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeGuard

from dragoman.wire.json import wellknown
from dragoman.wire.json.wellknown import Decode, Encode, FieldError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DATA_WRAPPER_KEY: Final = "data_part_compat"
"""Part metadata: the actual data is under the key `value`, because it is not an object."""

_TAGS: Final = ("kind", "type")
_MEMBERS: Final = ("text", "file", "data")


def part_decoder(decode_flat: Decode) -> Decode:
    """A decoder of parts of all families; `decode_flat` decodes those of 1.0."""

    def read(part: Any, value: object) -> None:
        if is_tagged(value):
            _read_tagged(part, value)
        else:
            decode_flat(part, value)

    return read


def is_tagged(part: object) -> TypeGuard[dict[str, Any]]:
    """Whether a part belongs to one of the older families."""
    return type(part) is dict and ("kind" in part or "type" in part or "file" in part)


def is_rust(request: object) -> bool:
    """Whether a send in 1.0 form comes from a2a-rust: its first part has a `type`."""
    message = request.get("message") if isinstance(request, dict) else None
    message_parts = message.get("parts") if isinstance(message, dict) else None
    first = message_parts[0] if isinstance(message_parts, list) and message_parts else None
    return isinstance(first, dict) and "type" in first


def _read_tagged(part: Any, value: dict[str, Any]) -> None:
    tag = next((name for name in _TAGS if value.get(name) is not None), None)
    kind = value[tag] if tag else None
    if kind is not None and kind not in _MEMBERS:
        raise FieldError(f"must be one of {', '.join(_MEMBERS)}; not {wellknown.describe_value(kind)}", tag or "")
    members = [name for name in _MEMBERS if value.get(name) is not None]
    if kind == "data" and "data" in value and "data" not in members:
        raise FieldError("must be a JSON object", "data")
    if len(members) > 1:
        raise FieldError(f"cannot stand beside {members[0]}; give only one of {', '.join(_MEMBERS)}", members[1])
    if kind is not None and members != [kind]:
        raise FieldError(f'is required in a part whose {tag} is "{kind}"', kind)
    if not members:
        raise FieldError(f"must have one of {', '.join(_MEMBERS)}")
    if (metadata := value.get("metadata")) is not None:
        _read_field("metadata", wellknown.decode_struct, part.metadata, metadata)
        part.metadata.SetInParent()
    match members[0]:
        case "text":
            part.text = _text("text", value["text"])
        case "file":
            _read_field("file", _read_file, part, value["file"])
        case _:
            _read_data(part, value["data"])


def _read_data(part: Any, data: object) -> None:
    if type(data) is dict and list(data) == ["value"] and is_wrapped(part):
        _read_field("data", wellknown.decode_value, part.data, data["value"])
        remove_wrapper_key(part)
        return
    if type(data) is not dict:
        raise FieldError("must be a JSON object", "data")
    part.data.struct_value.SetInParent()
    _read_field("data", wellknown.decode_struct, part.data.struct_value, data)


def is_wrapped(part: Any) -> bool:
    """Whether the metadata of a part say that its data is under the key `value`."""
    # The `in` is needed: reading a missing key of a message map creates it.
    return DATA_WRAPPER_KEY in part.metadata.fields and part.metadata.fields[DATA_WRAPPER_KEY].bool_value


def remove_wrapper_key(part: pb.Part) -> None:
    """Removes the mark of wrapped data, and metadata without any other key."""
    del part.metadata.fields[DATA_WRAPPER_KEY]
    if not part.metadata.fields:
        part.ClearField("metadata")


def _read_file(part: Any, file: object) -> None:
    if type(file) is not dict:
        raise FieldError("must be a JSON object")
    content, link = file.get("bytes", file.get("data")), file.get("uri", file.get("url"))
    if (content is None) == (link is None):
        raise FieldError("must have exactly one of bytes, uri")
    if (name := file.get("name")) is not None:
        part.filename = _text("name", name)
    for key in ("mimeType", "mime_type"):
        if (media_type := file.get(key)) is not None:
            part.media_type = _text(key, media_type)
    if link is not None:
        part.url = _text("uri", link)
        return
    try:
        part.raw = wellknown.decode_bytes(content)
    except FieldError as error:
        error.path.append("bytes")
        raise


def part_encoder(tag: str) -> Encode:
    """An encoder of parts with the discriminator `tag`: `kind` or `type`."""

    def write(part: Any) -> dict[str, Any]:
        content = part.WhichOneof("content")
        out: dict[str, Any] = {}
        metadata = wellknown.encode_struct(part.metadata) if part.HasField("metadata") else None
        match content:
            case "text":
                out = {tag: "text", "text": part.text}
            case "raw":
                out = {tag: "file", "file": _file(part, "bytes", wellknown.encode_bytes(part.raw))}
            case "url":
                out = {tag: "file", "file": _file(part, "uri", part.url)}
            case "data":
                data = wellknown.encode_value(part.data)
                if type(data) is not dict:
                    data, metadata = {"value": data}, {**(metadata or {}), DATA_WRAPPER_KEY: True}
                out = {tag: "data", "data": data}
            case _:  # a part without content, which clients of these families reject
                out = {tag: "text", "text": ""}
        if metadata is not None:
            out["metadata"] = metadata
        return out

    return write


def _file(part: Any, key: str, content: str) -> dict[str, str]:
    file = {key: content}
    if part.filename:
        file["name"] = part.filename
    if part.media_type:
        file["mimeType"] = part.media_type
    return file


def _text(name: str, value: object) -> str:
    if type(value) is not str:
        raise FieldError(f"must be a string, not {wellknown.describe_value(value)}", name)
    return value


def _read_field(name: str, read: Any, message: Any, value: object) -> None:
    try:
        read(message, value)
    except FieldError as error:
        error.path.append(name)
        raise


def find_parts(message: Any, path: str = "") -> Iterator[tuple[str, pb.Part]]:
    if isinstance(message, pb.Part):
        yield path, message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.file.package != pb.DESCRIPTOR.package:
            continue
        name = f"{path}.{field.json_name}" if path else field.json_name
        if field.is_repeated:
            for index, item in enumerate(value):
                yield from find_parts(item, f"{name}[{index}]")
        else:
            yield from find_parts(value, name)
