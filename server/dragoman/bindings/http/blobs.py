"""Large contents of tasks, behind signed links: blobs from their files, others in pieces from the rows of the store."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

from aiohttp import web

from dragoman.bindings.http.cors import response_headers
from dragoman.core.errors import MethodNotFound
from dragoman.core.task.blob_references import BLOB_NAME
from dragoman.core.task.contents import ContentMissing, ContentReader
from dragoman.ports import Blobs

log = logging.getLogger("dragoman.http")

BLOB_PREFIX: Final = "/blobs/"

_MEDIA_TYPE_PATTERN: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(; ?[\w-]+=[\w.+-]+)*", re.ASCII)
_SCRIPT_OR_STYLE: Final = re.compile(r"((application|text)/(x-)?(ecma|java|j|live)script[0-9.]*|text/css)(;.*)?", re.I)
"""JavaScript and CSS (WHATWG MIME Sniffing §4.6). With `nosniff`, browsers load no other types as scripts and styles.

Our pages load those of their own origin, and what an agent has written must not be one.
"""
_BLOB_HEADERS: Final = {
    "Cache-Control": "private, max-age=3600, immutable",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_NO_STORE_HEADERS: Final = {"Cache-Control": "no-store"}


async def blob_response(request: web.BaseRequest, blobs: Blobs | None, name: str) -> web.StreamResponse:
    """Returns a content or the requested range of it; 403 for an invalid link, 404 for a content that is missing.

    Raises MethodNotFound for a path that cannot name a content.
    """
    if blobs is None:
        raise _nothing_here(request)
    try:
        if not BLOB_NAME.fullmatch(name):
            content = blobs.content(name, request.query)
            if content is None:
                raise _nothing_here(request)
            return await _content_response(request, content)
        path = await asyncio.to_thread(blobs.find, name, request.query)
    except PermissionError as error:
        return web.Response(status=403, text=f"{error}\n", headers=_NO_STORE_HEADERS)
    if path is None:
        return web.Response(status=404, text="this file was deleted with its task\n", headers=_NO_STORE_HEADERS)
    return web.FileResponse(path, headers=_headers(request))


def _nothing_here(request: web.BaseRequest) -> MethodNotFound:
    return MethodNotFound(f"nothing is served at {request.rel_url.raw_path[:200]}")


def _headers(request: web.BaseRequest) -> dict[str, str]:
    media_type = request.query.get("type", "")
    if not _MEDIA_TYPE_PATTERN.fullmatch(media_type) or _SCRIPT_OR_STYLE.fullmatch(media_type):
        media_type = "application/octet-stream"
    name = quote(request.query.get("filename", ""), safe="")
    disposition = f"attachment; filename*=UTF-8''{name}" if name else "attachment"
    return {**_BLOB_HEADERS, "Content-Type": media_type, "Content-Disposition": disposition}


async def _content_response(request: web.BaseRequest, content: ContentReader) -> web.StreamResponse:
    """Streams a content. It is read as fast as the client takes it, in pieces that are not held longer."""
    headers = {**_headers(request), "Accept-Ranges": "bytes"}
    headers["ETag"] = etag = f'"{content.content.name}"'
    status, start, end = 200, 0, content.size
    if "Range" in request.headers and request.headers.get("If-Range", etag) == etag:
        try:
            start, end, _ = request.http_range.indices(content.size)
        except ValueError:  # it is malformed
            start = end = 0
        if start >= end:
            return web.Response(status=416, headers={**_NO_STORE_HEADERS, "Content-Range": f"bytes */{content.size}"})
        status, headers["Content-Range"] = 206, f"bytes {start}-{end - 1}/{content.size}"
    async with aclosing(content.pieces(start, end)) as pieces:
        try:
            piece = await anext(pieces, b"")
        except ContentMissing:
            text = "this content was deleted with its task, or replaced; read the task again\n"
            return web.Response(status=404, text=text, headers=_NO_STORE_HEADERS)
        response = web.StreamResponse(status=status, headers={**headers, **response_headers(request)})
        response.content_length = end - start
        try:
            await response.prepare(request)
            if request.method != "HEAD":
                await response.write(piece)
                async for piece in pieces:
                    await response.write(piece)
        except ConnectionError:  # the client has gone
            pass
        except Exception as error:
            # What was sent is not all. Only the broken connection says so: the response has its status already.
            log.warning("a content could not be sent to its end, so its connection is closed: %r", error)
            if request.transport is not None:
                request.transport.abort()
    return response
