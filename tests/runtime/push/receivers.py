"""Receivers of push notifications, without a network: an `OutboundHttp` whose answers a test decides."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dragoman.ports import OutboundForbidden, OutboundResponse

Answer = OutboundResponse | Exception | Callable[[], Awaitable[OutboundResponse]]


def answered(status: int, **headers: str) -> OutboundResponse:
    """What a receiver answers; `retry_after="7"` is a header."""
    return OutboundResponse(status, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


OK = answered(200)


@dataclass(frozen=True)
class Post:
    """One call."""

    url: str
    headers: Mapping[str, str]
    body: Any
    status: int

    @property
    def sequence(self) -> int:
        """The event it is about."""
        return int(self.headers["Dragoman-Event"].rpartition(".")[2])


class Stamp:
    """Signs with what it was given to sign."""

    async def sign(self, audience: str, task: str, config: str, event: str, body: bytes) -> str:
        return f"{audience} {task} {len(body)}"


class Receivers:
    """Every receiver there is. What is not told to do something else answers 200."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.calls = 0
        """Calls under way."""
        self.most = 0
        """The most calls that were under way at a time."""
        self._answers: dict[str, deque[Answer]] = {}
        self._always: dict[str, Answer] = {}
        self._news = asyncio.Condition()

    def answer(self, url: str, *answers: Answer, then: Answer = OK) -> None:
        """What is answered at a URL: these, one after another, and then always the last."""
        self._answers[url] = deque(answers)
        self._always[url] = then

    def check_url(self, url: str) -> None:
        if "forbidden" in url:
            raise OutboundForbidden("the URL is not one that this server calls")

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> OutboundResponse:
        waiting = self._answers.get(url)
        answer = waiting.popleft() if waiting else self._always.get(url, OK)
        self.calls += 1
        self.most = max(self.most, self.calls)
        try:
            if isinstance(answer, Exception):
                await self._note(Post(url, headers, json.loads(body), 0))
                raise answer
            reply = answer if isinstance(answer, OutboundResponse) else await answer()
        finally:
            self.calls -= 1
        await self._note(Post(url, headers, json.loads(body), reply.status))
        return reply

    async def get(self, url: str, headers: Mapping[str, str] = {}) -> OutboundResponse:
        raise AssertionError("nobody reads")

    async def close(self) -> None:
        """Nothing is held."""

    def at(self, url: str) -> list[Post]:
        """The calls of one URL."""
        return [post for post in self.posts if post.url == url]

    def taken(self, url: str) -> list[int]:
        """The events that were taken at a URL, in the order in which they were."""
        return [post.sequence for post in self.at(url) if 200 <= post.status < 300]

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits until something holds after a call."""
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(true), 60)

    async def _note(self, post: Post) -> None:
        async with self._news:
            self.posts.append(post)
            self._news.notify_all()
