"""The official TypeScript SDK 1.x: MCP 2025-11-25."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import arguments, finish
from mcp_bridge import bridge, connecting
from mcp_run import check_client


async def main() -> bool:
    async with bridge(".") as client:
        return await check_client("@modelcontextprotocol/sdk", "2025-11-25", connecting(client), arguments())


finish(asyncio.run(main()))
