"""A fault in each background work: it reaches the same point again, on both stores.

The list is `Background` itself, so that new work without a test here fails. Faults come in through ports and
arguments; where a work has none at that point, through a subclass that fails there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import Mock

import pytest
from tests.certificates import Authority, write
from tests.conftest import timings
from tests.eventually import eventually
from tests.extensions.agent_host import agent_host
from tests.postgres import free_port
from tests.runtime.harness import Harness
from tests.runtime.remote_agent import Far

from dragoman import Turn
from dragoman.agents.functions.declaration import agent as declare
from dragoman.agents.upstream.registry import LocalUpstreamRegistry
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.bindings.grpc import server as grpc_server
from dragoman.bindings.http.connections import HttpConnections
from dragoman.bindings.http.listener import TlsListener
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.bus.local import LocalBus
from dragoman.cli import process_setup
from dragoman.core.access.identity import Identity
from dragoman.core.audit import AuditEntry
from dragoman.core.errors import Unavailable
from dragoman.core.limits.quotas import Quotas
from dragoman.core.push.delivery import DeliveryOutcome, DeliveryReport
from dragoman.extensions.frameworks.sources import ExecutorSpec, FrameworkSettings
from dragoman.extensions.frameworks.supervisor import ExecutorSupervisor
from dragoman.extensions.mcp.servers.registry import McpRegistry
from dragoman.extensions.postgres.hot.writer import CommittedBatch, PostgresWriter
from dragoman.extensions.postgres.store import open_store as open_postgres
from dragoman.ports import Store
from dragoman.ports.tracing import Span
from dragoman.runtime import Ports, PushOptions, RuntimeConfig, open_runtime
from dragoman.runtime.lease import Lease, watch_lease
from dragoman.runtime.log import EventLog, StoreHealth, UnsettledClaims
from dragoman.runtime.observe.audit import Auditor
from dragoman.runtime.observe.watchdog import Watchdog
from dragoman.runtime.push.delivery import DeliveryRecorder
from dragoman.runtime.registry import AgentRegistry
from dragoman.runtime.sessions import ClaimRecovery, Heartbeat
from dragoman.security.secret_box import AesGcmSecretBox
from dragoman.security.signing import StoredSigningKeys
from dragoman.security.tls.certificate_files import CertificateFiles
from dragoman.stores.sqlite import open_store as open_sqlite
from dragoman.stores.sqlite.hot.writer import Checkpointer, SqliteWriter
from dragoman.stores.sqlite.schema import connect, migrate
from dragoman.supervision import FAILURES, Background, start_task
from dragoman.telemetry.otlp import SpanExporter
from dragoman.telemetry.spans import SpanRecorder
from dragoman.testing.fixtures import created, new_ref
from dragoman.wiring.agents import CardFile

pytestmark = pytest.mark.long


class Fault:
    """A point that work passes again and again. Once armed, the first passage raises MemoryError."""

    def __init__(self) -> None:
        self.armed = False
        self.passages = 0

    def __call__(self, *_: Any, **__: Any) -> None:
        if self.armed:
            self.passages += 1
            if self.passages == 1:
                raise MemoryError


class Faulty:
    """A port whose method `name` (a dotted path) passes the fault first. Everything else is the port's own."""

    def __init__(self, port: Any, name: str, fault: Fault) -> None:
        self._port, self._fault = port, fault
        self._name, _, self._rest = name.partition(".")

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._port, name)
        if name != self._name:
            return value
        if self._rest:
            return Faulty(value, self._rest, self._fault)

        def call(*arguments: Any, **options: Any) -> Any:
            self._fault()
            return value(*arguments, **options)

        return call


