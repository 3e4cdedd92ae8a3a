"""examples/transcoder: a service that is not A2A, over HTTP, as AIP-127, 131 to 136 and 193 have it."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import pytest
import pytest_asyncio
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from tests.wire.random_messages import messages, settle

from dragoman.transcoding import JsonDialect, SseParser, codec

FOLDER: Final = Path(__file__).parents[2] / "examples" / "transcoder"
WAIT_TIMEOUT: Final = 60.0

DUNE: Final = {
    "title": "Dune",
    "authors": ["Frank Herbert"],
    "genre": "GENRE_NOVEL",
    "published": "1965-08-01T00:00:00Z",
    "pageCount": "412",
    "cover": base64.b64encode(b"\x00\xff").decode(),
    "labels": {"loan": "yes"},
    "subtitle": "",
    "readingTime": "64800.500s",
    "rating": 4.1,
    "cents": "999",
}


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Imports the example as a user does: modules of its own folder."""
    sys.path.insert(0, str(FOLDER))
    try:
        import library as found  # type: ignore[import-not-found, unused-ignore]

        yield found
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("library", "gateway", "library_pb2", "library_pb2_grpc"):
            sys.modules.pop(name, None)


class Web:
    """Requests to a running example."""

    def __init__(self, session: aiohttp.ClientSession, target: str) -> None:
        self.session = session
        self.target = target

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with self.session.request(method, path, data=data, headers=headers) as answer:
            assert answer.content_type == "application/json"
            return answer.status, json.loads(await answer.read())

    async def get(self, path: str) -> Any:
        status, value = await self.ask("GET", path)
        assert status == 200, value
        return value


@pytest_asyncio.fixture
async def web(library: Any) -> AsyncIterator[Web]:
    target, url, server, runner = await library.serve()
    try:
        async with aiohttp.ClientSession(url) as session:
            yield Web(session, target)
    finally:
        await runner.cleanup()
        await server.stop(None)


async def test_the_standard_methods(web: Web) -> None:
    """AIP-131 to 135: create, get, list, update, delete."""
    dune = {"name": "shelves/7/books/dune", **DUNE}
    assert await web.ask("POST", "/v1/shelves/7/books?bookId=dune", DUNE) == (200, dune)
    assert await web.get("/v1/shelves/7/books/dune") == dune
    assert await web.get("/v1/shelves/7/books/dune?readMask=title,pageCount") == {"title": "Dune", "pageCount": "412"}
    assert await web.get("/v1/shelves/7/books/dune?read_mask=page_count") == {"pageCount": "412"}
    assert await web.get("/v1/shelves/7/books/dune?fields=*&$.xgafv=2&alt=json") == dune
    # the rule's response_body: the list itself
    assert await web.get("/v1/shelves") == ["shelves/7"]

    # the mask selects the fields; the name in the path precedes one in the body
    changed = {"title": "Dune Messiah", "authors": [], "name": "shelves/1/books/other"}
    status, value = await web.ask("PATCH", "/v1/shelves/7/books/dune?updateMask=title", changed)
    assert (status, value) == (200, {**dune, "title": "Dune Messiah"})
    # no mask: the fields that are set; `*`: all fields
    _, value = await web.ask("PATCH", "/v1/shelves/7/books/dune", {"free": True, "rating": 5})
    del value["title"]
    assert value == {k: v for k, v in dune.items() if k not in ("cents", "title")} | {"free": True, "rating": 5.0}
    assert await web.ask("PATCH", "/v1/shelves/7/books/dune?updateMask=*", {"title": "D"}) == (
        200,
        {"name": "shelves/7/books/dune", "title": "D"},
    )
    assert await web.ask("DELETE", "/v1/shelves/7/books/dune") == (200, {})
    assert await web.get("/v1/shelves") == []


