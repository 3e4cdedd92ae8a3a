"""`serve`: every setting as an option, and what is printed once the server listens.

Nothing heavy is imported before the command runs, so that `dragoman --help` is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

_TLS: Final = "Encryption (PEM)"
_CALLERS: Final = "Who may call"
_PROXY: Final = "Behind a proxy"
_OUTBOUND: Final = "What webhooks and other agents may lead to"
_LIMITS: Final = "Limits"
_KEEPING: Final = "How long tasks are kept"
_PROTOCOL: Final = "Protocol"
_PUSH: Final = "Push notifications"
_SERVERS: Final = "Several servers on one store"


def _option(*names: str, help: str, metavar: str | None = None, panel: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, show_default=False)


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("serve")(serve)


def serve(
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="A .py file or a module with agents; else the playground.")
    ] = None,
    http: Annotated[
        str | None, _option("--http", metavar="HOST:PORT", help="REST and the card. [127.0.0.1:8080; port 0: any]")
    ] = None,
    grpc: Annotated[str | None, _option("--grpc", metavar="HOST:PORT", help="gRPC. [127.0.0.1:50051]")] = None,
    store: Annotated[
        str | None,
        _option(
            "--store",
            metavar="URL",
            help="Where tasks are kept: sqlite:///PATH, postgresql://USER@HOST/DB. [sqlite:///dragoman.db]",
        ),
    ] = None,
    bus: Annotated[
        str | None,
        _option(
            "--bus", metavar="URL", panel=_SERVERS, help="How they tell each other: nats://HOST:4222. [not at all]"
        ),
    ] = None,
    bus_prefix: Annotated[
        str | None,
        _option(
            "--bus-prefix",
            metavar="NAME",
            panel=_SERVERS,
            help="What subjects begin with; each store its own. [dragoman]",
        ),
    ] = None,
    bus_credentials: Annotated[
        Path | None, _option("--bus-credentials", metavar="PATH", panel=_SERVERS, help="A .creds file of NATS. [none]")
    ] = None,
    bus_ca: Annotated[
        Path | None,
        _option("--bus-ca", metavar="PATH", panel=_SERVERS, help="Who vouches for it besides the system's, in PEM."),
    ] = None,
    root: Annotated[
        str | None,
        _option("--root", metavar="ID", help="The agent meant when a request names none. [the app's choice]"),
    ] = None,
    workers_only: Annotated[
        bool | None,
        typer.Option("--workers-only", metavar=" ", help="No agents but those that workers dial in with."),
    ] = None,
    log_format: Annotated[
        str | None, _option("--log-format", metavar="text|json", help="How log lines look, on stderr. [text]")
    ] = None,
    config: Annotated[
        Path | None, _option("--config", metavar="PATH", help="Settings in TOML. [dragoman.toml, if there is one]")
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", metavar=" ", help="Start again when the app's files change; for development.")
    ] = False,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure",
            metavar=" ",
            help="Allow addresses that other machines reach although nobody is asked who they are.",
        ),
    ] = None,
    api_keys: Annotated[
        bool | None,
        typer.Option(
            "--api-keys", metavar=" ", rich_help_panel=_CALLERS, help="Callers show API keys; see `dragoman keys`."
        ),
    ] = None,
    issuers: Annotated[
        list[str] | None,
        _option(
            "--issuers",
            metavar="'URL audience=NAME'",
            panel=_CALLERS,
            help="Callers show tokens (JWT) of this OpenID provider; may be repeated.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        _option("--token", metavar="TOKEN", panel=_CALLERS, help="Who shows this bearer token is an operator. [none]"),
    ] = None,
    public_agents: Annotated[
        str | None,
        _option(
            "--public-agents",
            metavar="ID,...",
            panel=_CALLERS,
            help="Agents that need no credentials all the same; * for all. [none]",
        ),
    ] = None,
    private_pages: Annotated[
        bool | None,
        typer.Option(
            "--private-pages", metavar=" ", rich_help_panel=_CALLERS, help="Cards and pages need credentials, too."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        _option(
            "--tls-cert",
            metavar="PATH",
            panel=_TLS,
            help="The certificate of both ports, with those that lead to its authority. Read again when it changes.",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, _option("--tls-key", metavar="PATH", panel=_TLS, help="Its key, without a passphrase.")
    ] = None,
    public_url: Annotated[
        str | None, _option("--public-url", metavar="URL", panel=_PROXY, help="What the card says for REST.")
    ] = None,
    public_grpc: Annotated[
        str | None, _option("--public-grpc", metavar="HOST:PORT", panel=_PROXY, help="What the card says for gRPC.")
    ] = None,
    trusted_proxies: Annotated[
        str | None,
        _option(
            "--trusted-proxies",
            metavar="NETS",
            panel=_PROXY,
            help="Whose Forwarded headers are believed: 10.0.0.0/8,::1 [nobody's]",
        ),
    ] = None,
    outbound_allow: Annotated[
        str | None,
        _option(
            "--outbound-allow",
            metavar="NETS,HOSTS",
            panel=_OUTBOUND,
            help="What may be called inside private networks: 10.0.0.0/8,hooks.internal:8080 [nothing]",
        ),
    ] = None,
    outbound_ports: Annotated[
        str | None,
        _option(
            "--outbound-ports",
            metavar="PORT,...",
            panel=_OUTBOUND,
            help="The only ports. [all but those of mail, databases, ...]",
        ),
    ] = None,
    outbound_https_only: Annotated[
        bool | None,
        typer.Option("--outbound-https-only", metavar=" ", rich_help_panel=_OUTBOUND, help="Refuse http://."),
    ] = None,
    outbound_ca: Annotated[
        Path | None,
        _option(
            "--outbound-ca", metavar="PATH", panel=_OUTBOUND, help="Certificates to trust besides the system's, in PEM."
        ),
    ] = None,
    message_bytes: Annotated[
        str | None, _option("--message-bytes", metavar="SIZE", panel=_LIMITS, help="The largest message. [16MiB]")
    ] = None,
    connections: Annotated[
        str | None,
        _option("--connections", metavar="N", panel=_LIMITS, help="Open connections at each port. [4096]"),
    ] = None,
    slots: Annotated[
        str | None, _option("--slots", metavar="N", panel=_LIMITS, help="Turns at the same time; more wait. [1000]")
    ] = None,
    worker_wait: Annotated[
        str | None,
        _option(
            "--worker-wait",
            metavar="S",
            panel=_LIMITS,
            help="Seconds that tasks wait for an agent whose workers are all gone. [300]",
        ),
    ] = None,
    live_tasks: Annotated[
        str | None,
        _option("--live-tasks", metavar="N", panel=_CALLERS, help="Unfinished tasks of one; 0: any number. [10000]"),
    ] = None,
    live_tasks_per_agent: Annotated[
        str | None,
        _option("--live-tasks-per-agent", metavar="N", panel=_CALLERS, help="The same with one agent. [5000]"),
    ] = None,
    queued_bytes: Annotated[
        str | None,
        _option("--queued-bytes", metavar="SIZE", panel=_CALLERS, help="Messages of one that wait. [256MiB]"),
    ] = None,
    starts_per_minute: Annotated[
        str | None,
        _option("--starts-per-minute", metavar="N", panel=_CALLERS, help="Turns of one with one agent. [6000]"),
    ] = None,
    requests_per_second: Annotated[
        str | None, _option("--requests-per-second", metavar="N", panel=_CALLERS, help="Requests of one. [1000]")
    ] = None,
    open_streams: Annotated[
        str | None,
        _option("--open-streams", metavar="N", panel=_CALLERS, help="Streams and waiting calls of one. [2000]"),
    ] = None,
    agent_limits: Annotated[
        str | None,
        _option(
            "--agent-limits",
            metavar="ID.LIMIT=N,...",
            panel=_CALLERS,
            help="live-tasks and starts-per-minute of some agents.",
        ),
    ] = None,
    blocking_wait: Annotated[
        str | None,
        _option("--blocking-wait", metavar="S", panel=_LIMITS, help="Seconds a send may wait for its task. [300]"),
    ] = None,
    drain: Annotated[
        str | None,
        _option("--drain", metavar="S", panel=_LIMITS, help="Seconds that turns get to end when we stop. [300]"),
    ] = None,
    keepalive: Annotated[
        str | None,
        _option("--keepalive", metavar="S", panel=_LIMITS, help="Seconds between signs of life on streams. [15]"),
    ] = None,
    sqlite_synchronous: Annotated[
        str | None,
        _option(
            "--sqlite-synchronous",
            metavar="full|normal",
            panel=_LIMITS,
            help="normal: faster; a power cut (not a crash) may undo the last commits. [full]",
        ),
    ] = None,
    postgres_connections: Annotated[
        str | None,
        _option(
            "--postgres-connections", metavar="N", panel=_LIMITS, help="Connections to PostgreSQL, and three. [10]"
        ),
    ] = None,
    postgres_pooler: Annotated[
        bool | None,
        typer.Option(
            "--postgres-pooler",
            metavar=" ",
            rich_help_panel=_LIMITS,
            help="A pooler by transaction stands before PostgreSQL.",
        ),
    ] = None,
    idempotent_message_ids: Annotated[
        bool | None,
        typer.Option(
            "--idempotent-message-ids",
            metavar=" ",
            rich_help_panel=_PROTOCOL,
            help="A messageId is its send's idempotency key.",
        ),
    ] = None,
    fold_rows: Annotated[
        str | None,
        _option(
            "--fold-rows", metavar="N", panel=_LIMITS, help="Chunks of a task that the store joins; 0: never. [256]"
        ),
    ] = None,
    cut_after: Annotated[
        str | None,
        _option(
            "--cut-after",
            metavar="S",
            panel=_LIMITS,
            help="Seconds after its end when a task keeps its last 64 events only; 0: never. [86400]",
        ),
    ] = None,
    isolation: Annotated[
        str | None,
        _option(
            "--isolation",
            metavar="owner|scope|context",
            panel=_CALLERS,
            help="Who sees a task; by agent: owner,desk=scope. [owner]",
        ),
    ] = None,
    retain_completed: Annotated[
        str | None,
        _option(
            "--retain-completed",
            metavar="AGE",
            panel=_KEEPING,
            help="Erase completed tasks after 30d, 12h, ... [for ever]",
        ),
    ] = None,
    retain_failed: Annotated[
        str | None, _option("--retain-failed", metavar="AGE", panel=_KEEPING, help="Erase failed tasks. [for ever]")
    ] = None,
    retain_canceled: Annotated[
        str | None, _option("--retain-canceled", metavar="AGE", panel=_KEEPING, help="Erase canceled tasks. [for ever]")
    ] = None,
    retain_rejected: Annotated[
        str | None, _option("--retain-rejected", metavar="AGE", panel=_KEEPING, help="Erase rejected tasks. [for ever]")
    ] = None,
    retain_input_required: Annotated[
        str | None,
        _option(
            "--retain-input-required",
            metavar="AGE",
            panel=_KEEPING,
            help="End tasks that wait for an answer as FAILED. [for ever]",
        ),
    ] = None,
    retain_auth_required: Annotated[
        str | None,
        _option(
            "--retain-auth-required",
            metavar="AGE",
            panel=_KEEPING,
            help="End tasks that wait for credentials as FAILED. [for ever]",
        ),
    ] = None,
    retention: Annotated[
        str | None,
        _option("--retention", metavar="STATE=AGE,...", panel=_KEEPING, help="The same at once; also AGENT.STATE=AGE."),
    ] = None,
    inline_bytes: Annotated[
        str | None,
        _option("--inline-bytes", metavar="SIZE", panel=_LIMITS, help="Large parts in an answer; then links. [16MiB]"),
    ] = None,
    coalesce_ms: Annotated[
        str | None,
        _option(
            "--coalesce-ms",
            metavar="MS",
            panel=_LIMITS,
            help="How long a chunk may wait to be one event with more. [0]",
        ),
    ] = None,
    coalesce_bytes: Annotated[
        str | None,
        _option(
            "--coalesce-bytes", metavar="SIZE", panel=_LIMITS, help="Text in such an event. [off; 64KiB with the above]"
        ),
    ] = None,
    push: Annotated[
        bool | None,
        typer.Option("--push/--no-push", rich_help_panel=_PUSH, help="Whether there are any. [on]", show_default=False),
    ] = None,
    push_give_up: Annotated[
        str | None,
        _option(
            "--push-give-up",
            metavar="AGE",
            panel=_PUSH,
            help="How long a receiver may take nothing before it is given up. [24h]",
        ),
    ] = None,
    push_first_wait: Annotated[
        str | None,
        _option("--push-first-wait", metavar="S", panel=_PUSH, help="Seconds until the second try, at most. [1]"),
    ] = None,
    push_longest_wait: Annotated[
        str | None,
        _option("--push-longest-wait", metavar="S", panel=_PUSH, help="Seconds between two tries, at most. [3600]"),
    ] = None,
    cors: Annotated[
        str | None,
        _option("--cors", metavar="ORIGIN,...", panel=_PROTOCOL, help="Web pages that may call; * for all. [none]"),
    ] = None,
    error_table: Annotated[
        str | None,
        _option("--error-table", metavar="1.0.1|1.0.0", panel=_PROTOCOL, help="Whose status codes. [1.0.1]"),
    ] = None,
    strict_transitions: Annotated[
        bool | None,
        typer.Option(
            "--strict-transitions",
            metavar=" ",
            rich_help_panel=_PROTOCOL,
            help="Fail tasks whose states leave a2a-rust's table.",
        ),
    ] = None,
    lossy_numbers: Annotated[
        bool | None,
        typer.Option(
            "--lossy-numbers", metavar=" ", rich_help_panel=_PROTOCOL, help="Accept JSON integers beyond 2^53."
        ),
    ] = None,
) -> None:
    """Serve agents over A2A: gRPC, REST and JSON-RPC, tasks on disk.

    Every option can also be set as DRAGOMAN_NAME in the environment, or as name in a TOML file; the command line
    wins, then the environment. Ctrl-C lets running turns end; a second one does not.

    Nobody is asked who they are, and only this machine can call, unless there is --api-keys, --issuers or --token.

    **Examples**

    `dragoman serve`  the playground, to try things out

    `dragoman serve agents.py --reload`

    `dragoman serve mycompany.agents --store sqlite:////var/lib/dragoman/tasks.db --log-format json`

    `dragoman serve agents.py --tls-cert server.pem --tls-key server.key`  https and grpcs
    """
    given = {name: value for name, value in locals().items() if name != "reload"} | {"issuers": issuers or None}
    if reload:
        from dragoman.cli.reload import app_of, supervise

        raise typer.Exit(supervise(sys.argv[1:], app_of(given)))
    from dragoman.cli.serving import run

    raise typer.Exit(run(given))
