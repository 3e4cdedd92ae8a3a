"""Who calls: the one place that decides it.

A caller is known by what the transport carries (A2A 1.0 §7), never by the message. There is no authentication
yet, so everyone is the same caller.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.core.names import ANONYMOUS


async def principal(headers: Mapping[str, str]) -> str:
    """The principal behind these HTTP headers or gRPC metadata."""
    return ANONYMOUS