class Stage:
    """What a scenario gets: the fault, a folder, and stores."""

    def __init__(self, folder: Path, fault: Fault, url: str) -> None:
        self.folder, self.fault, self._url = folder, fault, url

    @asynccontextmanager
    async def store(self, name: str = "") -> AsyncIterator[Store]:
        """A store whose method `name` has the fault."""
        store: Any = await open_postgres(self._url) if self._url else open_sqlite(self.folder / "tasks.db")
        try:
            yield cast(Store, Faulty(store, name, self.fault)) if name else store
        finally:
            await store.close()


Scenario = Callable[[Stage], AbstractAsyncContextManager[None]]


async def waiting(turn: Turn) -> None:
    await asyncio.Event().wait()


async def follow(here: Harness, task: str) -> None:
    async for _ in here.follow(task):
        pass


# The runtime, on both stores --------------------------------------------------------------------------------------


def in_runtime(method: str, *, at_start: bool = False, **intervals: float) -> Scenario:
    """The work of a runtime that calls this method of the store. `intervals`: other ones than the defaults."""

    @asynccontextmanager
    async def scenario(stage: Stage) -> AsyncIterator[None]:
        async with stage.store(method) as store:
            stage.fault.armed = at_start
            push = PushOptions(cast(Any, None), cast(Any, None), now=lambda: datetime.now(UTC))
            opening = open_runtime(
                Ports(store, LocalBus(), [declare(waiting)], push if "push" in method else None),
                RuntimeConfig(
                    exclusive=False, timings=timings(**intervals), quotas=Quotas({"stored_bytes": 1}, public=True)
                ),
            )
            async with opening as runtime:
                here = Harness(runtime, store)
                await here.start()  # stored when the next one is: whoever counts then finds it
                task = await here.start()
                following = asyncio.ensure_future(follow(here, task.id))
                stage.fault.armed = True
                yield
                following.cancel()

    return scenario


class FaultyFar(Far):
    """A remote agent, whose absence has the fault."""

    fault: Fault

    @property
    def seconds_absent(self) -> float:
        self.fault()
        return 0.0

    @seconds_absent.setter
    def seconds_absent(self, value: float) -> None:
        pass


@asynccontextmanager
async def with_remote_agent(stage: Stage) -> AsyncIterator[None]:
    far = FaultyFar()
    far.fault = stage.fault
    async with stage.store() as store, open_runtime(Ports(store, LocalBus(), [far])):
        stage.fault.armed = True
        yield


@asynccontextmanager
async def with_unknown_claim(stage: Stage) -> AsyncIterator[None]:
    async with stage.store("append") as store:
        claims = UnsettledClaims()
        recovery = ClaimRecovery(claims, EventLog(store, LocalBus()), cast(Any, None))
        stage.fault.armed = True
        claims.add_unknown(new_ref())
        async with started(Background.CLAIM_RECOVERY, recovery.poll_forever):
            yield


@asynccontextmanager
async def with_store_probe(stage: Stage) -> AsyncIterator[None]:
    def clock() -> float:
        stage.fault()
        return time.monotonic()

    async with stage.store() as store:
        health = StoreHealth(clock=clock)
        stage.fault.armed = True
        health.note_failure(Unavailable())
        async with started(Background.STORE_PROBE, partial(health.probe_forever, store, 0.001)):
            yield


@asynccontextmanager
async def with_session(stage: Stage) -> AsyncIterator[None]:
    def clock() -> float:
        stage.fault()
        return time.monotonic()

    async with stage.store() as store:
        heartbeat = Heartbeat(store, await store.open_session(10), interval=0.01, clock=clock)
        stage.fault.armed = True
        heartbeat.start()
        yield
        await asyncio.to_thread(heartbeat.stop)


@asynccontextmanager
async def with_audit_log(stage: Stage) -> AsyncIterator[None]:
    async with stage.store("audit.append") as store:
        auditor = Auditor(store.audit, lambda: 1)
        stage.fault.armed = True
        auditor.note(AuditEntry(1, "task.created", "ok", {}, {}))
        yield
        await auditor.close()


