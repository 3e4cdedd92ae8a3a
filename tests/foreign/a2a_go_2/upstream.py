"""An agent of a2a-go 2.x behind a Dragoman, over each of its bindings, with the playground's commands."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import finish
from programs import fronted

BINDINGS = {"rpc": "1.0 over JSONRPC", "rest": "1.0 over HTTP+JSON", "grpc": "1.0 over GRPC"}

if __name__ == "__main__":
    finish(asyncio.run(fronted(BINDINGS, "auth")))
