"""Known defects: kinds of problems that histories have until cancels of other servers are durable.

A history with such a problem is not bad for it. `seeds.toml` has a history of each kind, which has to fail.
"""

from __future__ import annotations

import re
from typing import Final

_WENT_ON: Final = r"task \S+: .+ said CANCELED at \S+ s, its work at (?:{}) went .+, (?:never told|told \S+ s later)"
_CANCEL_LOST: Final = r"task \S+: its cancel was accepted at \S+ s, its work at (?:{}) was never told"

KNOWN_DEFECTS: Final = {
    "CANCELED, and the task of an A2A server goes on": re.compile(_WENT_ON.format("upstream|plain")),
    "CANCELED, and the task of an MCP server goes on": re.compile(_WENT_ON.format("tools")),
    # Also where nothing was struck: a server has five seconds to obey.
    "CANCELED, and the task of an MCP server ignores it": re.compile(
        r"task \S+: .+ said CANCELED at \S+ s, its work at tools went .+, told -[45]\.\d+ s later.*"
    ),
    "an accepted cancel that an A2A server never gets": re.compile(_CANCEL_LOST.format("upstream|plain")),
    "an accepted cancel that an MCP server never gets": re.compile(_CANCEL_LOST.format("tools")),
}
"""The problems of each kind. Those that end with `UNPROVOKED` match none but the third."""


def known_defect(problem: str) -> str:
    """The kind of a known defect; empty for any other problem."""
    return next((kind for kind, pattern in KNOWN_DEFECTS.items() if pattern.fullmatch(problem)), "")
