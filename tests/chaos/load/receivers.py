"""Webhook receivers: one URL per webhook, each with a failure mode.

During the run some receivers are down, slow, flapping, or lying: they accept a request but respond with an error, late,
or never. At the end all are healthy. Every request is recorded with its response.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import orjson
from aiohttp import web
from tests.chaos.history import Delivered, body_digest, digest
from tests.chaos.load.followers import Stage
from tests.load.characters import CHARACTERS, draw_response

from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

LONGEST_DELAY: Final = 0.5
"""Seconds until a slow receiver responds, at most."""
_JSON: Final = protojson.compile(pb.StreamResponse, json_proto.PROTOJSON_V1)


class Receivers:
    """The receivers of a run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._port = 0
        self._news = asyncio.Condition()
        self.deliveries = 0

    def url(self, hook: int) -> str:
        """Returns the URL of a webhook, whose number selects its failure mode."""
        return f"http://127.0.0.1:{self._port}/{CHARACTERS[hook % len(CHARACTERS)]}/{hook}"

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits until a condition holds after a request."""
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(true)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serves inside the block."""
        runner = web.ServerRunner(web.Server(self._take), shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()

    async def _take(self, request: web.BaseRequest) -> web.Response:
        at = self._stage.now
        _, character, number = request.path.split("/")
        data = await request.read()
        self.deliveries += 1
        rng = random.Random(f"{self._stage.seed}/receiver {number} {self.deliveries}")
        pause, status = (0.0, 200) if self._stage.over.is_set() else draw_response(character, rng, LONGEST_DELAY)
        if pause:
            await asyncio.sleep(pause)
        event = _JSON.decode(orjson.loads(data))
        cursor = request.headers["Dragoman-Event"]
        member = getattr(event, event.WhichOneof("payload") or "task")
        delivered = Delivered(
            at=at,
            done=self._stage.now,
            hook=int(number),
            task=member.id if event.HasField("task") else member.task_id,
            sequence=int(cursor.rpartition(".")[2]),
            digest=digest(event),
            status=status,
            body=body_digest(data),
        )
        async with self._news:
            self._stage.record.add(delivered)
            self._news.notify_all()
        if not status and request.transport is not None:
            request.transport.abort()
        return web.Response(status=status or 500, headers={"Retry-After": "1"} if status == 429 else {})
