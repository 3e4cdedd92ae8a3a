"""An agent of a2a-go 0.3 behind a Dragoman, over each of its bindings, with the playground's commands."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import finish
from programs import fronted

BINDINGS = {"rpc": "0.3 over JSONRPC", "grpc": "0.3 over GRPC"}

if __name__ == "__main__":
    finish(asyncio.run(fronted(BINDINGS, files="base64")))
