"""The options of `serve`: one row per setting.

Rules and defaults of the settings are in `dragoman.settings.settings`, which receives all values as text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from dragoman.ports.extension import Option
from dragoman.settings.extensions import bus_schemes, installed_extensions, options_of, store_schemes


class ServeOption(NamedTuple):
    """`--NAME VALUE`, or a flag if `kind` is bool."""

    name: str
    """The name of the setting."""
    value: str
    """The metavar in the help; for a flag its spelling, unless it is just --NAME."""
    help: str
    """The default is at the end, in brackets."""
    kind: Any = str


_OWN_OPTIONS: Final[Mapping[str, tuple[ServeOption, ...]]] = {
    "": (
        ServeOption("http", "HOST:PORT", "Address of REST, JSON-RPC and the card. [127.0.0.1:8080; port 0: any]"),
        ServeOption("grpc", "HOST:PORT", "Address of gRPC. [127.0.0.1:50051]"),
        ServeOption("metrics", "HOST:PORT", "Address for metrics without authentication. [/metrics, for operators]"),
        ServeOption(
            "store",
            "URL",
            "Where to store tasks: sqlite:///PATH, {stores}, memory: (keeps nothing), or MODULE:FUNCTION (your own). "
            "[sqlite:///dragoman.db]",
        ),
        ServeOption("root", "ID", "Agent of requests that name none. [the app's choice]"),
        ServeOption(
            "upstream",
            "[ID=]URL",
            "Also serve this upstream A2A agent; may be repeated. Disables the playground.",
            list[str],
        ),
        ServeOption("workers_only", "", "Serve only agents of workers.", bool),
        ServeOption("log_format", "text|json", "Format of log lines, on stderr. [text]"),
        ServeOption("log_level", "debug|info|warning|error", "Least level of log lines. [info]"),
        ServeOption("otlp", "URL", "OpenTelemetry collector: http://HOST:4318, grpc://HOST:4317. [none]"),
        ServeOption("otlp_headers", "NAME=VALUE,...", "Headers to send to the collector. [none]"),
        ServeOption("trace_share", "N", "Sampling ratio of traces that start here, 0 to 1. [1]"),
        ServeOption("trace_url", "URL", "Where people see traces: https://HOST/trace/{trace_id}, or with {task_id}."),
        ServeOption("config", "PATH", "Settings file in TOML. [dragoman.toml, if it exists]", Path),
        ServeOption("insecure", "", "Allow addresses reachable from other machines without authentication.", bool),
    ),
    "Several servers on one store": (
        ServeOption("role", "all|server|worker", "server: runs no turns of APP; worker: runs only turns. [all]"),
        ServeOption("processes", "N", "Number of processes on the same ports. [1]"),
        ServeOption("bus", "URL", "Message bus between the servers: {buses}. [none]"),
    ),
    "Authentication and quotas": (
        ServeOption("api_keys", "", "Accept API keys; see `dragoman keys`.", bool),
        ServeOption(
            "issuers",
            "'URL audience=NAME'",
            "Accept tokens (JWT) of this OpenID provider; may be repeated.",
            list[str],
        ),
        ServeOption(
            "token", "TOKEN", "Static bearer token; callers act as principal `token` with the operator grant. [none]"
        ),
        ServeOption("public_agents", "ID,...", "Agents that require no credentials; * for all. [none]"),
        ServeOption("private_pages", "", "Require credentials for cards and pages, too.", bool),
        ServeOption("live_tasks", "N", "Unfinished tasks per principal; 0: no limit. [10000]"),
        ServeOption("live_tasks_per_agent", "N", "Unfinished tasks per principal and agent. [5000]"),
        ServeOption("queued_bytes", "SIZE", "Size of waiting messages per principal. [256MiB]"),
        ServeOption("starts_per_minute", "N", "Started turns per principal and agent. [6000]"),
        ServeOption("requests_per_second", "N", "Requests per principal. [1000]"),
        ServeOption("open_streams", "N", "Streams and blocking calls per principal. [2000]"),
        ServeOption("agent_limits", "ID.LIMIT=N,...", "live-tasks and starts-per-minute of single agents."),
        ServeOption("budgets", "tokens=N,cost=N,...", "Usage limits per task; of single agents: ID.cost=N. [none]"),
        ServeOption(
            "error_texts",
            "auto|agents|all",
            "Exceptions of agents whose text callers see: AgentError, or all. [all if only this machine can call]",
        ),
        ServeOption("isolation", "owner|scope", "Who can see a task; per agent: owner,desk=scope. [owner]"),
    ),
    "TLS (PEM files)": (
        ServeOption(
            "tls_cert",
            "PATH",
            "Certificate of both ports, with its chain. Reloaded when it changes.",
            Path,
        ),
        ServeOption("tls_key", "PATH", "Private key of the certificate, without a passphrase.", Path),
        ServeOption("tls_client_ca", "PATH", "Accept client certificates of these CAs.", Path),
        ServeOption("tls_client_revoked", "PATH", "Revoked client certificates: CRLs, or serial numbers. [none]", Path),
        ServeOption("tls_client_principal", "cn|uri|dns|email", "Certificate field with the principal. [cn]"),
        ServeOption(
            "tls_client_grants", "WHO=GRANT,...", "Grants of certificate principals, such as alice=operator. [none]"
        ),
    ),
    "Behind a proxy": (
        ServeOption("public_url", "URL", "Public URL of REST, for cards."),
        ServeOption("card_file", "PATH", "Card fields that override the agents', in TOML. Reloaded on change.", Path),
        ServeOption("sign_cards", "", "Sign cards; requires --public-url.", bool),
        ServeOption("public_grpc", "HOST:PORT", "Public address of gRPC, for cards."),
        ServeOption("trusted_proxies", "NETS", "Proxies whose Forwarded headers are used: 10.0.0.0/8,::1 [none]"),
    ),
    "Outbound requests to webhooks and other servers": (
        ServeOption(
            "outbound_allow",
            "NETS,HOSTS",
            "Allowed destinations in private networks: 10.0.0.0/8,hooks.internal:8080 [none]",
        ),
        ServeOption("outbound_ports", "PORT,...", "Allowed ports. [all except those of mail, databases, ...]"),
        ServeOption("outbound_https_only", "", "Reject http:// URLs.", bool),
        ServeOption("outbound_ca", "PATH", "CA certificates to trust besides the system's, in PEM.", Path),
    ),
    "Limits": (
        ServeOption("message_bytes", "SIZE", "Maximum size of a message. [16MiB]"),
        ServeOption("connections", "N", "Open connections per port. [4096]"),
        ServeOption("slots", "N", "Concurrent turns; more are queued. [1000]"),
        ServeOption(
            "worker_wait", "S", "Seconds that tasks wait for an unavailable upstream agent or for workers. [300]"
        ),
        ServeOption("upstream_bytes", "SIZE", "Maximum size of a response or event of another server. [64MiB]"),
        ServeOption("upstream_silence", "S", "Seconds without data after which an upstream call fails. [120]"),
        ServeOption("blocking_wait", "S", "Maximum seconds that a blocking send waits. [300]"),
        ServeOption("drain", "S", "Seconds for running turns to finish when the server stops. [300]"),
        ServeOption("loop_timeout", "S", "Seconds of a blocked event loop after which others take over. [20]"),
        ServeOption("loop_exit", "S", "Seconds after which a blocked process ends itself; 0: never. [60]"),
        ServeOption("keepalive", "S", "Seconds between keep-alive messages on streams. [15]"),
        ServeOption(
            "sqlite_synchronous",
            "full|normal",
            "normal: faster; a power failure (not a crash) can lose the last commits. [full]",
        ),
        ServeOption("compact_after_rows", "N", "Chunks of a task after which the store compacts them; 0: never. [256]"),
        ServeOption(
            "truncate_log_after", "S", "Seconds after its end when a task's log is cut to 64 events; 0: never. [86400]"
        ),
        ServeOption(
            "inline_bytes", "SIZE", "Size of large parts and texts in a response; the rest become links. [16MiB]"
        ),
        ServeOption("coalesce_ms", "MS", "Milliseconds to collect text chunks into one event. [0]"),
        ServeOption("coalesce_bytes", "SIZE", "Size of text in such an event. [off; 64KiB with the above]"),
    ),
    "Protocol": (
        ServeOption("idempotent_message_ids", "", "Use the messageId of a send as its idempotency key.", bool),
        ServeOption(
            "blocking_default",
            "wait|return",
            "What sends of 0.1 to 0.3 do that leave blocking open; per agent: wait,desk=return. [wait]",
        ),
        ServeOption("card_versions", "all|1.0|0.3", "Versions of A2A that cards are for. [all]"),
        ServeOption("cors", "ORIGIN,...", "Origins of web pages that may call; * for all. [none]"),
        ServeOption("error_table", "1.0.1|1.0.0", "A2A version that defines the status codes. [1.0.1]"),
        ServeOption("v03_files", "bytes|base64", "Files of 0.3 over gRPC and REST: bytes, base64 text. [bytes]"),
        ServeOption("strict_transitions", "", "Fail tasks whose transitions violate a2a-rust's state table.", bool),
        ServeOption("lossy_numbers", "", "Accept JSON integers beyond 2^53.", bool),
    ),
    "Retention": (
        ServeOption(
            "retention",
            "STATE=AGE,...",
            "Erase tasks after this age in a state, such as completed=30d; fail those that wait so long for a caller "
            "(input-required=7d); of single agents: AGENT.STATE=AGE. [never]",
        ),
        ServeOption("audit", "all|security|off", "What the audit log records. [all]"),
        ServeOption("retain_audit", "AGE", "Erase audit entries after this age; 0: never. [365d]"),
    ),
    "Push notifications": (
        ServeOption("push", "--push/--no-push", "Enable push notifications. [on]", bool),
        ServeOption(
            "push_give_up", "AGE", "Time without a successful delivery after which a receiver is dropped. [24h]"
        ),
        ServeOption("push_first_wait", "S", "Maximum seconds before the first retry. [1]"),
        ServeOption("push_longest_wait", "S", "Maximum seconds between two retries. [3600]"),
        ServeOption("secrets_keys", "PATH", "Keys that encrypt receivers' secrets in the store. [none]", Path),
    ),
}
"""By heading in the help; the options under "" come first, without a heading."""


@cache
def serve_options() -> Mapping[str, Sequence[ServeOption]]:
    """All options by heading, with those of extensions. Raises InvalidExtension."""
    stores = ", ".join(store.url_format for _, store in store_schemes().values())
    buses = ", ".join(f"{scheme}://HOST:PORT" for scheme in bus_schemes())
    schemes = {"{stores}, ": f"{stores}, " if stores else "", "{buses}": buses or "URL"}
    options: dict[str, Sequence[ServeOption]] = {}
    for heading, rows in _OWN_OPTIONS.items():
        options[heading] = [row._replace(help=_replaced(row.help, schemes)) for row in rows]
    return options | _extension_options()


def worker_options() -> Mapping[str, Sequence[ServeOption]]:
    """The options of extensions that workers have, too, by heading. Raises InvalidExtension."""
    return _extension_options(lambda option: option.in_worker)


def _extension_options(is_shown: Callable[[Option], bool] = lambda _: True) -> dict[str, Sequence[ServeOption]]:
    return {
        extension.title: options
        for extension in installed_extensions()
        if (
            options := [
                ServeOption(one.name, one.value, one.help, one.kind)
                for one, _ in options_of(extension).values()
                if is_shown(one)
            ]
        )
    }


def _replaced(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def with_options(function: Callable[..., Any], by_heading: Mapping[str, Sequence[ServeOption]]) -> Callable[..., Any]:
    """A command function whose `**options` are these."""
    signature = inspect.signature(function, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    full_signature = signature.replace(parameters=[*own, *_parameters(by_heading)])

    def command(**arguments: Any) -> Any:
        return function(**arguments)

    command.__doc__ = (function.__doc__ or "").replace("{examples}", _examples(function.__name__))
    command.__signature__ = full_signature  # type: ignore[attr-defined]  # typer reads it; function types lack it
    command.__annotations__ = {one.name: one.annotation for one in full_signature.parameters.values()}
    return command


def _examples(command: str) -> str:
    """The examples of extensions for the help of a command."""
    examples = [example for one in installed_extensions() if one.agents for example in one.agents.examples]
    return "\n\n    ".join(f"`dragoman {command} {arguments}`  {does}".rstrip() for arguments, does in examples)


def _parameters(by_heading: Mapping[str, Sequence[ServeOption]]) -> Iterator[inspect.Parameter]:
    """The options as parameters of a command function. The default is None: not given."""
    for heading, options in by_heading.items():
        for option in options:
            flag = option.kind is bool
            declaration = typer.Option(
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
                annotation=Annotated[option.kind | None, declaration],
            )
