"""`/blobs/{hash}`: large parts that answers gave as links.

The bytes are a stranger's, served from our origin, so a browser may save them and never show them: attachment,
no sniffing, and a policy that lets nothing run (CSP Level 3 §6.3).
"""

from __future__ import annotations

import asyncio
import re
from typing import Final
from urllib.parse import quote

from aiohttp import web

from dragoman.core.errors import MethodNotFound
from dragoman.ports import Blobs

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(; ?[\w-]+=[\w.+-]+)*", re.ASCII)
_NO_STORE: Final = {"Cache-Control": "no-store"}
_HEADERS: Final = {
    "Cache-Control": "private, max-age=3600, immutable",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def respond(request: web.BaseRequest, blobs: Blobs | None, digest: str) -> web.StreamResponse:
    """The bytes, or the range of them that was asked for; 403 for a link that is not good, 404 for bytes that are gone.

    Raises MethodNotFound where there can be no such thing.
    """
    if blobs is None or not _DIGEST.fullmatch(digest):
        raise MethodNotFound(f"nothing is served at {request.rel_url.raw_path[:200]}")
    try:
        path = await asyncio.to_thread(blobs.find, digest, request.query)
    except PermissionError as error:
        return web.Response(status=403, text=f"{error}\n", headers=_NO_STORE)
    if path is None:
        return web.Response(
            status=404, text="these bytes are gone, with the task they belonged to\n", headers=_NO_STORE
        )
    media_type = request.query.get("type", "")
    if not _MEDIA_TYPE.fullmatch(media_type):
        media_type = "application/octet-stream"
    name = quote(request.query.get("filename", ""), safe="")
    disposition = f"attachment; filename*=UTF-8''{name}" if name else "attachment"
    headers = {**_HEADERS, "Content-Type": media_type, "Content-Disposition": disposition}
    return web.FileResponse(path, headers=headers)
