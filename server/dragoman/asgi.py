"""Agents inside another ASGI application: FastAPI, Starlette, Litestar.

    agents = AsgiApp("agents.py", authenticate=lambda scope: scope["user"].username)
    app = FastAPI(lifespan=agents.lifespan)
    app.mount("/agents", agents)

docs/how-to/asgi.md is the guide.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from dragoman.bindings.http.asgi import Receive, Scope, Send
from dragoman.core.access.identity import Identity
from dragoman.ports.security import IdentifyCaller
from dragoman.wiring.app import App, Mount
from dragoman.wiring.embedding import AgentSource, RunningServer, open_embedded

__all__ = ["AsgiApp", "Identity"]

_NOT_STARTED: Final = (
    "the agents have not started: a mounted application gets no lifespan of its own, so the host's must run "
    "AsgiApp.lifespan: FastAPI(lifespan=agents.lifespan), or `async with agents.lifespan(app):` inside the host's own"
)


class AsgiApp:
    """Agents as an ASGI 3 application: REST, JSON-RPC, SSE and cards, without ports of their own.

    It serves what comes to it, under any path; its lifespan opens the store and runs the agents.
    """

    def __init__(
        self,
        *agents: AgentSource,
        authenticate: IdentifyCaller | None = None,
        console: bool = False,
        **options: Any,
    ) -> None:
        """`agents`, `options`: as for `dragoman.open_app`, without `http` and `processes`. With `grpc`, gRPC is served
        beside the application, on a port of its own.

        authenticate: tells who calls, from the scope that the host's middleware has filled: a principal, an `Identity`
        with grants and an end, or None for a caller that is not signed in. It may be async. Without it the server's own
        authentication (`api_keys`, `issuers`, `token`) decides, or `insecure=True` lets everybody in.
        console: also serves /console and the operations of operators that it calls.
        """
        self._agents = agents
        self._options = options
        self._mount = Mount(authenticate, console, grpc=options.get("grpc") is not None)
        self._app: App | None = None

    @property
    def server(self) -> RunningServer:
        """The running server, with its agents and its gRPC address. Raises RuntimeError outside of the lifespan."""
        return RunningServer(self._running())

    @asynccontextmanager
    async def lifespan(self, host: object = None) -> AsyncIterator[None]:
        """Runs the agents while the block runs: the lifespan of the host, or a part of it.

        host: the application that frameworks pass; it is not used. At the end running turns get `drain` seconds (300).

        Raises ValueError, RuntimeError, TypeError as `dragoman.open_app` does, also when it runs already.
        """
        if self._app is not None:
            raise RuntimeError("the lifespan of this AsgiApp runs already; make one AsgiApp for each application")
        async with open_embedded(self._agents, self._options, self._mount) as app:
            self._app = app
            try:
                yield
            finally:
                self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one exchange. Raises RuntimeError outside of the lifespan."""
        match scope["type"]:
            case "http":
                await self._running().serve_asgi(scope, receive, send)
            case "lifespan":
                await self._serve_lifespan(receive, send)
            case "websocket":  # refused, so a client sees 403; JSON-RPC over WebSocket needs `dragoman serve`
                await receive()
                await send({"type": "websocket.close", "code": 1000})
            case other:
                raise ValueError(f"ASGI scopes of the type {other} are not served")

    def _running(self) -> App:
        if self._app is None:
            raise RuntimeError(_NOT_STARTED)
        return self._app

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        """The lifespan of an application that is served by itself, without a host (ASGI lifespan 2.0)."""
        await receive()
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.lifespan())
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