@asynccontextmanager
async def with_push_recorder(stage: Stage) -> AsyncIterator[None]:
    async with stage.store("pushes.apply_reports") as store:
        recorder = DeliveryRecorder(store.pushes)
        stage.fault.armed = True
        report = DeliveryReport(
            task=new_ref(), id="c", session=1, token=1, outcome=DeliveryOutcome.DELIVERED, last_delivered=1
        )
        recording = recorder.record(report)
        yield
        assert await recording is None
        await recorder.close()


@asynccontextmanager
async def started(work: Background, run: Callable[[], Any]) -> AsyncIterator[None]:
    """Runs work whose starter needs more than the test has."""
    task = start_task(work, run)
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def with_worker_registry(stage: Stage) -> AsyncIterator[None]:
    async with stage.store("worker_registry.list") as store:
        hub = LocalWorkerHub(store.worker_registry, AgentRegistry(), [], clock=lambda: 1)
        stage.fault.armed = True
        hub.wakeup.set()
        async with started(Background.WORKER_REGISTRY, hub.run_sync):
            yield


def registry_of(stage: Stage, store: Store, kind: type[LocalUpstreamRegistry]) -> LocalUpstreamRegistry:
    return kind(lambda: cast(Any, None), store, AesGcmSecretBox(), AgentRegistry(), clock=lambda: 1)


@asynccontextmanager
async def with_upstreams(stage: Stage) -> AsyncIterator[None]:
    async with stage.store("upstreams.list") as store:
        registry = registry_of(stage, store, LocalUpstreamRegistry)
        stage.fault.armed = True
        registry.wakeup.set()
        async with started(Background.UPSTREAMS, registry.run_sync):
            yield


@asynccontextmanager
async def with_signing_keys(stage: Stage) -> AsyncIterator[None]:
    async with stage.store("key_values.get") as store:
        keys = StoredSigningKeys(store.key_values, b"s" * 32, AesGcmSecretBox(), clock=lambda: 1)
        await keys.public()
        stage.fault.armed = True
        async with started(Background.SIGNING_KEYS, keys.watch):
            yield


# Stores -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def with_sqlite_writer(stage: Stage) -> AsyncIterator[None]:
    """The caller of the failed round has an answer, and the next write works."""
    path = stage.folder / "tasks.db"
    connection = connect(path)
    migrate(connection)
    checkpointer = Checkpointer(partial(connect, path), path)
    writer = SqliteWriter(connection, lambda: 1, cast(Any, Faulty(checkpointer, "after_commit", stage.fault)))
    stage.fault.armed = True
    first, second = created(new_ref()), created(new_ref())
    await writer.submit(first)
    assert (await writer.submit(second)).record.ref == second.task
    yield
    await asyncio.to_thread(checkpointer.close)
    await asyncio.to_thread(writer.close)


@asynccontextmanager
async def with_checkpointer(stage: Stage) -> AsyncIterator[None]:
    path = stage.folder / "tasks.db"

    def open_connection() -> Any:
        stage.fault()
        return connect(path)

    stage.fault.armed = True
    checkpointer = Checkpointer(open_connection, path)
    yield
    await asyncio.to_thread(checkpointer.close)


class FakeDatabase:
    """A database whose first answer is none, which nothing foresees."""

    fixed_now = None

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    async def commit(self, job: Any, *_: Any) -> Any:
        try:
            self._fault()
        except MemoryError:
            return None
        (batch,) = job.args
        return CommittedBatch(batch, Mock(results=["done"] * len(batch)))


@asynccontextmanager
async def with_postgres_writer(stage: Stage) -> AsyncIterator[None]:
    writer = PostgresWriter(cast(Any, FakeDatabase(stage.fault)))
    stage.fault.armed = True
    with pytest.raises(Exception, match="it is not known whether this request was done"):
        await writer.submit(created(new_ref()))
    assert cast(Any, await writer.submit(created(new_ref()))) == "done"
    yield
    await writer.close()


