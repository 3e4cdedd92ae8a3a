"""Comparison of media types: without their parameters, and without regard to case (RFC 9110 §8.3.1)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final


def bare_type(media_type: str) -> str:
    """The type and subtype of a media type: `text/plain` of `Text/Plain; charset=utf-8`."""
    return media_type.partition(";")[0].strip().lower()


@lru_cache(maxsize=64)
def accepted_types(accept: str) -> frozenset[str]:
    """The media types that an `Accept` header names, as `bare_type`, without those of weight 0 (RFC 9110 §12.5.1)."""
    return frozenset(bare_type(one) for one in accept.split(",") if not _NO_WEIGHT.search(one))


_NO_WEIGHT: Final = re.compile(r";\s*q\s*=\s*0(\.0{0,3})?\s*(;|$)", re.IGNORECASE)
