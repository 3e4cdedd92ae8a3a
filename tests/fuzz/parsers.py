"""Every parser of what strangers write, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import of_bytes, of_json, of_text
from tests.fuzz.parser import Parser

PARSERS: Final[dict[str, Parser]] = {**of_json.PARSERS, **of_text.PARSERS, **of_bytes.PARSERS}
