"""google-api-python-client 2.202.0 on a server without capabilities."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import arguments, finish
from google_client import BARE, Caller, agents, bare

http = arguments().http
resource = agents(http).a2a().v1()
finish(asyncio.run(bare.run("HTTP+JSON /v1/{tenant}/a2a/v1/...", Caller(http, resource, resource.getCard, BARE))))