async def test_queries_of_every_kind_and_both_bindings(web: Web) -> None:
    for shelf, id_, more in (
        ("1", "a", {"genre": "GENRE_POETRY", "free": True}),
        ("1", "b", {"genre": 3, "published": "2020-01-01T00:00:00+01:00", "free": False}),
        ("2", "c", {"genre": "GENRE_NOVEL", "published": "2021-01-01T00:00:00Z"}),
    ):
        assert (await web.ask("POST", f"/v1/shelves/{shelf}/books?book_id={id_}", more))[0] == 200

    async def ids(path: str) -> list[str]:
        return [book["name"][-1] for book in (await web.get(path)).get("books", [])]

    assert await ids("/v1/books") == ["a", "b", "c"]
    assert await ids("/v1/shelves/1/books") == ["a", "b"]
    assert await ids("/v1/shelves/-/books") == []
    assert await ids("/v1/books?genres=GENRE_POETRY&genres=1") == ["a", "c"]
    assert await ids("/v1/books?publishedAfter=2020-06-01T00:00:00Z") == ["c"]
    assert await ids("/v1/books?published_after=2019-12-31T23:00:00Z") == ["b", "c"]
    assert await ids("/v1/books?free=true") == ["a"]
    assert await ids("/v1/books?free=false") == ["b", "c"]
    page = await web.get("/v1/books?pageSize=2")
    assert page["nextPageToken"] == "shelves/1/books/b"
    assert await ids(f"/v1/books?pageSize=2&pageToken={page['nextPageToken']}") == ["c"]
    # AIP-136: a custom method, with the rest of the request as body
    status, moved = await web.ask("POST", "/v1/shelves/1/books/a:move", {"destination": "shelves/2"})
    assert (status, moved["name"]) == (200, "shelves/2/books/a")
    assert await ids("/v1/shelves/2/books") == ["c", "a"] or await ids("/v1/shelves/2/books") == ["a", "c"]
    # an id with a slash, and an id with a colon that is not a custom method
    status, value = await web.ask("POST", "/v1/shelves/x%2Fy/books?bookId=%C3%BC:o", {})
    assert (status, value["name"]) == (200, "shelves/x%2Fy/books/ü:o")
    assert await web.get("/v1/shelves/x%2Fy/books/%C3%BC:o") == value


REFUSED: Final = [
    ("GET", "/v1/books?genres=GENRE_NONE", None, "genres", "must be one of GENRE_UNSPECIFIED, GENRE_NOVEL"),
    ("GET", "/v1/books?pageSize=1&pageSize=2", None, "pageSize", "is given 2 times"),
    ("GET", "/v1/books?publishedAfter=now", None, "publishedAfter", "must be an RFC 3339 time"),
    ("GET", "/v1/shelves/1/books/a?readMask=no%20path", None, "readMask", "is not a path"),
    ("GET", "/v1/shelves/%FF/books", None, "parent", "must be percent-encoded UTF-8"),
    ("POST", "/v1/shelves/1/books", {"pageCount": "many"}, "book.pageCount", "must be an integer from"),
    ("POST", "/v1/shelves/1/books", {"cents": "1", "free": True}, "book.free", "cannot stand beside cents"),
    ("POST", "/v1/shelves/1/books", {"readingTime": "1h"}, "book.readingTime", "must be seconds"),
    ("POST", "/v1/shelves/1/books", {"labels": {"k": 1}}, "book.labels.k", "must be a string"),
    ("POST", "/v1/shelves/1/books", b'{"title":"a","title":"b"}', "title", "the key is given twice"),
    # rejected by the service, with its own message
    ("GET", "/v1/books?pageSize=-1", None, "pageSize", "pageSize must not be negative"),
]


