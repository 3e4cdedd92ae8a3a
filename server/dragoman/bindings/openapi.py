"""The OpenAPI documents that are installed with the protos, and OpenAPI 3.1 as one server serves it.

`make openapi` writes them from the routes and the comments of the protos (`tools/openapi`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

import orjson

from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards.security_schemes import ServerSecurity

_DOCUMENT: Final = "dragoman.openapi.json"


@cache
def openapi_files() -> Mapping[str, bytes]:
    """Returns the documents by relative path: 1.2 MB, read when first asked for."""
    package = files("dragoman_pb")
    for folder in (package / "openapi", package / ".." / "openapi"):  # a wheel, a source tree
        root = Path(str(folder))
        if root.is_dir():
            return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.json"))}
    return {}


def served_document(url: str, security: ServerSecurity, access_policy: AccessPolicy) -> bytes:
    """Returns OpenAPI 3.1 with the URL of a server and the credentials that it accepts.

    Operations that need no credentials have an empty `security` of their own.
    """
    document = {**_committed_document(), "servers": [{"url": url}]}
    components = {**document["components"], "securitySchemes": security.schemes}
    requirements: list[Mapping[str, tuple[str, ...]]] = [*security.requirements]
    if requirements and access_policy.public_agents:
        requirements.append({})  # public and other agents share the paths
    return orjson.dumps({**document, "components": components, "security": requirements})


@cache
def _committed_document() -> Mapping[str, Any]:
    return cast(Mapping[str, Any], orjson.loads(openapi_files()[_DOCUMENT]))
