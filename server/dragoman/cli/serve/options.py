"""What can be said to `serve` on the command line: a row for each setting.

The settings themselves, their rules and defaults are in `dragoman.settings.settings`; all values go there as they were written.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer


class ServeOption(NamedTuple):
    """`--NAME VALUE`, or without a value where `kind` is bool."""

    name: str
    """The setting's."""
    value: str
    """How the value is shown in the help; for a bool how the option itself is written, if not just as its name."""
    help: str
    kind: Any = str


SERVE_OPTIONS: Final[Mapping[str, tuple[ServeOption, ...]]] = {
    "": (
        ServeOption("http", "HOST:PORT", "REST and the card. [127.0.0.1:8080; port 0: any]"),
        ServeOption("grpc", "HOST:PORT", "gRPC. [127.0.0.1:50051]"),
        ServeOption("channelz", "", "Show operators the gRPC port's connections (grpc.channelz.v1).", bool),
        ServeOption("metrics", "HOST:PORT", "Metrics for whoever reaches this. [for operators, with REST]"),
        ServeOption(
            "store", "URL", "Where tasks are kept: sqlite:///PATH, postgresql://USER@HOST/DB. [sqlite:///dragoman.db]"
        ),
        ServeOption("root", "ID", "The agent meant when a request names none. [the app's choice]"),
        ServeOption(
            "executor",
            "MODULE:CLASS",
            "An AgentExecutor of a2a-sdk or Worker of fasta2a, in its own process; may be repeated; ID=MODULE:CLASS.",
            list[str],
        ),
        ServeOption("executor_python", "PATH", "The Python of the environment that has it. [the server's]"),
        ServeOption("executor_turns", "N", "Turns of each at the same time. [100]"),
        ServeOption("executor_retries", "N", "Times a turn begins again whose process was lost. [0]"),
        ServeOption(
            "upstream",
            "[ID=]URL",
            "Stand in front of this A2A agent, too; may be repeated. Then no playground.",
            list[str],
        ),
        ServeOption("workers_only", "", "No agents but those that workers dial in with.", bool),
        ServeOption("log_format", "text|json", "How log lines look, on stderr. [text]"),
        ServeOption("otlp", "URL", "Who collects traces: http://HOST:4318, grpc://HOST:4317. [nobody]"),
        ServeOption("otlp_headers", "NAME=VALUE,...", "What the collector is shown. [nothing]"),
        ServeOption("trace_share", "N", "Of the traces that begin here, from 0 to 1. [1]"),
        ServeOption("config", "PATH", "Settings in TOML. [dragoman.toml, if there is one]", Path),
        ServeOption(
            "insecure", "", "Allow addresses that other machines reach although nobody is asked who they are.", bool
        ),
    ),
    "Several servers on one store": (
        ServeOption("role", "all|server|worker", "server: runs no turns of APP; worker: nothing else. [all]"),
        ServeOption("processes", "N", "On this machine and on the same ports. [1]"),
        ServeOption("bus", "URL", "How they tell each other: nats://HOST:4222. [not at all]"),
        ServeOption("bus_prefix", "NAME", "What subjects begin with; each store its own. [dragoman]"),
        ServeOption("bus_credentials", "PATH", "A .creds file of NATS. [none]", Path),
        ServeOption("bus_ca", "PATH", "Who vouches for it besides the system's, in PEM.", Path),
    ),
    "Who may call": (
        ServeOption("api_keys", "", "Callers show API keys; see `dragoman keys`.", bool),
        ServeOption(
            "issuers",
            "'URL audience=NAME'",
            "Callers show tokens (JWT) of this OpenID provider; may be repeated.",
            list[str],
        ),
        ServeOption("token", "TOKEN", "Who shows this bearer token is an operator. [none]"),
        ServeOption("public_agents", "ID,...", "Agents that need no credentials all the same; * for all. [none]"),
        ServeOption("private_pages", "", "Cards and pages need credentials, too.", bool),
        ServeOption("live_tasks", "N", "Unfinished tasks of one; 0: any number. [10000]"),
        ServeOption("live_tasks_per_agent", "N", "The same with one agent. [5000]"),
        ServeOption("queued_bytes", "SIZE", "Messages of one that wait. [256MiB]"),
        ServeOption("starts_per_minute", "N", "Turns of one with one agent. [6000]"),
        ServeOption("requests_per_second", "N", "Requests of one. [1000]"),
        ServeOption("open_streams", "N", "Streams and waiting calls of one. [2000]"),
        ServeOption("agent_limits", "ID.LIMIT=N,...", "live-tasks and starts-per-minute of some agents."),
        ServeOption("budgets", "tokens=N,cost=N,...", "What one task may use; of some agents: ID.cost=N. [anything]"),
        ServeOption("isolation", "owner|scope|context", "Who sees a task; by agent: owner,desk=scope. [owner]"),
    ),
    "Encryption (PEM)": (
        ServeOption(
            "tls_cert",
            "PATH",
            "The certificate of both ports, with those that lead to its authority. Read again when it changes.",
            Path,
        ),
        ServeOption("tls_key", "PATH", "Its key, without a passphrase.", Path),
        ServeOption("tls_client_ca", "PATH", "Callers show certificates of these authorities.", Path),
        ServeOption(
            "tls_client_revoked", "PATH", "Which of those count no more: a CRL, or serial numbers. [none]", Path
        ),
        ServeOption("tls_client_principal", "cn|uri|dns|email", "What of a certificate names its holder. [cn]"),
        ServeOption(
            "tls_client_grants", "WHO=GRANT,...", "What holders may besides calling agents: alice=operator. [none]"
        ),
    ),
    "Behind a proxy": (
        ServeOption("public_url", "URL", "What the card says for REST."),
        ServeOption("card_file", "PATH", "What cards say in agents' place, in TOML. Read again when it changes.", Path),
        ServeOption("sign_cards", "", "Sign cards; needs --public-url.", bool),
        ServeOption("public_grpc", "HOST:PORT", "What the card says for gRPC."),
        ServeOption("trusted_proxies", "NETS", "Whose Forwarded headers are believed: 10.0.0.0/8,::1 [nobody's]"),
    ),
    "What webhooks and other agents may lead to": (
        ServeOption(
            "outbound_allow",
            "NETS,HOSTS",
            "What may be called inside private networks: 10.0.0.0/8,hooks.internal:8080 [nothing]",
        ),
        ServeOption("outbound_ports", "PORT,...", "The only ports. [all but those of mail, databases, ...]"),
        ServeOption("outbound_https_only", "", "Refuse http://.", bool),
        ServeOption("outbound_ca", "PATH", "Certificates to trust besides the system's, in PEM.", Path),
    ),
    "Limits": (
        ServeOption("message_bytes", "SIZE", "The largest message. [16MiB]"),
        ServeOption("connections", "N", "Open connections at each port. [4096]"),
        ServeOption("slots", "N", "Turns at the same time; more wait. [1000]"),
        ServeOption(
            "worker_wait", "S", "Seconds that tasks wait for an agent upstream or of workers that is gone. [300]"
        ),
        ServeOption("upstream_bytes", "SIZE", "The largest answer or event of an agent upstream. [64MiB]"),
        ServeOption("upstream_silence", "S", "Seconds of silence after which a call to one is given up. [120]"),
        ServeOption("blocking_wait", "S", "Seconds a send may wait for its task. [300]"),
        ServeOption("drain", "S", "Seconds that turns get to end when we stop. [300]"),
        ServeOption("keepalive", "S", "Seconds between signs of life on streams. [15]"),
        ServeOption(
            "sqlite_synchronous",
            "full|normal",
            "normal: faster; a power cut (not a crash) may undo the last commits. [full]",
        ),
        ServeOption("postgres_connections", "N", "Connections to PostgreSQL, and three. [10]"),
        ServeOption("postgres_pooler", "", "A pooler by transaction stands before PostgreSQL.", bool),
        ServeOption("fold_rows", "N", "Chunks of a task that the store joins; 0: never. [256]"),
        ServeOption(
            "cut_after", "S", "Seconds after its end when a task keeps its last 64 events only; 0: never. [86400]"
        ),
        ServeOption("inline_bytes", "SIZE", "Large parts in an answer; then links. [16MiB]"),
        ServeOption("coalesce_ms", "MS", "How long a chunk may wait to be one event with more. [0]"),
        ServeOption("coalesce_bytes", "SIZE", "Text in such an event. [off; 64KiB with the above]"),
    ),
    "Protocol": (
        ServeOption("idempotent_message_ids", "", "A messageId is its send's idempotency key.", bool),
        ServeOption("cors", "ORIGIN,...", "Web pages that may call; * for all. [none]"),
        ServeOption("error_table", "1.0.1|1.0.0", "Whose status codes. [1.0.1]"),
        ServeOption("strict_transitions", "", "Fail tasks whose states leave a2a-rust's table.", bool),
        ServeOption("lossy_numbers", "", "Accept JSON integers beyond 2^53.", bool),
    ),
    "How long tasks are kept": (
        ServeOption("retain_completed", "AGE", "Erase completed tasks after 30d, 12h, ... [for ever]"),
        ServeOption("retain_failed", "AGE", "Erase failed tasks. [for ever]"),
        ServeOption("retain_canceled", "AGE", "Erase canceled tasks. [for ever]"),
        ServeOption("retain_rejected", "AGE", "Erase rejected tasks. [for ever]"),
        ServeOption("retain_input_required", "AGE", "End tasks that wait for an answer as FAILED. [for ever]"),
        ServeOption("retain_auth_required", "AGE", "End tasks that wait for credentials as FAILED. [for ever]"),
        ServeOption("retention", "STATE=AGE,...", "The same at once; also AGENT.STATE=AGE."),
        ServeOption("audit", "all|security|off", "What the audit log is told. [all]"),
        ServeOption("retain_audit", "AGE", "Drop its entries after 365d, ...; 0: never. [365d]"),
    ),
    "Push notifications": (
        ServeOption("push", "--push/--no-push", "Whether there are any. [on]", bool),
        ServeOption("push_give_up", "AGE", "How long a receiver may take nothing before it is given up. [24h]"),
        ServeOption("push_first_wait", "S", "Seconds until the second try, at most. [1]"),
        ServeOption("push_longest_wait", "S", "Seconds between two tries, at most. [3600]"),
        ServeOption("secrets_keys", "PATH", "Keys that seal receivers' secrets in the store. [none]", Path),
    ),
}
"""By the heading under which the help shows them; "" are the first."""


def parameters() -> Iterator[inspect.Parameter]:
    """The options, as a command's function would have them in its signature: None where nothing was said."""
    for heading, options in SERVE_OPTIONS.items():
        for option in options:
            flag = option.kind is bool
            said = typer.Option(
                (flag and option.value) or "--" + option.name.replace("_", "-"),
                help=option.help,
                metavar=" " if flag and not option.value else None if flag else option.value,
                rich_help_panel=heading or None,
                show_default=False,
            )
            yield inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[option.kind | None, said],
            )
