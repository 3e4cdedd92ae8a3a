"""Who may call over HTTP what is for operators: who shows credentials with the grant `operator`, from anywhere.

Where nobody is asked who they are, callers on this machine. A proxy on this machine that forwards strangers says so in
a header, and such callers are not from here. Nor are pages of other servers (`cross_origin.py`), also those that may
call agents, and this machine has to be called by its own name.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from yarl import URL

from dragoman.bindings import callers, cross_origin
from dragoman.bindings.cross_origin import is_loopback
from dragoman.bindings.ops_audit import Acting
from dragoman.bindings.serving import HttpOptions
from dragoman.core.errors import Unauthenticated

_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP")


async def check(request: web.BaseRequest, options: HttpOptions) -> Acting:
    """Who calls. Raises Unauthenticated for who has not shown who it is, PermissionDenied for who is no operator."""
    if options.authenticator is None and not _is_here(request):
        raise Unauthenticated("this is for operators, on this machine only where nobody is asked who they are")
    identity = await callers.operator(request.headers.items(), options, request)
    return Acting(identity, request.remote or "", options.auditor)


def _is_here(request: web.BaseRequest) -> bool:
    try:
        host = URL.build(authority=request.headers.get("Host", "")).host or ""
    except ValueError:
        return False
    if cross_origin.is_foreign(request) or any(name in request.headers for name in _FORWARDED):
        return False
    return is_loopback(request.remote or "") and is_loopback(host)
