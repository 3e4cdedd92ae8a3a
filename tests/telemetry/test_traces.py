"""One trace per task, from the caller through server, turn and worker to the webhook, as a collector receives it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
from opentelemetry import trace as otel
from opentelemetry.proto.trace.v1 import trace_pb2 as tr
from tests.listing import list_tasks
from tests.telemetry.collector import Collector, collecting, of
from tests.test_webhooks import Hook, hooked

from dragoman import Turn, agent
from dragoman.cli.logs import JsonLogFormatter
from dragoman.client.calls import Client
from dragoman.core import trace
from dragoman.core.durations import Backoff
from dragoman.core.trace import CURRENT_TRACE
from dragoman.ports.tracing import Span
from dragoman.settings.settings import Settings
from dragoman.telemetry.otlp import OtlpHttpTransport, SpanExporter
from dragoman.telemetry.spans import EXPORT_BATCH_SIZE, SpanRecorder
from dragoman.wiring.app import App, open_app
from dragoman.wiring.telemetry import open_tracing
from dragoman.worker import Worker
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALLER: Final = "b7ad6b7169203331"
PARENT: Final = f"00-{TRACE}-{CALLER}-01"
V1: Final = {"A2A-Version": "1.0"}

Call = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

seen: dict[str, str] = {}
"""Trace contexts that agents saw."""


@agent(default=True)
async def echo(turn: Turn) -> str:
    seen["echo"] = CURRENT_TRACE.get()
    record = logging.makeLogRecord({"msg": "a line of the agent"})
    seen["log"] = JsonLogFormatter().format(record)
    if turn.text == "ask":
        turn.ask("which?")
    return turn.text


@agent
def remote(turn: Turn) -> str:
    seen["remote"] = CURRENT_TRACE.get()  # in a thread, which has the context of its turn
    seen["library"] = f"{otel.get_current_span().get_span_context().span_id:016x}"
    return turn.text


@asynccontextmanager
async def serving(folder: Path, **overrides: Any) -> AsyncIterator[App]:
    places = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "store": f"sqlite:///{folder}/tasks.db"}
    async with open_app(Settings.model_validate({**places, **overrides}), [echo]) as app:
        yield app


async def post(app: App, path: str, body: object, **headers: str) -> Any:
    async with (
        aiohttp.ClientSession(app.public_url) as session,
        session.post(path, json=body, headers={**V1, **headers}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.json()


def sending(text: str, **configuration: object) -> dict[str, object]:
    values = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": values, "configuration": configuration}


def only(spans: list[tr.Span]) -> tr.Span:
    (one,) = spans
    return one


def accepting(collector: Collector) -> list[tr.Span]:
    """The server spans of requests."""
    return [span for _, span in collector.spans if span.kind == tr.Span.SPAN_KIND_SERVER]


async def through_worker_to_webhook(folder: Path, collector: Collector, hook: Hook, parent: str) -> str:
    """Sends a task to a remote agent, with a webhook. Returns its id."""
    async with (
        serving(folder, otlp=collector.http, otlp_headers="X-Key=secret") as app,
        open_tracing(collector.grpc, {}, 1.0, role="dragoman-worker") as tracing,
    ):
        worker = Worker([remote], str(app.grpc), tracer=tracing.recorder)
        working = asyncio.create_task(worker.run())
        await worker.ready.wait()
        values = sending("hello", taskPushNotificationConfig={"url": hook.url})
        answer = await post(app, "/remote/message:send", values, traceparent=parent)
        assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        await hook.until(1)
        await worker.drain(5)
        await working
    return str(answer["task"]["id"])


async def test_one_trace_reaches_from_the_caller_through_the_worker_to_the_webhook(tmp_path: Path) -> None:
    async with collecting() as collector, hooked() as hook:
        task = await through_worker_to_webhook(tmp_path, collector, hook, PARENT)
        assert_one_trace(collector, task, [headers["traceparent"] for headers, _ in hook.got])
        assert {headers.get("X-Key") for headers in collector.headers} == {"secret", None}


async def test_an_unrecorded_trace_is_passed_on_but_not_recorded(tmp_path: Path) -> None:
    parent = PARENT[:-2] + "00"
    async with collecting() as collector, hooked() as hook:
        await through_worker_to_webhook(tmp_path, collector, hook, parent)
        assert collector.spans == []
        assert {headers["traceparent"] for headers, _ in hook.got} == {seen["remote"]} == {parent}
        assert seen["library"] == "0" * 16


def assert_one_trace(collector: Collector, task: str, webhooks: list[str]) -> None:
    assert {span.trace_id.hex() for _, span in collector.spans} == {TRACE}
    accepted = only(accepting(collector))
    run, turn = only(collector.named("run remote")), only(collector.named("turn remote"))
    pushes = collector.named("push")
    assert accepted.parent_span_id.hex() == CALLER
    assert (accepted.name, of(accepted)["rpc.system"]) == ("POST /{tenant}/message:send", "rest")
    assert run.parent_span_id == accepted.span_id
    assert turn.parent_span_id == run.span_id
    assert {push.parent_span_id for push in pushes} == {accepted.span_id}
    assert {push.kind for push in pushes} == {tr.Span.SPAN_KIND_CLIENT}
    # The receiver may continue the trace: its parent is the span of this request.
    assert set(webhooks) == {f"00-{TRACE}-{push.span_id.hex()}-01" for push in pushes}
    assert seen["remote"] == f"00-{TRACE}-{turn.span_id.hex()}-01"
    assert seen["library"] == turn.span_id.hex()
    for span in (accepted, run, turn, *pushes):
        assert of(span)["dragoman.agent"] == "remote"
        assert of(span).get("dragoman.task", task) == task
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.status.code == tr.Status.STATUS_CODE_UNSET
    assert of(run)["dragoman.state"] == "COMPLETED"
    assert of(accepted)["rpc.response.status"] == "200"
    assert {of(push)["http.response.status"] for push in pushes} == {200}
    by_process = {
        service: {span.name for name, span in collector.spans if name == service} for service, _ in collector.spans
    }
    assert by_process["dragoman-worker"] == {"turn remote"}


async def test_a_turn_continues_the_trace_on_another_server_and_later(tmp_path: Path) -> None:
    body = sending("hello", returnImmediately=True)
    async with collecting() as collector:
        async with serving(tmp_path, otlp=collector.http, worker_wait=600) as app:
            worker = Worker([remote], str(app.grpc))
            working = asyncio.create_task(worker.run())
            await worker.ready.wait()
            await worker.drain(5)
            await working
            waiting = await post(app, "/remote/message:send", body, traceparent=PARENT)
            assert waiting["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        async with serving(tmp_path, otlp=collector.http) as app:
            worker = Worker([remote], str(app.grpc))  # records no spans, but passes the trace on
            working = asyncio.create_task(worker.run())
            async with Client(str(app.grpc), agent="remote") as client:
                async for event in client.subscribe(waiting["task"]["id"]):
                    del event
            await worker.drain(5)
            await working
        accepted = only([span for span in accepting(collector) if span.parent_span_id.hex() == CALLER])
        run = only(collector.named("run remote"))
        assert (run.trace_id.hex(), run.parent_span_id) == (TRACE, accepted.span_id)
        assert seen["remote"] == f"00-{TRACE}-{run.span_id.hex()}-01"


async def test_calls_of_upstream_agents_are_part_of_the_trace(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("behind", "front")]
    for folder in folders:
        folder.mkdir()
    async with collecting() as collector:
        async with serving(folders[0], otlp=collector.http) as behind:
            valueses = [{"url": behind.public_url, "id": "far"}]
            async with serving(folders[1], otlp=collector.http, upstream=valueses) as front:
                answer = await post(front, "/far/message:send", sending("hello"), traceparent=PARENT)
        assert answer["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        run = only(collector.named("run far"))
        called = [span for span in accepting(collector) if span.parent_span_id == run.span_id]
        assert called
        assert only(collector.named("run echo")).parent_span_id == called[0].span_id
        assert {span.trace_id.hex() for _, span in collector.spans} == {TRACE}


async def test_every_binding_continues_the_callers_trace(tmp_path: Path) -> None:
    async with collecting() as collector:
        async with serving(tmp_path, otlp=collector.grpc) as app:
            rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sending("rpc")}
            await post(app, "/", rpc, traceparent=PARENT)
            request = pb.SendMessageRequest(
                message=pb.Message(message_id="g", role=pb.ROLE_USER, parts=[pb.Part(text="g")])
            )
            async with grpc.aio.insecure_channel(str(app.grpc)) as channel:
                call: Call = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
                await call(request.SerializeToString(), metadata=(("traceparent", PARENT),))
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{app.public_url}/ws", headers={"traceparent": PARENT, **V1}) as socket,
            ):
                await socket.send_json(rpc)
                await socket.receive_json()
        accepted = accepting(collector)
        assert sorted(str(of(span)["rpc.system"]) for span in accepted) == ["grpc", "jsonrpc", "websocket"]
        assert {span.parent_span_id.hex() for span in accepted} == {CALLER}
        runs = collector.named("run echo")
        assert {run.parent_span_id for run in runs} == {span.span_id for span in accepted}
        assert f'"trace": "{TRACE}"' in seen["log"]


async def test_a_later_message_of_another_trace_is_linked_to_the_tasks_trace(tmp_path: Path) -> None:
    other = f"00-{'1' * 32}-{'2' * 16}-01"
    async with collecting() as collector:
        async with serving(tmp_path, otlp=collector.http) as app:
            task = (await post(app, "/message:send", sending("ask"), traceparent=PARENT))["task"]
            again = sending("this one")
            again["message"]["taskId"] = task["id"]  # type: ignore[index]
            await post(app, "/message:send", again, traceparent=other)
        first, second = sorted(collector.named("run echo"), key=lambda span: span.start_time_unix_nano)
        assert first.trace_id == second.trace_id == bytes.fromhex(TRACE)
        assert not first.links
        assert [link.trace_id.hex() for link in second.links] == ["1" * 32]


@pytest.mark.parametrize(
    ("share", "parent", "recorded"),
    [(1.0, "", True), (0.0, "", False), (0.0, PARENT, True), (1.0, PARENT[:-2] + "00", False), (1.0, "nonsense", True)],
)
async def test_the_caller_decides_whether_its_trace_is_recorded(
    tmp_path: Path, share: float, parent: str, recorded: bool
) -> None:
    async with collecting() as collector:
        async with serving(tmp_path, otlp=collector.http, trace_share=share) as app:
            await post(app, "/message:send", sending("hello"), traceparent=parent)
        assert bool(collector.spans) is recorded
        if parent not in ("", "nonsense"):  # the next call gets the same context
            assert seen["echo"].startswith(PARENT[:35])
            assert seen["echo"].endswith("-01" if recorded else "-00")


async def test_nothing_is_traced_or_stored_without_a_collector(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(str(app.grpc)) as client:
        await post(app, "/message:send", sending("hello"), traceparent=PARENT)
        assert seen["echo"] == ""
        (head,) = await app.runtime.maintenance.store.locate((await anext(aiter(list_tasks(client)))).id)
        assert trace.trace_of(await app.runtime.maintenance.store.envelope(head.ref, 1)) == ""


async def test_rejected_spans_are_retried() -> None:
    async with collecting() as collector:
        collector.status = 503
        retry = Backoff(0.01, 0.02)
        async with open_tracing(collector.http, {}, 1.0, interval=0.01, retry=retry) as tracing:
            reported = ("dragoman.event", "dragoman.agent", "dragoman.state")
            values = (3, "", "no \udcff")
            tracing.recorder.record_span(
                Span("one", "internal", tracing.recorder.start_span(""), "", 1.0, reported, values, "it broke \udcff")
            )
            async with asyncio.timeout(60):
                await collector.requested.wait()
                collector.status = 200
                await collector.took.wait()
        numbers = {family.name: family.samples[0].value for family in tracing.families()}
        span = only(collector.named("one"))
        assert (span.status.code, span.status.message) == (tr.Status.STATUS_CODE_ERROR, "it broke ?")
        assert of(span) == {"dragoman.event": 3, "dragoman.state": "no ?"}
        assert (numbers["spans"], numbers["spans_sent"], numbers["traces_up"]) == (1, 1, True)


@pytest.mark.parametrize("closes", [False, True])
def test_a_collector_connection_is_reused_and_reopened_after_a_close(closes: bool) -> None:
    taken = list[tuple[int, bytes]]()

    class Taking(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            taken.append((self.client_address[1], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.close_connection = closes  # without a header

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        threading.Thread(target=server.serve_forever).start()
        to = OtlpHttpTransport(f"http://127.0.0.1:{server.server_port}", {})
        to.send(b"one", 60)
        to.send(b"two", 60)
        to.close()
        server.shutdown()
    assert [message for _, message in taken] == [b"one", b"two"]
    assert len({port for port, _ in taken}) == (2 if closes else 1)


def test_spans_are_sent_in_batches() -> None:
    recorder, sent, first = SpanRecorder(), list[bytes](), threading.Event()

    class TransportStub:
        def send(self, message: bytes, timeout: float) -> None:
            sent.append(message)
            span("made meanwhile")
            first.set()

        def close(self) -> None:
            pass

    def span(name: str) -> None:
        recorder.record_span(Span(name, "internal", recorder.start_span(""), "", 1.0, (), ()))

    span("one")
    exporter = SpanExporter(recorder, TransportStub(), {}, interval=600.0)
    assert first.wait(60)
    for _ in range(3):
        span("another")
    exporter.close()
    assert [message.count(b"another") for message in sent] == [0, 3]


def test_a_full_batch_is_sent_at_once() -> None:
    recorder, sent, came = SpanRecorder(), list[int](), threading.Event()

    class TransportStub:
        def send(self, message: bytes, timeout: float) -> None:
            sent.append(message.count(b"one of many"))
            came.set()

        def close(self) -> None:
            pass

    exporter = SpanExporter(recorder, TransportStub(), {}, interval=600.0)
    for _ in range(EXPORT_BATCH_SIZE):
        recorder.record_span(Span("one of many", "internal", recorder.start_span(""), "", 1.0, (), ()))
    assert came.wait(60)
    exporter.close()
    assert sum(sent) == exporter.sent == EXPORT_BATCH_SIZE


def test_dropped_spans_are_counted() -> None:
    recorder = SpanRecorder(max_queued=2)
    for name in ("one", "two", "three"):
        recorder.record_span(Span(name, "internal", recorder.start_span(""), "", 1.0, (), ()))
    assert (recorder.recorded, recorder.dropped) == (2, 1)
    assert [span.count(b"three") for span in recorder.take(9)] == [0, 0]


def test_only_valid_traceparents_are_read() -> None:
    assert trace.parse_traceparent(PARENT) == trace.parse_traceparent(f"cc-{TRACE}-{CALLER}-03-of-later") == PARENT
    assert trace.parse_traceparent(PARENT[:-2] + "fe") == PARENT[:-2] + "00"
    for wrong in (
        "", "00", PARENT.upper(), PARENT + "-more", f"ff-{TRACE}-{CALLER}-01", f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[:-1]}-{CALLER}-01", PARENT + "\n",
    ):  # fmt: skip
        assert trace.parse_traceparent(wrong) == "", wrong


def test_an_envelope_keeps_its_fields_and_its_trace() -> None:
    envelope = pb.SendMessageRequest(configuration=pb.SendMessageConfiguration(accepted_output_modes=["text/plain"]))
    kept = trace.add_trace(envelope.SerializeToString(), PARENT)
    read = pb.SendMessageRequest.FromString(kept)
    assert read.configuration == envelope.configuration
    assert trace.trace_of(read.SerializeToString()) == trace.trace_of(kept) == PARENT
    assert (
        trace.trace_of(envelope.SerializeToString())
        == trace.trace_of(b"")
        == trace.trace_of(kept[:-1])
        == trace.trace_of(kept + b"0")
        == ""
    )


@pytest.mark.parametrize(
    "forged", ["x" * 54 + "1", PARENT[:-1] + "2", PARENT[:-1] + "\n", f"00-{'0' * 32}-{CALLER}-01", f"ff{PARENT[2:]}"]
)
def test_a_foreign_trace_field_is_ignored(forged: str) -> None:
    """A caller can set the field, and a server without tracing stores it."""
    assert len(forged) == len(PARENT)
    assert trace.trace_of(trace.add_trace(b"\x12\x00", forged)) == ""