# Adapters and bindings --------------------------------------------------------------------------------------------


@asynccontextmanager
async def with_watchdog(stage: Stage) -> AsyncIterator[None]:
    stage.fault.armed = True
    loop = cast(Any, Faulty(asyncio.get_running_loop(), "call_soon_threadsafe", stage.fault))
    watchdog = Watchdog(loop, interval=0.01)
    yield
    await asyncio.to_thread(watchdog.stop)


@asynccontextmanager
async def with_traces(stage: Stage) -> AsyncIterator[None]:
    class Transport:
        def send(self, message: bytes, timeout: float) -> None:
            stage.fault()

        def close(self) -> None:
            pass

    recorder = SpanRecorder(1.0)
    exporter = SpanExporter(recorder, Transport(), {})
    stage.fault.armed = True

    def record() -> bool:
        recorder.record_span(Span("one", "internal", recorder.start_span(""), "", 1.0, (), ()))
        return stage.fault.passages > 1

    await eventually(record)
    yield
    await asyncio.to_thread(exporter.close)


@asynccontextmanager
async def with_bus(stage: Stage) -> AsyncIterator[None]:
    from dragoman.extensions.nats.address import NatsAddress
    from dragoman.extensions.nats.connection import NatsConnection

    def random() -> float:
        stage.fault()
        return 0.0

    stage.fault.armed = True
    connection = NatsConnection(NatsAddress.parse(f"nats://127.0.0.1:{free_port()}"), "test", lambda: None, random)
    connection.open()
    yield
    await connection.close()


@asynccontextmanager
async def with_bus_sender(stage: Stage) -> AsyncIterator[None]:
    from dragoman.extensions.nats.connection import NatsConnection

    class Client:
        sent: Final[list[bytes]] = []

        async def publish(self, subject: str, message: bytes) -> None:
            stage.fault()
            self.sent.append(message)

    connection = NatsConnection(cast(Any, None), "test", lambda: None)
    client = cast(Any, Client())
    connection._client, connection.is_up = client, True
    stage.fault.armed = True
    async with started(Background.BUS_SENDER, partial(connection._send_queued, client)):
        connection.send("a", b"lost")
        await eventually(lambda: stage.fault.passages)
        connection.send("a", b"next")
        await eventually(lambda: Client.sent == [b"next"])
        yield


@asynccontextmanager
async def with_bus_heartbeat(stage: Stage) -> AsyncIterator[None]:
    from dragoman.extensions.nats.address import NatsAddress
    from dragoman.extensions.nats.bus import NatsBus

    class FaultyBus(NatsBus):
        def _send_heartbeat(self, *, fresh: bool) -> None:
            stage.fault()
            super()._send_heartbeat(fresh=fresh)

    address = NatsAddress.parse(f"nats://127.0.0.1:{free_port()}")
    bus = FaultyBus(LocalBus(), address, prefix="p", epoch="e", server="s")
    stage.fault.armed = True
    async with started(Background.BUS_HEARTBEAT, bus._run_heartbeat):
        yield


class UnavailableEntry:
    """An entry of a registry, and its agent or MCP server, which is unavailable."""

    is_unavailable = True
    is_reachable = False

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.agent = self


@asynccontextmanager
async def with_upstream_refresh(stage: Stage) -> AsyncIterator[None]:
    class FaultyRegistry(LocalUpstreamRegistry):
        async def refresh(self, entry: Any) -> None:
            stage.fault()

    async with stage.store() as store:
        registry = registry_of(stage, store, FaultyRegistry)
        stage.fault.armed = True
        async with started(Background.AGENT_REFRESH, partial(registry.run_refresh, cast(Any, UnavailableEntry()))):
            yield


