"""Options and arguments that several commands share, with their defaults."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from dragoman.calling import tls
from dragoman.cli import completion

DEFAULT_GRPC_ADDRESS: Final = "127.0.0.1:50051"
DEFAULT_HTTP_URL: Final = "http://127.0.0.1:8080"
DEFAULT_MESSAGE_BYTES: Final = 16 * 1024 * 1024

Grpc = Annotated[
    str,
    typer.Option(
        "--grpc",
        envvar="DRAGOMAN_GRPC",
        metavar="HOST:PORT",
        help="The server's gRPC address; grpcs://HOST:PORT for TLS.",
    ),
]


def _use_ca(ctx: typer.Context, ca: Path | None) -> Path | None:
    if ca is not None:
        ctx.call_on_close(tls.use_ca(ca))
    return ca


Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="DRAGOMAN_CA",
        metavar="FILE",
        callback=_use_ca,
        help="CA certificates to verify the server's certificate with, in PEM. [the system's CAs]",
        show_default=False,
    ),
]
"""Takes effect in the callback and lasts until the command ends, so commands need not pass it on."""


def _use_cert(ctx: typer.Context, cert: Path | None) -> Path | None:
    if cert is not None:
        ctx.call_on_close(tls.use_cert(cert))
    return cert


Cert = Annotated[
    Path | None,
    typer.Option(
        "--cert",
        envvar="DRAGOMAN_CERT",
        metavar="FILE",
        callback=_use_cert,
        help="Client certificate and its key, both in one PEM file, if the server requires one.",
        show_default=False,
    ),
]
"""Takes effect as `Ca` does."""

Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="DRAGOMAN_TOKEN",
        metavar="TOKEN",
        help="API key or bearer token, if the server requires authentication.",
    ),
]
AgentName = Annotated[
    str,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="The agent's id; without it, the server's root agent.",
        autocompletion=completion.agents,
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar=" ", help="Print ProtoJSON on stdout, one object per line.")]
Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="DIR", file_okay=False, help="Write received files into this folder."),
]
TaskId = Annotated[
    str,
    typer.Argument(metavar="TASK", help="The id of a task.", show_default=False, autocompletion=completion.tasks),
]
StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        help="Use this store without a server: sqlite:///PATH (no server may have it open) or postgresql://...",
    ),
]
AgentFilter = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="Only this agent.", autocompletion=completion.agents)
]
PrincipalFilter = Annotated[str, typer.Option("--principal", metavar="NAME", help="Only this principal.")]
ScopeFilter = Annotated[str, typer.Option("--scope", metavar="NAME", help="Only this scope.")]


class TaskStateOption(StrEnum):
    """Task states as typed on the command line."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"
