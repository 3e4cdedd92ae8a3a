"""The files of gen/openapi: OpenAPI 3.1, and protoc-gen-openapiv2's files, completed.

The plugin knows neither version nor credentials, and describes errors and streams as grpc-gateway sends them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dragoman import __version__
from dragoman.core.cards.security_schemes import API_KEY_HEADER
from tools.openapi.document import openapi_document
from tools.openapi.responses import ERROR_SCHEMAS

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "gen" / "openapi"
IMAGE: Final = ROOT / "gen" / "dragoman.binpb"
SERVED: Final = "dragoman.openapi.json"

_TITLES: Final = {
    "lf/a2a/v1/a2a.swagger.json": "A2A 1.0 of Dragoman",
    "a2a/v1/a2a.swagger.json": "A2A 0.3 of Dragoman",
    "dragoman/ops/v1/ops.swagger.json": "Operators' calls of Dragoman",
}
_SECURITY_DEFINITIONS: Final = {
    "bearer": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "`Bearer CREDENTIALS`: a static token, an API key or a JWT. OpenAPI 2 has no type for it.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": API_KEY_HEADER},
}
_SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"apiKey": []}, {}]
"""The empty requirement stands for servers without authentication."""

_PUBLIC_METHOD: Final = "A2AService_GetAgentCard"
_ERROR_NAMES: Final = {"a2a/v1/a2a.swagger.json": "Error03"}
"""Names in ERROR_SCHEMAS; elsewhere `Error`."""
_STREAM_TYPE: Final = "text/event-stream"


def completed(swagger: Mapping[str, Any], name: str, digest: str) -> dict[str, Any]:
    """Returns a generated document with version, security, errors and streams; a complete one unchanged.

    `name`: its path in gen/openapi. `digest`: SHA-256 of the image that it was generated from.
    """
    paths = {
        path: {verb: _operation(path, operation) for verb, operation in operations.items()}
        for path, operations in swagger["paths"].items()
    }
    error = _ERROR_NAMES.get(name, "Error")
    schemas = json.loads(json.dumps(dict(ERROR_SCHEMAS)).replace("#/components/schemas/", "#/definitions/"))
    document = {
        **swagger,
        "info": {**swagger["info"], "title": _TITLES[name], "version": __version__},
        "paths": paths,
        "securityDefinitions": _SECURITY_DEFINITIONS,
        "security": _SECURITY,
        "responses": {"Error": {"description": "An error.", "schema": {"$ref": f"#/definitions/{error}"}}},
        "x-dragoman-image": digest,
    }
    unused_error = "Error" if error == "Error03" else "Error03"
    definitions = {**swagger["definitions"], **{name: schemas[name] for name in schemas if name != unused_error}}
    for unused in ("rpcStatus", "protobufAny"):  # of the errors that the plugin assumes
        if f'"#/definitions/{unused}"' not in json.dumps([paths, definitions]):
            definitions.pop(unused, None)
    return {**document, "definitions": definitions}


def _operation(path: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    success = operation["responses"]["200"]
    fields: dict[str, Any] = {}
    if "/agents/{agent}/" in path:
        # The path is the tenant. The plugin has it in the query too, for the last rule of a method.
        parameters = operation["parameters"]
        fields["parameters"] = [one for one in parameters if (one["name"], one["in"]) != ("tenant", "query")]
    if success["schema"].get("title", "").startswith("Stream result of "):
        element = success["schema"]["properties"]["result"]
        success = {"description": "Server-sent events; the `data` of each is this message.", "schema": element}
        fields["produces"] = [_STREAM_TYPE]
    if operation["operationId"].startswith(_PUBLIC_METHOD):
        fields["security"] = []
    responses = {**operation["responses"], "200": success, "default": {"$ref": "#/responses/Error"}}
    return {**operation, **fields, "responses": responses}


def rendered(document: Mapping[str, Any]) -> str:
    """Returns the text of a file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yields the files that a folder with the plugin's output must have, with their texts."""
    digest = hashlib.sha256(IMAGE.read_bytes()).hexdigest()
    for path in sorted(folder.rglob("*.swagger.json")):
        swagger = json.loads(path.read_text("utf-8"))
        yield path, rendered(completed(swagger, path.relative_to(folder).as_posix(), digest))
    yield folder / SERVED, rendered(openapi_document())


def write(folder: Path) -> None:
    """Completes the files of a folder."""
    for path, text in files(folder):
        path.write_text(text, "utf-8")


def stale(folder: Path = FOLDER) -> list[str]:
    """Returns the files that are not what their sources make, by name.

    Of the plugin's files, what it wrote itself cannot be compared without it: instead, each has the digest of the image
    that it was generated from.
    """
    return [
        path.relative_to(folder).as_posix()
        for path, text in files(folder)
        if not path.exists() or path.read_text("utf-8") != text
    ]