@asynccontextmanager
async def with_mcp_refresh(stage: Stage) -> AsyncIterator[None]:
    class FaultyRegistry(McpRegistry):
        async def refresh(self, entry: Any) -> None:
            stage.fault()

    registry = FaultyRegistry(cast(Any, None), AgentRegistry(), None, max_response_bytes=1)
    stage.fault.armed = True
    async with started(Background.AGENT_REFRESH, partial(registry.run_refresh, cast(Any, UnavailableEntry()))):
        yield


@asynccontextmanager
async def with_executor(stage: Stage) -> AsyncIterator[None]:
    async def start_process() -> Any:
        stage.fault()
        raise OSError("no interpreter")

    stage.fault.armed = True
    supervisor = ExecutorSupervisor(
        ExecutorSpec("executor", "module:Name"), FrameworkSettings(), agent_host(), start_process=start_process
    )
    with pytest.raises(Exception, match="no interpreter"):
        await supervisor.open()
    yield
    await supervisor.close()


@asynccontextmanager
async def with_memory(stage: Stage) -> AsyncIterator[None]:
    class FaultyAllocator(process_setup.Allocator):
        def __init__(self) -> None:
            pass

        def unused_bytes(self) -> int:
            stage.fault()
            return 0

    allocator = FaultyAllocator()
    stage.fault.armed = True
    async with started(Background.MEMORY, partial(process_setup.return_unused_memory, allocator, 0.01)):
        yield


@asynccontextmanager
async def with_certificates(stage: Stage) -> AsyncIterator[None]:
    files = CertificateFiles(*write(stage.folder, Authority(stage.folder).issue()), refresh_revocations=stage.fault)
    stage.fault.armed = True
    async with started(Background.CERTIFICATES, partial(files.watch, 0.01)):
        yield


@asynccontextmanager
async def with_card_file(stage: Stage) -> AsyncIterator[None]:
    """A file that could not be applied is applied by the next check."""
    path = stage.folder / "cards.toml"
    path.write_text('[echo]\nname = "One"\n')
    file = CardFile(path, stage.fault)
    stage.fault.armed = True
    path.write_text('[echo]\nname = "Another"\n')
    async with started(Background.CARD_FILE, partial(file.watch, 0.01)):
        yield


@asynccontextmanager
async def with_credentials(stage: Stage) -> AsyncIterator[None]:
    class Authenticator:
        async def recheck(self, identity: Any) -> None:
            stage.fault()

    registry = StreamRegistry()
    stage.fault.armed = True
    with registry.open(Identity("alice", credential_id="key")):
        run = partial(registry.watch_credentials, cast(Any, Authenticator()), 0.01)
        async with started(Background.CREDENTIALS, run):
            yield


@asynccontextmanager
async def with_grpc_health(stage: Stage) -> AsyncIterator[None]:
    class Health:
        async def report(self, *, serving: bool) -> None:
            """Nothing is served."""

        async def enter_graceful_shutdown(self) -> None:
            stage.fault()

    draining = asyncio.Event()
    stage.fault.armed = True
    run = partial(grpc_server._watch, ServerOptions(draining=draining), cast(Any, Health()), 0, ())
    task = start_task(Background.GRPC_HEALTH, run)
    draining.set()
    yield
    await task


@asynccontextmanager
async def with_http_connections(stage: Stage) -> AsyncIterator[None]:
    def clock() -> float:
        stage.fault()
        return 0.0

    connections = HttpConnections(cast(Any, None), ServerOptions(), clock=clock)
    stage.fault.armed = True
    async with started(Background.HTTP_CONNECTIONS, connections.watch):
        yield


@asynccontextmanager
async def with_tls_listener(stage: Stage) -> AsyncIterator[None]:
    class FaultyListener(TlsListener):
        async def _accept(self, listening: Any) -> None:
            stage.fault()
            await super()._accept(listening)

    certificates = CertificateFiles(*write(stage.folder, Authority(stage.folder).issue()))
    listener = FaultyListener(asyncio.Protocol, certificates)
    stage.fault.armed = True
    _, port = await listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert b"HTTPS" in await reader.read()
    writer.close()
    yield
    await listener.close()


