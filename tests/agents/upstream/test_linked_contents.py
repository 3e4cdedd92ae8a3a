"""Large contents that an upstream agent sends as links are in the results of this server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.agents.turn_context import RecordingTurnContext, state_of, status_text
from tests.agents.upstream.conftest import Open
from tests.agents.upstream.scripted_transport import BROKEN_RESPONSE, ScriptedTransport, chunk, run_turn, status, task

from dragoman import Turn
from dragoman import agent as declare_agent
from dragoman.agents.upstream.linked_contents import LinkedContents
from dragoman.calling.errors import CallForbidden, ServerUnavailable
from dragoman.calling.transport import HttpResponse, TransportLimits
from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman.core.task.blob_references import LARGE_PART_BYTES, blob_link_query, text_type
from dragoman.core.task.contents import StoredContent
from dragoman.core.task.log import ArtifactChange
from dragoman.core.task.projection import join_texts
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

CHUNKS = [f"{number:04d} {'é' * 999}\n" for number in range(400)]
TEXT = "".join(CHUNKS)
RAW = bytes(range(256)) * 2000

assert len(TEXT.encode()) > LARGE_PART_BYTES
assert len(RAW) > LARGE_PART_BYTES


# Two servers ------------------------------------------------------------------------------------------------------


@declare_agent(description="Sends a large text in chunks", streaming=False)
async def large_text(turn: Turn) -> AsyncIterator[str]:
    for one in CHUNKS:
        yield one


@declare_agent(description="Sends a large file and a large message")
async def large_file(turn: Turn) -> AsyncIterator[object]:
    yield pb.Artifact(artifact_id="file", parts=[pb.Part(raw=RAW, filename="a.bin", media_type="image/png")])
    yield pb.Message(message_id="m", parts=[pb.Part(text=TEXT)])


@pytest.fixture
async def front(opened: Open) -> AsyncIterator[str]:
    """The gRPC address of a server in front of one that sends contents above 256 KiB as links."""
    async with opened("behind", agents=[large_text, large_file], inline_bytes=0) as behind:
        urls = [f"{name}={behind.http.url}/{name}" for name in ("large-text", "large-file")]
        async with opened("front", *urls) as app:
            yield str(app.grpc)


async def test_a_large_text_of_an_agent_without_streams_is_kept_as_text(front: str) -> None:
    async with Client(front, agent="large-text") as client:
        result = (await client.send(message("go"))).task
    (artifact,) = result.artifacts
    assert (result.status.state, [part.WhichOneof("content") for part in artifact.parts]) == (
        states.COMPLETED,
        ["text"],
    )
    assert artifact.parts[0] == pb.Part(text=TEXT)


async def test_a_large_file_keeps_its_bytes_name_and_media_type(front: str) -> None:
    async with Client(front, agent="large-file") as client:
        result = (await client.send(message("go"))).task
    assert list(result.artifacts[0].parts) == [pb.Part(raw=RAW, filename="a.bin", media_type="image/png")]
    assert "http" not in str(result)


# One turn ---------------------------------------------------------------------------------------------------------


@dataclass
class ScriptedDownloads:
    """Implements `HttpClient`. Each download takes the next entry, a status with a body or an error; the last one is
    repeated."""

    results: list[tuple[int, bytes] | Exception]
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        idle_timeout: float | None,
    ) -> AsyncIterator[HttpResponse]:
        self.requests.append((url, headers))
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        yield Downloaded(*result)

    async def close(self) -> None:
        """Does nothing."""


@dataclass
class Downloaded:
    """Implements `HttpResponse`."""

    status: int
    body: bytes

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    async def chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.body), 1000):
            yield self.body[start : start + 1000]


def link(size: int, *, media_type: str = "text/plain", base: str = "http://there", expires: int = 2_000_000_000) -> Any:
    name = StoredContent(1, bytes(16), 3, 0, size, "output").name
    query = blob_link_query(b"secret", name, expires, "", text_type(media_type))
    return pb.Part(url=f"{base}/blobs/{name}?{query}", media_type=media_type)


def linked_task(state: str, part: pb.Part) -> pb.Task:
    result = task(state)
    result.artifacts.add(artifact_id="output", parts=[part])
    return result


async def turn(
    downloads: ScriptedDownloads, results: Mapping[str, Sequence[Any]], *, limit: int = 1_000_000, streams: bool = True
) -> tuple[RecordingTurnContext, pb.Task]:
    limits = TransportLimits(max_response_bytes=limit, response_timeout=1.0, blocking_timeout=1.0)
    contents = LinkedContents(["http://there/agent"], downloads, {"X-Key": "secret"}, limits)
    context = RecordingTurnContext("hi")
    script = ScriptedTransport({rpc: list(entries) for rpc, entries in results.items()})
    found, _ = await run_turn(context, script, streams=streams, linked_contents=contents)
    return context, found


async def test_after_a_broken_stream_only_the_rest_of_a_linked_text_is_written() -> None:
    size = len(TEXT.encode())
    downloads = ScriptedDownloads([(200, TEXT.encode())])
    context, found = await turn(
        downloads,
        {
            "SendStreamingMessage": [[task("WORKING"), chunk(TEXT[:1000], append=False), BROKEN_RESPONSE]],
            "GetTask": [[linked_task("COMPLETED", link(size))]],
        },
    )
    assert state_of(found) == "COMPLETED"
    assert "".join(part.text for part in found.artifacts[0].parts) == TEXT
    assert [one.append for one in context.changes if isinstance(one, ArtifactChange)] == [False, True]
    assert [headers for _, headers in downloads.requests] == [{"X-Key": "secret"}]


async def test_a_linked_text_that_grows_between_two_polls_is_written_once_in_chunks() -> None:
    texts = [TEXT[:200_000], TEXT]
    context, found = await turn(
        ScriptedDownloads([(200, text.encode()) for text in texts]),
        {
            "SendMessage": [[task("SUBMITTED")]],
            "GetTask": [
                [linked_task(state, link(len(text.encode())))]
                for state, text in zip(("WORKING", "COMPLETED"), texts, strict=True)
            ],
        },
        streams=False,
    )
    assert join_texts(found.artifacts[0].parts) == [pb.Part(text=TEXT)]
    chunks = [change.text or "" for change in context.changes if isinstance(change, ArtifactChange)]
    assert "".join(chunks) == TEXT
    assert max(len(text.encode()) for text in chunks) <= LARGE_PART_BYTES


async def test_a_link_in_a_stream_event_is_downloaded() -> None:
    update = pb.TaskArtifactUpdateEvent(task_id="t-1", context_id="c-1")
    update.artifact.CopyFrom(pb.Artifact(artifact_id="output", parts=[link(4)]))
    ended = status("COMPLETED")
    ended.status.message.CopyFrom(pb.Message(message_id="m", role=pb.ROLE_AGENT, parts=[link(4)]))
    downloads = ScriptedDownloads([(200, b"text")])
    _, found = await turn(downloads, {"SendStreamingMessage": [[task("WORKING"), update, ended]]})
    assert (found.artifacts[0].parts[0].text, status_text(found)) == ("text", "text")


async def test_an_expired_link_is_replaced_by_that_of_the_task_read_again() -> None:
    downloads = ScriptedDownloads([(403, b"expired"), (200, b"text")])
    _, found = await turn(
        downloads,
        {
            "SendStreamingMessage": [[linked_task("COMPLETED", link(4, expires=1))]],
            "GetTask": [[linked_task("COMPLETED", link(4))]],
        },
    )
    assert (state_of(found), found.artifacts[0].parts[0].text) == ("COMPLETED", "text")
    assert ["expires=1&" in url for url, _ in downloads.requests] == [True, False]


async def test_what_a_stream_repeats_after_its_task_was_read_again_is_written_once() -> None:
    script: dict[str, Sequence[Any]] = {
        "SendStreamingMessage": [[linked_task("WORKING", link(4)), chunk("more"), status("COMPLETED")]],
        "GetTask": [[task("WORKING", "textmore")], [task("WORKING", "textmore")], [task("COMPLETED", "textmore")]],
    }
    _, found = await turn(ScriptedDownloads([(404, b"")]), script)
    assert "".join(part.text for part in found.artifacts[0].parts) == "textmore"


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ((403, b"expired"), "responded with status 403"),
        ((302, b""), "responded with status 302"),
        ((200, b"tex"), "3 of 4 bytes"),
        (
            ServerUnavailable.for_reason("there: refused the connection", may_have_arrived=False),
            "refused the connection",
        ),
    ],
)
async def test_a_content_that_cannot_be_read_fails_the_turn(result: Any, reason: str) -> None:
    ended = linked_task("COMPLETED", link(4))
    downloads = ScriptedDownloads([result])
    _, found = await turn(downloads, {"SendStreamingMessage": [[ended]], "GetTask": [[ended]]})
    assert state_of(found) == "FAILED"
    assert status_text(found).startswith("InvalidAgentResponse: a large content of a response cannot be read: ")
    assert reason in status_text(found)
    assert "there" not in status_text(found)
    assert not found.artifacts
    assert len(downloads.requests) == 4


@pytest.mark.parametrize(
    ("result", "size", "text"),
    [
        (
            (200, b"x" * 5000),
            5000,
            "InvalidAgentResponse: a response is longer than 4000 bytes with its large contents",
        ),
        ((200, b"\xff"), 1, "InvalidAgentResponse: a text behind a link is not UTF-8"),
        (CallForbidden("the rule of calls"), 1, "UPSTREAM_FORBIDDEN: the rule of calls"),
    ],
)
async def test_a_content_that_must_not_be_read_fails_the_turn_at_once(result: Any, size: int, text: str) -> None:
    downloads = ScriptedDownloads([result])
    _, found = await turn(downloads, {"SendStreamingMessage": [[linked_task("COMPLETED", link(size))]]}, limit=4000)
    assert (state_of(found), status_text(found), len(downloads.requests)) == ("FAILED", text, 1)


async def test_the_limit_counts_all_contents_of_a_response() -> None:
    ended = linked_task("COMPLETED", link(3000))
    ended.artifacts[0].parts.append(link(3000, media_type="text/markdown"))
    _, found = await turn(ScriptedDownloads([(200, b"x" * 3000)]), {"SendStreamingMessage": [[ended]]}, limit=5000)
    assert "longer than 5000 bytes" in status_text(found)


async def test_links_to_other_servers_are_results_as_they_are() -> None:
    part = link(4, base="http://elsewhere")
    downloads = ScriptedDownloads([(200, b"text")])
    _, found = await turn(downloads, {"SendStreamingMessage": [[linked_task("COMPLETED", part)]]})
    assert list(found.artifacts[0].parts) == [part]
    assert not downloads.requests
