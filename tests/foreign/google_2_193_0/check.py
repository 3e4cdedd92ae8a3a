"""google-api-python-client 2.193.0: Discovery Engine's first family of paths, `/{tenant}/...`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import arguments, finish
from google_client import Caller, agents, check

http = arguments().http
resource = agents(http)
finish(asyncio.run(check.run("HTTP+JSON /{tenant}/...", Caller(http, resource, resource.getCard))))