@pytest.mark.parametrize(("method", "path", "body", "field", "rule"), REFUSED, ids=[f"{r[3]} {r[4]}" for r in REFUSED])
async def test_an_invalid_request_names_its_violation(
    web: Web, method: str, path: str, body: object, field: str, rule: str
) -> None:
    """AIP-193: 400, INVALID_ARGUMENT, and BadRequest with the field."""
    status, value = await web.ask(method, path, body)
    error = value["error"]
    assert (status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    bad = next(detail for detail in error["details"] if detail["@type"].endswith("BadRequest"))
    assert [violation["field"] for violation in bad["fieldViolations"]] == [field]
    assert rule in bad["fieldViolations"][0]["description"]


async def test_failures_have_the_status_of_their_code(web: Web) -> None:
    assert (await web.ask("POST", "/v1/shelves/1/books?bookId=a", {}))[0] == 200
    for method, path, body, http, code in (
        ("GET", "/v1/shelves/1/books/none", None, 404, "NOT_FOUND"),
        ("POST", "/v1/shelves/1/books?bookId=a", {}, 409, "ALREADY_EXISTS"),
        ("GET", "/v1/nothing", None, 404, "NOT_FOUND"),
        ("PUT", "/v1/shelves/1/books/a", {}, 405, "UNIMPLEMENTED"),
        ("POST", "/v1/shelves/1/books", b"{", 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/shelves/2/books:watch", None, 404, "NOT_FOUND"),
    ):
        status, value = await web.ask(method, path, body)
        assert (status, value["error"]["code"], value["error"]["status"]) == (http, http, code), value
    async with web.session.put("/v1/shelves/1/books/a") as answer:
        assert answer.headers["Allow"] == "DELETE, GET, PATCH"
    status, value = await web.ask("GET", "/v1/shelves/1/books:watch?count=2", **{"X-Server-Timeout": "0.001"})
    assert status in (200, 504)  # the first book may be faster than the deadline
    assert "DEADLINE_EXCEEDED" in json.dumps(value)


async def test_a_stream_is_sse_or_an_array_and_ends_with_its_reader(web: Web, library: Any) -> None:
    for id_ in "ab":
        await web.ask("POST", f"/v1/shelves/1/books?bookId={id_}", {"title": id_.upper()})
    path = "/v1/shelves/1/books:watch"
    books = [{"name": f"shelves/1/books/{id_}", "title": id_.upper()} for id_ in "ab"]
    assert await web.get(f"{path}?count=2") == books

    parser, events = SseParser(), []
    async with web.session.get(path, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.content_type == "text/event-stream"
        async with asyncio.timeout(WAIT_TIMEOUT):
            async for chunk in answer.content.iter_any():
                events += [json.loads(event.data) for event in parser.feed(chunk)]
                if len(events) == 2:  # the stream continues with books that are added now
                    await web.ask("POST", "/v1/shelves/1/books?bookId=c", {"title": "C"})
                if len(events) == 3:
                    break
    assert [event["title"] for event in events] == ["A", "B", "C"]


async def test_the_service_is_the_same_over_grpc(web: Web, library: Any) -> None:
    await web.ask("POST", "/v1/shelves/7/books?bookId=dune", DUNE)
    async with grpc.aio.insecure_channel(web.target) as channel:
        stub = library.library_pb2_grpc.LibraryStub(channel)
        book = await stub.GetBook(library.library_pb2.GetBookRequest(name="shelves/7/books/dune"))
    assert json_format.MessageToDict(book) == {"name": "shelves/7/books/dune", **DUNE}


@pytest.mark.parametrize("name", ["Book", "ListBooksRequest", "UpdateBookRequest", "ListBooksResponse"])
def test_messages_equal_json_format_in_json(library: Any, name: str) -> None:
    cls = getattr(library.library_pb2, name)
    created_codec = codec(cls, JsonDialect("json_format"))

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(messages(cls))
    def check(message: Any) -> None:
        theirs = json_format.MessageToDict(message)
        assert json.loads(created_codec.encode(message)) == theirs
        assert settle(created_codec.decode(theirs)) == settle(json_format.ParseDict(theirs, cls()))

    check()
