"""Files and JSON values of messages: parts to send, and safe file names for results."""

from __future__ import annotations

import math
import mimetypes
import os
import re
from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FileInput = Path | str | bytes | tuple[str, bytes] | pb.Part  # its path, bytes, name and bytes, or a complete part

# Not the system's table, which differs between machines (Windows maps .csv to a spreadsheet type).
_MEDIA_TYPES: Final = mimetypes.MimeTypes(filenames=())
for _ending, _type in {
    ".csv": "text/csv",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}.items():
    _MEDIA_TYPES.add_type(_type, _ending)

_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RESERVED_NAMES: Final = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")
_MAX_NAME_BYTES: Final = 200


def media_type(name: str) -> str:
    """Guesses the media type from a file name."""
    guessed, encoding = _MEDIA_TYPES.guess_type(name)
    if guessed is None or encoding is not None:  # a .csv.gz is not CSV
        return "application/octet-stream"
    return guessed


def to_part(file: FileInput) -> pb.Part:
    """Returns the part for a file; a path is read immediately. Raises OSError."""
    if isinstance(file, pb.Part):
        return file
    if isinstance(file, bytes):
        return pb.Part(raw=file, filename="file", media_type="application/octet-stream")
    if isinstance(file, tuple):
        name, content = file
        return pb.Part(raw=content, filename=name, media_type=media_type(name))
    path = Path(file)
    return pb.Part(raw=path.read_bytes(), filename=path.name, media_type=media_type(path.name))


def safe_name(name: str) -> str:
    """Makes a remote file name safe on every system: no path, control characters, leading dots, or names reserved by
    Windows."""
    last = re.split(r"[/\\]", _CONTROL_CHARACTERS.sub("", name))[-1]
    plain = re.sub(r'[<>:"|?*]', "_", last).lstrip(".").rstrip(". ")
    if _RESERVED_NAMES.fullmatch(plain):
        plain = f"_{plain}"
    stem, suffix = os.path.splitext(plain)
    room = _MAX_NAME_BYTES - len(suffix.encode("utf-8", "replace"))
    if len(plain.encode("utf-8", "replace")) > _MAX_NAME_BYTES and room > 0:
        plain = stem.encode("utf-8", "replace")[:room].decode("utf-8", "ignore") + suffix
    return plain[:_MAX_NAME_BYTES] or "file"


def write_file(folder: Path | str, name: str, content: bytes) -> Path:
    """Writes a remote file into a folder, and returns its path. As `create_file`."""
    with create_file(folder, name) as file:
        file.write(content)
    return Path(file.name)


def create_file(folder: Path | str, name: str) -> BufferedWriter:
    """Opens a new file for a remote one in a folder, which is created if missing. Overwrites nothing: a second `name`
    becomes `name-1`. Raises OSError."""
    directory = Path(folder)
    directory.mkdir(parents=True, exist_ok=True)
    base = Path(safe_name(name))
    path, number = directory / base, 0
    while True:
        try:
            return path.open("xb")
        except FileExistsError:
            number += 1
            path = directory / f"{base.stem}-{number}{base.suffix}"


MAX_SAFE_JSON_INTEGER: Final = 2**53  # integers up to this magnitude survive JSON readers that use doubles


def data_part(value: Any, field: str) -> pb.Part:
    """Returns the part with a JSON value. Raises ValueError, naming the field, as `check_json_value`."""
    check_json_value(value, field)
    part = pb.Part()
    json_format.ParseDict(value, part.data)
    return part


def check_json_value(value: object, field: str) -> None:
    """Raises ValueError, naming the field, for values that JSON cannot hold or readers would round."""
    match value:
        case None | bool() | str():
            pass
        case int():
            if abs(value) > MAX_SAFE_JSON_INTEGER:
                shown = value if abs(value) < 10**40 else "of more than 40 digits"
                raise ValueError(f"{field}: the number {shown} is beyond 2^53 and would be rounded; give it as text")
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{field}: {value} is not a JSON number; give None or text instead")
        case list():
            for number, item in enumerate(value):
                check_json_value(item, f"{field}[{number}]")
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"{field}: the key {str(key)[:40]!r} must be text")
                check_json_value(item, f"{field}.{key[:40]}")
        case _:
            kind = type(value).__name__
            raise ValueError(f"{field}: {kind} is not JSON; use dict, list, str, int, float, bool or None")
