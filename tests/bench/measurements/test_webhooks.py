"""Webhook receivers of the benchmark, and the send with a webhook."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import orjson
import pytest
from bench.load.codecs import CODECS
from bench.measurements.webhooks import (
    NO_WEBHOOK,
    RECEIVER_DOWN,
    RECEIVER_DROPS,
    RECEIVER_HEALTHY,
    RECEIVER_SILENT,
    receiver,
    with_webhook,
)
from google.protobuf.json_format import ParseDict

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DELIVERY = b"POST /hook HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"


async def call(url: str, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(DELIVERY * number)
    return reader, writer


def test_a_send_with_a_webhook_differs_only_in_its_configuration() -> None:
    plain = CODECS["rest", "dragoman"].stream("chunks 100")
    wire_request = with_webhook(plain, "http://127.0.0.1:9/hook")
    assert (wire_request.path, wire_request.method) == (plain.path, plain.method)
    request = ParseDict(orjson.loads(wire_request.body), pb.SendMessageRequest())
    assert request.configuration.task_push_notification_config.url == "http://127.0.0.1:9/hook"
    request.ClearField("configuration")
    assert request == ParseDict(orjson.loads(plain.body), pb.SendMessageRequest())


async def test_no_receiver_has_no_url() -> None:
    async with receiver(NO_WEBHOOK) as (url, calls):
        assert (url, calls) == ("", [])


async def test_a_healthy_receiver_responds_to_every_request() -> None:
    async with receiver(RECEIVER_HEALTHY) as (url, calls):
        reader, writer = await call(url, 2)
        for _ in range(2):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
        assert len(calls) == 2
        writer.close()


async def test_a_silent_receiver_reads_without_a_response() -> None:
    async with receiver(RECEIVER_SILENT) as (url, calls):
        reader, writer = await call(url, 3)
        writer.write_eof()
        assert await reader.read() == b""  # once it has read everything
        assert len(calls) == 3
        writer.close()


async def test_a_down_receiver_refuses_connections() -> None:
    async with receiver(RECEIVER_DOWN) as (url, calls):
        with pytest.raises(ConnectionRefusedError):
            await call(url, 1)
        assert calls == []


async def test_a_receiver_that_drops_connections_closes_each() -> None:
    async with receiver(RECEIVER_DROPS) as (url, calls):
        reader, writer = await call(url, 1)
        try:
            assert await reader.read() == b""
        except ConnectionError:
            pass
        assert len(calls) == 1
        writer.close()


@pytest.mark.parametrize("case", [RECEIVER_DROPS, RECEIVER_SILENT, RECEIVER_HEALTHY])
async def test_a_receiver_closes_idle_connections(case: str) -> None:
    async with receiver(case) as (url, _):
        reader, writer = await call(url, 0)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
