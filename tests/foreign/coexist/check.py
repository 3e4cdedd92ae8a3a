"""a2a-sdk and Dragoman in one process: both import orders, its objects as results, its client on our server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from checks import Checks, arguments, finish, free_port

check = Checks()
where = arguments()
SOURCES = [str(Path(where.project, folder)) for folder in ("server", "gen")]
sys.path[1:1] = SOURCES


def python(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@check
def the_sdk_may_be_imported_first() -> None:
    python("import a2a.types, a2a.client; import dragoman, dragoman.wiring.app, dragoman_pb.lf.a2a.v1.a2a_pb2")


@check
def we_may_be_imported_first() -> None:
    python("import dragoman, dragoman.wiring.app, dragoman_pb.lf.a2a.v1.a2a_pb2; import a2a.types, a2a.client")


@check
async def objects_of_the_sdk_are_results_and_its_client_reads_them() -> None:
    import grpc
    import httpx
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
    from a2a.types import a2a_pb2 as theirs

    from dragoman import Turn, agent
    from dragoman.settings.settings import Settings
    from dragoman.wiring.app import open_app

    @agent(default=True)
    async def mixed(turn: Turn) -> Any:
        await turn.status(theirs.Message(message_id="m", role="ROLE_AGENT", parts=[theirs.Part(text="working on it")]))
        return theirs.Artifact(artifact_id="theirs", name="Theirs", parts=[theirs.Part(text=turn.text.upper())])

    with tempfile.TemporaryDirectory() as folder:
        at = f"127.0.0.1:{free_port()}"
        settings = Settings(store=f"sqlite:///{folder}/tasks.db", http="127.0.0.1:0", grpc=at, public_grpc=at)
        async with open_app(settings, [mixed]) as app, httpx.AsyncClient(timeout=60) as web:
            card = await A2ACardResolver(web, app.public_url).get_agent_card()
            for transport in ("GRPC", "HTTP+JSON", "JSONRPC"):
                config = ClientConfig(
                    streaming=False, httpx_client=web, grpc_channel_factory=grpc.aio.insecure_channel,
                    supported_protocol_bindings=[transport],
                )  # fmt: skip
                async with ClientFactory(config).create(card) as client:
                    message = theirs.Message(message_id="m", role="ROLE_USER", parts=[theirs.Part(text="hello")])
                    request = theirs.SendMessageRequest(message=message)
                    task = [event async for event in client.send_message(request)][-1].task
                    assert task.artifacts[0].name == "Theirs"
                    assert task.artifacts[0].parts[0].text == "HELLO"
                    assert task.history[-1].parts[0].text == "working on it"


finish(asyncio.run(check.run("in one process")))
