"""Room for open files: a connection is one, and many systems begin with 1024 for everything."""

from __future__ import annotations

import logging
from typing import Final

BESIDES: Final = 1024
"""For the store, its blobs, calls to others and what agents open."""

log = logging.getLogger("dragoman.serve")


def make_room(connections: int) -> None:
    """Asks the system for as many open files as two ports full of connections need; says so when it gives fewer."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    needed = 2 * connections + BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        allowed = soft
    if allowed < needed:
        log.warning(
            "this process may open %d files, and %d connections at each port need %d; raise the limit (ulimit -n, "
            "LimitNOFILE), or lower --connections",
            allowed,
            connections,
            needed,
        )
