"""Webhook receivers of a simulation: each has a character, fails, is slow, and drops requests and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from zlib import crc32

from tests.chaos.history import Delivered, Recorder
from tests.load.characters import CHARACTERS, draw_response
from tests.simulation.loop import HostLoop, World

from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord
from dragoman.core.task.log import Event
from dragoman.ports import ConnectFailed, OutboundFailed, OutboundResponse, WebhookRequest

CALL_TIMEOUT: Final = 10.0
LONGEST_DELAY: Final = 1.5
"""Simulated seconds until a slow receiver responds, at most."""


def event_digest(data: bytes) -> str:
    """A digest of an event's bytes: every reader of one task gets the same."""
    return f"{crc32(data):08x}"


class SimulatedEncoder:
    """Implements `dragoman.ports.WebhookEncoder`: sends the bytes of the event."""

    def sends_task(self, dialect: str) -> bool:
        return False

    def field_prefix(self, dialect: str, *, inline: bool) -> str:
        return ""

    def encrypt_secrets(self, config: PushConfig) -> PushConfig:
        return config

    def reveal_token(self, config: PushConfig) -> str:
        return config.token

    async def encode(self, record: PushRecord, event: Event) -> WebhookRequest:
        return WebhookRequest({"task": record.task_id, "event": str(event.sequence)}, event.data)


class Receivers:
    """All receivers of a history."""

    def __init__(self, world: World, recorder: Recorder) -> None:
        self._world = world
        self._recorder = recorder
        self.over = False
        """Whether all receivers are well, at the end of a history."""

    def url(self, hook: int) -> str:
        """The URL of a webhook, whose number selects its character."""
        character = CHARACTERS[hook % len(CHARACTERS)]
        return f"https://{character}.example/{hook}"

    def client(self, host: HostLoop) -> ReceiverClient:
        """The HTTP client of a server."""
        return ReceiverClient(self, host)

    def take(self, url: str, body: bytes, headers: Mapping[str, str], answer: Callable[[int], None]) -> None:
        """A request arrives. `answer` gets its status; 0 for none."""
        hook, at = int(url.rpartition("/")[2]), self._world.now
        character = "well" if self.over else CHARACTERS[hook % len(CHARACTERS)]
        pause, status = draw_response(character, self._world.random, LONGEST_DELAY)

        def respond() -> None:
            self._recorder.add(
                Delivered(
                    at=round(at, 6),
                    done=round(self._world.now, 6),
                    hook=hook,
                    task=headers["task"],
                    sequence=int(headers["event"]),
                    digest=event_digest(body),
                    status=status,
                    body=event_digest(body),
                )
            )
            self._world.after(self._world.random.uniform(0.0005, 0.005), answer, status)

        if pause:
            self._world.after(pause, respond)
        else:
            respond()


class ReceiverClient:
    """Implements `dragoman.ports.OutboundHttp` for one server."""

    def __init__(self, receivers: Receivers, host: HostLoop) -> None:
        self._receivers = receivers
        self._host = host

    def check_url(self, url: str) -> None:
        return

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> OutboundResponse:
        raise ConnectFailed("nothing is served here")

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, may_send: Callable[[], bool] | None = None
    ) -> OutboundResponse:
        world, host = self._host.world, self._host
        await asyncio.sleep(world.random.uniform(0.0005, 0.005))  # the connection
        if may_send is not None and not may_send():
            raise OutboundFailed("the lease has ended")
        answered: asyncio.Future[int] = host.create_future()

        def answer(status: int) -> None:
            if not answered.done():
                answered.set_result(status)

        world.after(world.random.uniform(0.0001, 0.002), self._receivers.take, url, body, headers, answer)
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                status = await answered
        except TimeoutError:
            raise OutboundFailed("no response in time") from None
        if not status:
            raise OutboundFailed("the connection broke")
        return OutboundResponse(status, {"retry-after": "1"} if status == 429 else {}, b"")

    async def close(self) -> None:
        return
