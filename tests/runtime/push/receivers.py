"""Webhook receivers without a network: an `OutboundHttp` whose responses a test sets."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dragoman.ports import OutboundFailed, OutboundForbidden, OutboundResponse

Answer = OutboundResponse | Exception | Callable[[], Awaitable[OutboundResponse]]


def answered(status: int, **headers: str) -> OutboundResponse:
    """A response of a receiver; `retry_after="7"` is a header."""
    return OutboundResponse(status, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


OK = answered(200)


@dataclass(frozen=True)
class Post:
    """One webhook request."""

    url: str
    headers: Mapping[str, str]
    body: Any
    status: int

    @property
    def sequence(self) -> int:
        """The sequence of its event."""
        return int(self.headers["Dragoman-Event"].rpartition(".")[2])


class Stamp:
    """A signer whose signature shows what it signed."""

    async def sign(self, audience: str, task: str, config: str, event: str, body: bytes) -> str:
        return f"{audience} {task} {len(body)}"


class Receivers:
    """All receivers. By default they answer 200."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.calls = 0
        """Requests under way."""
        self.most = 0
        """The most requests under way at the same time."""
        self._answers: dict[str, deque[Answer]] = {}
        self._always: dict[str, Answer] = {}
        self._changed = asyncio.Condition()

    def answer(self, url: str, *answers: Answer, then: Answer = OK) -> None:
        """Sets the responses at a URL: these in order, then always `then`."""
        self._answers[url] = deque(answers)
        self._always[url] = then

    def check_url(self, url: str) -> None:
        if "forbidden" in url:
            raise OutboundForbidden("the URL is not one that this server calls")

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, may_send: Callable[[], bool] | None = None
    ) -> OutboundResponse:
        if may_send is not None and not may_send():
            raise OutboundFailed("not sent")
        queued = self._answers.get(url)
        answer = queued.popleft() if queued else self._always.get(url, OK)
        self.calls += 1
        self.most = max(self.most, self.calls)
        try:
            if isinstance(answer, Exception):
                await self._note(Post(url, headers, json.loads(body), 0))
                raise answer
            response = answer if isinstance(answer, OutboundResponse) else await answer()
        finally:
            self.calls -= 1
        await self._note(Post(url, headers, json.loads(body), response.status))
        return response

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> OutboundResponse:
        raise AssertionError("no test reads")

    async def close(self) -> None:
        """Holds nothing to close."""

    def at(self, url: str) -> list[Post]:
        """The requests to one URL."""
        return [post for post in self.posts if post.url == url]

    def taken(self, url: str) -> list[int]:
        """The sequences accepted at a URL, in order."""
        return [post.sequence for post in self.at(url) if 200 <= post.status < 300]

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits until a condition holds after some request."""
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(true), 60)

    async def _note(self, post: Post) -> None:
        async with self._changed:
            self.posts.append(post)
            self._changed.notify_all()
