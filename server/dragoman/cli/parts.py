"""Files that are sent with a message."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

# The tables of the system differ from machine to machine (Windows calls .csv a spreadsheet): Python's own, and these.
_TYPES: Final = mimetypes.MimeTypes(filenames=())
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
    _TYPES.add_type(_type, _ending)


class FileError(Exception):
    """A file cannot be sent; the text says which and why."""


def media_type(path: Path) -> str:
    """The media type that a file's name speaks for."""
    guessed, encoding = _TYPES.guess_type(path.name)
    if guessed is None or encoding is not None:  # a .csv.gz is not CSV
        return "application/octet-stream"
    return guessed


def file_parts(paths: Sequence[Path], limit: int) -> list[pb.Part]:
    """One part for each file, with its name and media type.

    Raises FileError for a file that cannot be read, and before reading for files that are over `limit` together.
    """
    left = limit
    parts = []
    for path in paths:
        try:
            size = path.stat().st_size
            left -= size
            if left < 0:
                raise FileError(
                    f"--file {path}: {size:,} bytes; a message may hold {limit:,} in all "
                    "(serve --message-bytes, or DRAGOMAN_MESSAGE_BYTES here and there)"
                )
            parts.append(pb.Part(raw=path.read_bytes(), filename=path.name, media_type=media_type(path)))
        except OSError as error:
            raise FileError(f"--file {path}: {error.strerror or error}") from error
    return parts
