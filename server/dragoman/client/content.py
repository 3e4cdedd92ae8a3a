"""Files on their way out and in: what is sent with a message, and what an agent gave, written under safe names."""

from __future__ import annotations

import math
import mimetypes
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FileInput = Path | str | bytes | tuple[str, bytes] | pb.Part
"""A file to send: its path, its bytes, its name and bytes, or a part that is ready."""

# The tables of the system differ from machine to machine (Windows calls .csv a spreadsheet): Python's own, and these.
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
    """The media type that a file's name speaks for."""
    guessed, encoding = _MEDIA_TYPES.guess_type(name)
    if guessed is None or encoding is not None:  # a .csv.gz is not CSV
        return "application/octet-stream"
    return guessed


def to_part(file: FileInput) -> pb.Part:
    """The part that a file is sent as. A path is read now. Raises OSError for one that cannot be read."""
    if isinstance(file, pb.Part):
        return file
    if isinstance(file, bytes):
        return pb.Part(raw=file, filename="file", media_type="application/octet-stream")
    if isinstance(file, tuple):
        name, content = file
        return pb.Part(raw=content, filename=name, media_type=media_type(name))
    path = Path(file)
    return pb.Part(raw=path.read_bytes(), filename=path.name, media_type=media_type(path.name))


def to_parts(files: Iterable[FileInput]) -> list[pb.Part]:
    """One part for each. Raises OSError."""
    return [to_part(file) for file in files]


def safe_name(name: str) -> str:
    """A name from afar as one that stays in its folder, on every system: without a path, control characters, dots in
    front, and what Windows reserves."""
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
    """Writes a file from afar into a folder, which is made, and over nothing: `name-1` where there is one already.
    Gives its path. Raises OSError."""
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    base = Path(safe_name(name))
    path, number = where / base, 0
    while True:
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
            path = where / f"{base.stem}-{number}{base.suffix}"
        else:
            return path


MAX_SAFE_JSON_INTEGER: Final = 2**53
"""The largest distance from zero at which every whole number is a double of its own."""


def check_json_value(value: object, field: str) -> None:
    """Raises ValueError, naming the field, for what would be rounded on the way, or has no place in JSON."""
    match value:
        case None | bool() | str():
            pass
        case int():
            if abs(value) > MAX_SAFE_JSON_INTEGER:
                said = value if abs(value) < 10**40 else "of more than 40 digits"
                raise ValueError(f"{field}: the number {said} is beyond 2^53 and would be rounded; give it as text")
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{field}: {value} is no JSON number; give None or text instead")
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
