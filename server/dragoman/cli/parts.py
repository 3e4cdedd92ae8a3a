"""Files that are sent with a message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragoman.client.files import media_type
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class FileError(Exception):
    """A file cannot be sent; the text says which and why."""


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
            parts.append(pb.Part(raw=path.read_bytes(), filename=path.name, media_type=media_type(path.name)))
        except OSError as error:
            raise FileError(f"--file {path}: {error.strerror or error}") from error
    return parts
