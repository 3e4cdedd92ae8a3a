"""Credentials as a transport carries them: `Authorization: Bearer` (RFC 6750 §2.1) and `X-API-Key`.

Looked at before anything is parsed: what is too long, there twice, or said in two ways at once is refused, because two
readers could take it for two different callers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dragoman.core.errors import Unauthenticated

HEADER_BYTES: Final = 8192
"""Of one header's value."""

KEY_HEADER: Final = "x-api-key"

_MALFORMED: Final = "invalid_request"


class Credentials(NamedTuple):
    """What was shown; one of them is empty."""

    bearer: str = ""
    key: str = ""


def read(headers: Iterable[tuple[str, str]], *, keys: bool) -> Credentials | None:
    """The credentials in these headers, None when there are none. `keys`: X-API-Key is one of ours to read.

    Another scheme than Bearer is not ours to judge, and counts as none. Raises Unauthenticated.
    """
    said = [(name.lower(), value) for name, value in headers]
    authorization = _one("Authorization", [value for name, value in said if name == "authorization"])
    key = _one("X-API-Key", [value for name, value in said if keys and name == KEY_HEADER])
    scheme, _, token = (authorization or "").strip().partition(" ")
    is_bearer = scheme.lower() == "bearer"
    if key is None and not is_bearer:
        return None
    if key is not None and is_bearer:
        raise _malformed("give credentials once: in Authorization or in X-API-Key")
    return Credentials(key=_text("X-API-Key", key)) if key is not None else Credentials(_text("Authorization", token))


def _one(name: str, values: list[str]) -> str | None:
    if len(values) > 1:
        raise _malformed(f"{name}: must be there once, and is there {len(values)} times")
    if values and len(values[0].encode(errors="replace")) > HEADER_BYTES:
        raise _malformed(f"{name}: at most {HEADER_BYTES} bytes are taken")
    return values[0] if values else None


def _text(name: str, value: str) -> str:
    value = value.strip()
    if not value or not value.isascii() or not value.isprintable():
        raise _malformed(f"{name}: must hold a credential, of printable ASCII")
    return value


def _malformed(reason: str) -> Unauthenticated:
    return Unauthenticated(reason, error=_MALFORMED)
