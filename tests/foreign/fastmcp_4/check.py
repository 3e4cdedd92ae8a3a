"""fastmcp 4.2.3: MCP 2026-07-28 and 2025-11-25, without tasks."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import arguments, finish
from fastmcp_client import connecting
from mcp_run import check_client


async def main() -> bool:
    where = arguments()
    good = await check_client("fastmcp", "2026-07-28", connecting("auto"), where)
    return await check_client("fastmcp", "2025-11-25", connecting("legacy"), where) and good


finish(asyncio.run(main()))
