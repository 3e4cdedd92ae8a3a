"""What the adapter imports: the forms of a snapshot."""

from __future__ import annotations

from typing import Any


def encode_bytes_values(value: Any) -> Any:
    return value


def decode_bytes_values(value: Any) -> Any:
    return value
