"""All parsers of untrusted input, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import binary_parsers, json_parsers, mcp_parsers, text_parsers
from tests.fuzz.parser import Parser

PARSERS: Final[dict[str, Parser]] = {
    **json_parsers.PARSERS,
    **text_parsers.PARSERS,
    **binary_parsers.PARSERS,
    **mcp_parsers.PARSERS,
}
