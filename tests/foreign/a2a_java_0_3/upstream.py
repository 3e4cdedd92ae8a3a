"""An agent of a2a-java 0.3 behind a Dragoman, over each of its bindings, with the playground's commands."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import finish
from programs import fronted


async def main() -> bool:
    good = await fronted({"rpc": "0.3 over JSONRPC"})
    # Its proto is older than 0.3.0, without names and types of files, and its reader refuses a file with a name.
    return await fronted({"rest": "0.3 over HTTP+JSON"}, "names", "upload", files="base64") and good


if __name__ == "__main__":
    finish(asyncio.run(main()))
