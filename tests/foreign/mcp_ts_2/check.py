"""The official TypeScript client 2.x: MCP 2026-07-28, with tasks by ext-tasks, and 2025-11-25."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import arguments, finish
from mcp_bridge import bridge, connecting
from mcp_run import check_client

PACKAGE = "@modelcontextprotocol/client"


async def main() -> bool:
    where = arguments()
    async with bridge(".") as client:
        connect = connecting(client, mode="auto")
        good = await check_client(PACKAGE, "2026-07-28", connect, where, has_tasks=True, listens_too=True)
        return await check_client(PACKAGE, "2025-11-25", connecting(client, mode="legacy"), where) and good


finish(asyncio.run(main()))
