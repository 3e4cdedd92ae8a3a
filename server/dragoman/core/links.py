"""Links to blobs: whoever has one may fetch the bytes until it expires, and nobody can make one up.

File name and media type are those of the part that was given away with the link, and signed with the rest.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from dragoman.core import frames

LASTS: Final = 3600
"""Seconds until a link expires."""


def query(secret: bytes, digest: str, expires: int, filename: str, media_type: str) -> str:
    """The query of a link to the blob of this hash (hex), good until `expires` (seconds since the epoch)."""
    said = {"expires": str(expires), "filename": filename, "type": media_type}
    said = {name: value for name, value in said.items() if value}
    return urlencode({**said, "signature": _sign(secret, digest, said)})


def is_signed(secret: bytes, digest: str, said: Mapping[str, str], now: float) -> bool:
    """Whether a link with this query is one of ours, and still good at `now` (seconds since the epoch)."""
    expires = said.get("expires", "")
    if not hmac.compare_digest(_sign(secret, digest, said).encode(), said.get("signature", "").encode()):
        return False
    return expires.isascii() and expires.isdigit() and now < int(expires)


def _sign(secret: bytes, digest: str, said: Mapping[str, str]) -> str:
    signed = (digest, *(said.get(name, "") for name in ("expires", "filename", "type")))
    return hmac.digest(secret, frames.delimited([value.encode() for value in signed]), "sha256").hex()
