"""Who may call over HTTP what is for operators: who shows credentials with the grant `operator`, from anywhere.

Where nobody is asked who they are, callers on this machine. A proxy on this machine that forwards strangers says so in
a header, and such callers are not from here. Nor are pages of other servers: any page may send requests to a server on
its user's machine, and any name may be made to point there (DNS rebinding). So this machine has to be called by its own
name, and not for a page of another server.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from aiohttp import web
from yarl import URL

from dragoman.bindings import callers
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
        host = URL.build(scheme=request.scheme, authority=request.headers.get("Host", ""))
        same = "Origin" not in request.headers or URL(request.headers["Origin"]).origin() == host.origin()
    except ValueError:
        return False
    forwarded = any(name in request.headers for name in _FORWARDED)
    return same and not forwarded and is_loopback(request.remote or "") and is_loopback(host.host or "")


def is_loopback(host: str) -> bool:
    """Whether an address, or a name without a lookup, is that of this machine."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
