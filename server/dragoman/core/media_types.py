"""Comparison of media types: without their parameters, and without regard to case (RFC 9110 §8.3.1)."""

from __future__ import annotations

from functools import lru_cache


def bare_type(media_type: str) -> str:
    """The type and subtype of a media type: `text/plain` of `Text/Plain; charset=utf-8`."""
    return media_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=64)
def accepted_types(accept: str) -> frozenset[str]:
    """The media types that an `Accept` header names, as `bare_type`, without those of weight 0 (RFC 9110 §12.5.1)."""
    ranges = [one.lower().split(";") for one in accept.split(",")]
    return frozenset(name.strip() for name, *weights in ranges if not any(map(_is_zero, weights)))


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip() in ("0", "0.", "0.0", "0.00", "0.000")
