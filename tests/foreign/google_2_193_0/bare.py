"""google-api-python-client 2.193.0 on a server without capabilities."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import arguments, finish
from google_client import BARE, Caller, agents, bare

http = arguments().http
resource = agents(http)
finish(asyncio.run(bare.run("HTTP+JSON /{tenant}/...", Caller(http, resource, resource.getCard, BARE))))
