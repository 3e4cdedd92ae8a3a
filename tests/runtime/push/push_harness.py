"""A runtime with webhook receivers, on a clock of the store that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.conftest import timings
from tests.runtime.harness import Harness, open_harness, request
from tests.runtime.push.receivers import Receivers, Stamp

from dragoman.agents.functions.turn import Turn
from dragoman.bindings.event_encoders import DialectWebhookEncoder
from dragoman.core.push.delivery import DeliveryReport, PushRecord, PushRetryPolicy, PushState
from dragoman.core.task.log import TaskRef
from dragoman.runtime import Call, PushOptions
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.stores.sqlite import StorageOptions, open_store
from dragoman.testing.fixtures import Clock
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOOK = "https://hook.example/a"


OTHER = "https://other.example/b"


SECOND = 1000


DAY = 86_400 * SECOND


RETRY_POLICY = PushRetryPolicy(first_delay=1, max_delay=60, give_up_after=3600)


async def counter(turn: Turn) -> AsyncIterator[str]:
    """Yields three chunks."""
    for number in range(3):
        yield f"{number} "


async def asker(turn: Turn) -> str:
    """Asks one question."""
    if turn.question is None:
        turn.ask("and then?")
    return turn.text


async def echo(turn: Turn) -> str:
    return turn.text


class PushHarness:
    """A runtime with receivers, and a clock of the store that only the test moves."""

    def __init__(self, harness: Harness, receivers: Receivers, clock: Clock) -> None:
        self.harness = harness
        self.receivers = receivers
        self.clock = clock
        self.settled = asyncio.Condition()
        """Notified when a result was recorded, or a delivery has ended."""
        self._settle = harness.store.pushes.apply_reports
        self._over = self.push_scheduler._on_delivery_ended
        self._begin = self.push_scheduler._claim
        self._beginning = asyncio.Lock()
        self.push_scheduler._claim = self._begins
        harness.store.pushes.apply_reports = self._settles  # type: ignore[method-assign]
        self.push_scheduler._on_delivery_ended = self._ends

    async def _settles(self, reports: Sequence[DeliveryReport]) -> list[PushRecord | None]:
        after = await self._settle(reports)
        await self._notify()
        return after

    async def _begins(self, found: Iterable[PushRecord], expired: bool = False) -> int:
        """Serializes claims: `later` polls beside the scheduler, and both would claim."""
        async with self._beginning:
            return int(await self._begin(found, expired))

    def _ends(self, push: PushRecord, done: asyncio.Task[None]) -> None:
        self._over(push, done)
        self._notifying = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self.settled:
            self.settled.notify_all()

    @property
    def push_scheduler(self) -> Any:
        assert self.harness.runtime.push_scheduler is not None
        return self.harness.runtime.push_scheduler

    def call(self, dialect: str = "1.0") -> Call:
        return Call(self.harness.call.caller, dialect=dialect)

    async def send(self, text: str = "hello", *, dialect: str = "1.0", url: str = HOOK, **config: Any) -> pb.Task:
        """A blocking send with a configuration."""
        push_request = request(text)
        push_request.configuration.task_push_notification_config.MergeFrom(
            pb.TaskPushNotificationConfig(url=url, **config)
        )
        sent = await self.harness.runtime.operations.send.send_message(self.call(dialect), push_request)
        return pb.SendMessageResponse.FromString(sent).task

    async def create(self, task: str, *, dialect: str = "1.0", url: str = HOOK, **config: Any) -> Any:
        push_request = pb.TaskPushNotificationConfig(task_id=task, url=url, **config)
        operations = self.harness.runtime.operations
        create = operations.push_configs.create if dialect == "1.0" else operations.push_configs.set
        return pb.TaskPushNotificationConfig.FromString(await create(self.call(dialect), push_request))

    async def delete(self, task: str, id: str) -> None:
        push_request = pb.DeleteTaskPushNotificationConfigRequest(task_id=task, id=id)
        assert await self.harness.runtime.operations.push_configs.delete(self.call(), push_request) == b""

    async def ref(self, task: str) -> TaskRef:
        (head,) = await self.harness.store.locate(task)
        return head.ref

    async def pushes(self, task: str) -> list[PushRecord]:
        return await self.harness.store.pushes.list_configs(await self.ref(task))

    async def until(self, task: str, state: PushState, **more: int) -> PushRecord:
        """The task's only push, once it has this state and these values."""
        push = None
        try:
            async with asyncio.timeout(60), self.settled:
                while True:
                    (push,) = await self.pushes(task)
                    if push.state is state and all(getattr(push, name) == value for name, value in more.items()):
                        return push
                    await self.settled.wait()
        except TimeoutError:
            raise AssertionError(f"it stays {push}") from None

    async def idle(self) -> None:
        """Returns when no delivery is running."""
        async with asyncio.timeout(60), self.settled:
            while self.push_scheduler.held:
                await self.settled.wait()

    async def later(self, milliseconds: int) -> None:
        """Advances the store's clock, and polls."""
        self.clock.now += milliseconds
        await self.push_scheduler.poll()


@asynccontextmanager
async def open_push_harness(
    tmp_path: Path,
    *functions: Any,
    receivers: Receivers | None = None,
    clock: Clock | None = None,
    sizes: StorageOptions | None = None,
    hold: float = 0.02,
    ready: asyncio.Event | None = None,
    **options: Any,
) -> AsyncIterator[PushHarness]:
    receivers, clock = receivers or Receivers(), clock or Clock()
    store = open_store(tmp_path / "tasks.db", clock=clock, sizes=sizes or StorageOptions())
    # A lease longer than any test advances the clock.
    encoder = DialectWebhookEncoder(Stamp(), AesGcmSecretBox())
    pushing = PushOptions(receivers, encoder, retry_policy=RETRY_POLICY, random=lambda: 1.0, ready=ready)
    options["timings"] = replace(options.get("timings") or timings(), push_claim_hold=hold)
    async with open_harness(
        tmp_path, *functions, store=store, push_options=pushing, lease=10.0**6, **options
    ) as harness:
        yield PushHarness(harness, receivers, clock)
