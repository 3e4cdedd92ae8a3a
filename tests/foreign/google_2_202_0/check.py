"""google-api-python-client 2.202.0: Discovery Engine's second family of paths, `/v1/{tenant}/a2a/v1/...`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import arguments, finish
from google_client import Caller, agents, check

http = arguments().http
resource = agents(http).a2a().v1()
finish(asyncio.run(check.run("HTTP+JSON /v1/{tenant}/a2a/v1/...", Caller(http, resource, resource.getCard))))
