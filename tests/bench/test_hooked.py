"""The receivers that streams are measured beside, and the send that names one."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import orjson
import pytest
from bench.asking import FORMS
from bench.hooked import DOWN, NONE, SILENT, WELL, hooked, receiver
from google.protobuf.json_format import ParseDict

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

DELIVERY = b"POST /hook HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"


async def call(url: str, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(DELIVERY * number)
    return reader, writer


def test_a_hooked_send_is_the_same_send_with_a_webhook() -> None:
    plain = FORMS["rest", "dragoman"].stream("chunks 100")
    wire = hooked(plain, "http://127.0.0.1:9/hook")
    assert (wire.path, wire.method) == (plain.path, plain.method)
    request = ParseDict(orjson.loads(wire.body), pb.SendMessageRequest())
    assert request.configuration.task_push_notification_config.url == "http://127.0.0.1:9/hook"
    request.ClearField("configuration")
    assert request == ParseDict(orjson.loads(plain.body), pb.SendMessageRequest())


async def test_who_has_no_receiver_has_no_address() -> None:
    async with receiver(NONE) as (url, calls):
        assert (url, calls) == ("", [])


async def test_a_receiver_that_is_well_takes_one_after_the_other() -> None:
    async with receiver(WELL) as (url, calls):
        reader, writer = await call(url, 2)
        for _ in range(2):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
        assert len(calls) == 2
        writer.close()


async def test_a_receiver_that_is_silent_reads_and_does_not_answer() -> None:
    async with receiver(SILENT) as (url, calls):
        reader, writer = await call(url, 3)
        writer.write_eof()
        assert await reader.read() == b""  # once it has read everything
        assert len(calls) == 3
        writer.close()


async def test_a_receiver_that_is_down_hangs_up() -> None:
    async with receiver(DOWN) as (url, calls):
        reader, writer = await call(url, 1)
        try:
            assert await reader.read() == b""
        except ConnectionError:
            pass
        assert len(calls) == 1
        writer.close()


@pytest.mark.parametrize("case", [DOWN, SILENT, WELL])
async def test_a_receiver_lets_go_of_its_callers(case: str) -> None:
    async with receiver(case) as (url, _):
        reader, writer = await call(url, 0)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