@asynccontextmanager
async def with_lease(stage: Stage) -> AsyncIterator[None]:
    stage.fault.armed = True
    watching = start_task(Background.LEASE, partial(watch_lease, Lease(0.0), stage.fault))
    yield
    watching.cancel()


ON_BOTH_STORES: Final[Mapping[Background, Scenario]] = {
    Background.SESSION: with_session,
    Background.STORE_PROBE: with_store_probe,
    Background.REAPER: in_runtime("orphaned_tasks"),
    Background.CLAIM_RECOVERY: with_unknown_claim,
    Background.SCHEDULER: in_runtime("ready_tasks"),
    Background.CANCEL_REQUESTS: in_runtime("cancel_requests.of_session"),
    Background.UNCONFIRMED_CANCELS: in_runtime("cancel_requests.overdue", unconfirmed_cancel_interval=0.05),
    Background.FEEDS: in_runtime("last_sequences"),
    Background.PUSH: in_runtime("pushes.due"),
    Background.PUSH_RECORDER: with_push_recorder,
    Background.RETENTION: in_runtime("erasures.inactive_states", at_start=True),
    Background.COMPACTION: in_runtime("compact", at_start=True),
    Background.STORED_BYTES: in_runtime("erasures.measure", retention_interval=0.05),
    Background.ABSENT_AGENTS: with_remote_agent,
    Background.AUDIT: with_audit_log,
    Background.WORKER_REGISTRY: with_worker_registry,
    Background.UPSTREAMS: with_upstreams,
    Background.SIGNING_KEYS: with_signing_keys,
}

WITHOUT_STORE: Final[Sequence[tuple[Background, Scenario]]] = (
    (Background.STORE_WRITER, with_sqlite_writer),
    (Background.SQLITE_CHECKPOINT, with_checkpointer),
    (Background.STORE_WRITER, with_postgres_writer),
    (Background.LEASE, with_lease),
    (Background.WATCHDOG, with_watchdog),
    (Background.TRACES, with_traces),
    (Background.BUS, with_bus),
    (Background.BUS_SENDER, with_bus_sender),
    (Background.BUS_HEARTBEAT, with_bus_heartbeat),
    (Background.AGENT_REFRESH, with_upstream_refresh),
    (Background.AGENT_REFRESH, with_mcp_refresh),
    (Background.AGENT_PROCESS, with_executor),
    (Background.CERTIFICATES, with_certificates),
    (Background.CARD_FILE, with_card_file),
    (Background.CREDENTIALS, with_credentials),
    (Background.GRPC_HEALTH, with_grpc_health),
    (Background.HTTP_CONNECTIONS, with_http_connections),
    (Background.TLS_LISTENER, with_tls_listener),
    (Background.MEMORY, with_memory),
)


def cases() -> list[Any]:
    """Every background work; work that depends on a store with both."""
    cases = [(work, scenario, store) for work, scenario in ON_BOTH_STORES.items() for store in ("sqlite", "postgres")]
    cases += [(work, scenario, "") for work, scenario in WITHOUT_STORE]
    return [
        pytest.param(*case, id=f"{case[1].__name__.removeprefix('with_')}-{case[0].value}-{case[2]}".strip("-"))
        for case in cases
    ]


def test_every_background_work_has_a_case() -> None:
    assert {*ON_BOTH_STORES, *(work for work, _ in WITHOUT_STORE)} == set(Background)


@pytest.mark.parametrize(("work", "scenario", "store"), cases())
async def test_background_work_goes_on_after_a_fault(
    work: Background, scenario: Scenario, store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_database") if store == "postgres" else ""
    fault, before = Fault(), FAILURES.counts[work]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(scenario(Stage(tmp_path, fault, url)))
        await eventually(lambda: fault.passages > 1)
        assert FAILURES.counts[work] == before + (work is not Background.SCHEDULER)  # a failed fetch ends alone
