"""The settings of a server, by group. Each field is one setting: its name, type, default and help.

A field's `Option` has the names and texts by which people set it. Rules between groups are in `settings`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, SecretStr, ValidationInfo, field_validator

from dragoman.bindings.options import DEFAULT_MAX_CONNECTIONS
from dragoman.core.access.caller_credentials import CertificateName
from dragoman.core.access.identity import Isolation
from dragoman.core.agent_sources import FileForm
from dragoman.core.audit import AuditLevel
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.core.limits.quotas import NO_BUDGETS
from dragoman.core.names import AGENT_ID, ByAgent
from dragoman.core.push.delivery import PushRetryPolicy
from dragoman.core.task.maintenance import RetentionPolicy, StorageOptions
from dragoman.runtime.lease import LOOP_EXIT, LOOP_TIMEOUT
from dragoman.runtime.turn.context import CANCEL_WAIT_SECONDS, DEFAULT_SLOTS, WORKER_WAIT_SECONDS
from dragoman.settings import types
from dragoman.settings.options import setting

DEFAULT_APP: Final = "dragoman.playground"

DEFAULT_RESPONSE_BYTES: Final = 64 * 1024 * 1024  # default of the maximum size of a response of another server


class Group(BaseModel):
    """A group of settings of a server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: ClassVar[str] = ""  # the heading of its options; without one they come first
    prefix: ClassVar[str] = ""  # of the names of options that are named after their fields


class ListenSettings(Group):
    """The addresses of a server."""

    http: types.Bind = setting(
        types.Address("127.0.0.1", 8080),
        "HOST:PORT",
        "Address of REST, JSON-RPC and the card. [127.0.0.1:8080; port 0: any]",
    )
    grpc: types.Bind = setting(types.Address("127.0.0.1", 50051), "HOST:PORT", "Address of gRPC. [127.0.0.1:50051]")
    metrics: types.OptionalBind = setting(
        None, "HOST:PORT", "Address for metrics without authentication. [/metrics, for operators]"
    )
    insecure: bool = setting(False, "", "Allow addresses reachable from other machines without authentication.")
    """Reachable directly, or through a proxy."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.http.is_loopback and self.grpc.is_loopback


class AgentSettings(Group):
    """The agents of a server that its settings name."""

    app: str = setting(DEFAULT_APP, "APP", "A .py file or a module with agents. [the playground]")
    root: types.OptionalAgentId = setting("", "ID", "Agent of requests that name none. [the app's choice]")
    upstream: types.Upstreams = setting(
        (),
        "[ID=]URL",
        "Also serve this upstream A2A agent; may be repeated. Disables the playground.",
        kind=list[str],
        may_hold_secrets=True,
    )
    workers_only: bool = setting(False, "", "Serve only agents of workers.")

    @field_validator("workers_only")
    @classmethod
    def _check_workers_only(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("app", DEFAULT_APP) != DEFAULT_APP:
            raise ValueError(f'APP "{info.data["app"]}" would not be served; pass either APP or --workers-only')
        return value


class ProcessSettings(Group):
    """The log and the settings file of a process."""

    log_format: Literal["text", "json"] = setting("text", "text|json", "Format of log lines, on stderr. [text]")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "debug|info|warning|error", "Least level of log lines. [info]"
    )
    config: Path | None = setting(None, "PATH", "Settings file in TOML. [dragoman.toml, if it exists]")
    """The file that these settings were read from."""


class TracingSettings(Group):
    """Where traces go, and where people see them."""

    otlp: types.Collector = setting("", "URL", "OpenTelemetry collector: http://HOST:4318, grpc://HOST:4317. [none]")
    headers: types.Headers = setting(
        SecretStr(""), "NAME=VALUE,...", "Headers to send to the collector. [none]", name="otlp_headers"
    )
    share: float = setting(
        1.0, "N", "Sampling ratio of traces that start here, 0 to 1. [1]", name="trace_share", ge=0, le=1
    )  # a caller's trace context decides for itself
    url: types.TraceUrl = setting(
        "", "URL", "Where people see traces: https://HOST/trace/{trace_id}, or with {task_id}.", name="trace_url"
    )  # the console and `explain` link to it


class StoreSettings(Group):
    """The store, and what it keeps of a task."""

    title: ClassVar[str] = "Store"

    url: types.StoreUrl = setting(
        "sqlite:///dragoman.db",
        "URL",
        "Where to store tasks: sqlite:///PATH, {stores}, memory: (keeps nothing), or MODULE:FUNCTION (your own). "
        "[sqlite:///dragoman.db]",
        name="store",
        may_hold_secrets=True,
    )
    sqlite_synchronous: Literal["full", "normal"] = setting(
        "full", "full|normal", "normal: faster; a power failure (not a crash) can lose the last commits. [full]"
    )
    compact_after_rows: int = setting(
        256, "N", "Chunks of a task after which the store compacts them; 0: never. [256]", ge=0
    )  # responses stay the same
    truncate_log_after: types.SecondsOrNone = setting(
        86400.0, "S", "Seconds after its end when a task's log is cut to 64 events; 0: never. [86400]"
    )
    inline_bytes: ByteSize = setting(
        ByteSize(16 * 1024 * 1024),
        "SIZE",
        "Size of large parts and texts in a response; the rest become links. [16MiB]",
        ge=0,
    )
    """Large contents are over 256 KiB: parts, and text joined from chunks. The links expire."""

    @property
    def kind(self) -> str:
        """Which store `url` names: `sqlite`, `memory`, `own`, or the scheme of an extension."""
        return types.store_kind(self.url)

    @property
    def path(self) -> Path:
        """The absolute path of an SQLite store, with symbolic links resolved: its other files are beside it."""
        return Path(self.url.removeprefix("sqlite:///")).expanduser().resolve()

    @property
    def is_shared(self) -> bool:
        """Whether several servers can use the store at the same time; of a store of your own that is assumed."""
        return self.kind not in ("sqlite", "memory")

    @property
    def name(self) -> str:
        """The store for display: a path, or a URL without password and options."""
        match self.kind:
            case "sqlite":
                return str(self.path)
            case "memory":
                return "memory: (deleted at the end)"
            case "own":
                return self.url
            case _:
                return types.without_password(self.url).partition("?")[0]

    @property
    def options(self) -> StorageOptions:
        """Settings of stores of every kind."""
        return StorageOptions(self.compact_after_rows, self.truncate_log_after, self.inline_bytes)


class ClusterSettings(Group):
    """How several processes share a store."""

    title: ClassVar[str] = "Several servers on one store"

    role: Literal["all", "server", "worker"] = setting(
        "all", "all|server|worker", "server: runs no turns of APP; worker: runs only turns. [all]"
    )
    processes: int = setting(1, "N", "Number of processes on the same ports. [1]", ge=1, le=256)
    bus: SecretStr = setting(
        SecretStr(""), "URL", "Message bus between the servers: {buses}, or MODULE:FUNCTION. [none]"
    )
    """URLs, comma-separated."""


class AccessSettings(Group):
    """Who may call, how much, and who sees what."""

    title: ClassVar[str] = "Authentication and quotas"

    api_keys: bool = setting(False, "", "Accept API keys; see `dragoman keys`.")
    issuers: types.Issuers = setting(
        (),
        "'URL audience=NAME'",
        "Accept tokens (JWT) of this OpenID provider; may be repeated.",
        kind=list[str],
        may_hold_secrets=True,
    )
    token: types.BearerToken = setting(
        SecretStr(""), "TOKEN", "Static bearer token; callers act as principal `token` with the operator grant. [none]"
    )
    public_agents: types.Names = setting((), "ID,...", "Agents that require no credentials; * for all. [none]")
    private_pages: bool = setting(False, "", "Require credentials for cards and pages, too.")
    """Pages: /agents, /docs, /openapi.json and the list at /."""
    live_tasks: types.Limit = setting(None, "N", "Unfinished tasks per principal; 0: no limit. [10000]")
    """The defaults of this and the limits below (core.limits.quotas) apply to authenticated principals, and to all once
    other machines can reach the server."""
    live_tasks_per_agent: types.Limit = setting(None, "N", "Unfinished tasks per principal and agent. [5000]")
    queued_bytes: ByteSize | None = setting(None, "SIZE", "Size of waiting messages per principal. [256MiB]", ge=0)
    starts_per_minute: types.Limit = setting(None, "N", "Started turns per principal and agent. [6000]")
    requests_per_second: types.Limit = setting(None, "N", "Requests per principal. [1000]")
    """The burst is twice as high."""
    open_streams: types.Limit = setting(None, "N", "Streams and blocking calls per principal. [2000]")
    stored_bytes: ByteSize | None = setting(None, "SIZE", "Size of stored tasks per principal. [no limit]", ge=0)
    """Counted about once a minute (runtime.access.StoredBytes)."""
    scopes: types.Limit = setting(None, "N", "Scopes per principal that has no grant of scopes. [100]")
    agent_limits: types.AgentLimits = setting(
        {}, "ID.LIMIT=N,...", "live-tasks and starts-per-minute of single agents."
    )
    budgets: types.Budgets = setting(
        NO_BUDGETS, "tokens=N,cost=N,...", "Usage limits per task; of single agents: ID.cost=N. [none]"
    )
    error_texts: Literal["auto", "agents", "all"] = setting(
        "auto",
        "auto|agents|all",
        "Exceptions of agents whose text callers see: AgentError, or all. [all if only this machine can call]",
    )  # `auto`: all if only this machine can call, without authentication and proxies
    isolation: types.Policies = setting(
        Isolation(), "owner|scope", "Who can see a task; per agent: owner,desk=scope. [owner]"
    )

    @field_validator("public_agents")
    @classmethod
    def _check_public_agents(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if invalid := [name for name in value if name != "*" and not AGENT_ID.fullmatch(name)]:
            raise ValueError(f'"{invalid[0]}" is not an agent id')
        return value


class TlsSettings(Group):
    """Certificates of the server and of its callers. They are reloaded when their files change."""

    title: ClassVar[str] = "TLS (PEM files)"
    prefix: ClassVar[str] = "tls_"

    cert: Path | None = setting(None, "PATH", "Certificate of both ports, with its chain. Reloaded when it changes.")
    key: Path | None = setting(None, "PATH", "Private key of the certificate, without a passphrase.")
    client_ca: Path | None = setting(None, "PATH", "Accept client certificates of these CAs.")
    client_revoked: Path | None = setting(None, "PATH", "Revoked client certificates: CRLs, or serial numbers. [none]")
    client_principal: CertificateName = setting("cn", "cn|uri|dns|email", "Certificate field with the principal. [cn]")
    client_grants: types.ClientGrants = setting(
        {}, "WHO=GRANT,...", "Grants of certificate principals, such as alice=operator. [none]"
    )


class PublicSettings(Group):
    """Addresses on cards, and proxies in front of the server."""

    title: ClassVar[str] = "Behind a proxy"

    url: types.AbsoluteUrl = setting("", "URL", "Public URL of REST, for cards.", name="public_url")
    card_file: Path | None = setting(
        None, "PATH", "Card fields that override the agents', in TOML. Reloaded on change."
    )
    sign_cards: bool = setting(False, "", "Sign cards; requires --public-url.")
    """The key is the one that signs push notifications."""
    grpc: types.Target = setting(
        "", "HOST:PORT", "Address of gRPC on cards, which do not list gRPC without it.", name="public_grpc"
    )
    trusted_proxies: types.Networks = setting(
        (), "NETS", "Proxies whose Forwarded headers are used: 10.0.0.0/8,::1 [none]"
    )

    @field_validator("sign_cards")
    @classmethod
    def _check_sign_cards(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("url"):
            raise ValueError(
                "needs --public-url: without it a caller could get a signed card with an address of its own"
            )
        return value


class OutboundSettings(Group):
    """Servers that this one may call."""

    title: ClassVar[str] = "Outbound requests to webhooks and other servers"
    prefix: ClassVar[str] = "outbound_"

    allow: types.AllowList = setting(
        (), "NETS,HOSTS", "Allowed destinations in private networks: 10.0.0.0/8,hooks.internal:8080 [none]"
    )
    ports: types.Ports = setting(frozenset(), "PORT,...", "Allowed ports. [all except those of mail, databases, ...]")
    https_only: bool = setting(False, "", "Reject http:// URLs.")
    ca: Path | None = setting(None, "PATH", "CA certificates to trust besides the system's, in PEM.")


class LimitSettings(Group):
    """Sizes, counts and waits."""

    title: ClassVar[str] = "Limits"

    message_bytes: ByteSize = setting(
        ByteSize(MAX_MESSAGE_BYTES), "SIZE", "Maximum size of a message. [16MiB]", ge=1024
    )  # decoded
    connections: int = setting(DEFAULT_MAX_CONNECTIONS, "N", "Open connections per port. [4096]", ge=1)
    slots: int = setting(DEFAULT_SLOTS, "N", "Concurrent turns; more are queued. [1000]", ge=1)
    worker_wait: types.SecondsOrNone = setting(
        WORKER_WAIT_SECONDS, "S", "Seconds that tasks wait for an unavailable upstream agent or for workers. [300]"
    )
    cancel_wait: types.Seconds = setting(
        CANCEL_WAIT_SECONDS, "S", "Seconds for which a cancel is repeated that another server does not confirm. [86400]"
    )
    upstream_bytes: ByteSize = setting(
        ByteSize(DEFAULT_RESPONSE_BYTES),
        "SIZE",
        "Maximum size of a response or event of another server. [64MiB]",
        ge=1024,
    )
    upstream_silence: types.Seconds = setting(
        120.0, "S", "Seconds without data after which an upstream call fails. [120]"
    )
    blocking_wait: types.Seconds = setting(300.0, "S", "Maximum seconds that a blocking send waits. [300]")
    """It then returns the unfinished task."""
    drain: types.SecondsOrNone = setting(
        300.0, "S", "Seconds for running turns to finish when the process stops. [300; at a terminal, on loopback: 2]"
    )
    loop_timeout: types.Seconds = setting(
        LOOP_TIMEOUT, "S", "Seconds of a blocked event loop after which others take over. [20]"
    )
    loop_exit: types.SecondsOrNone = setting(
        LOOP_EXIT, "S", "Seconds after which a blocked process ends itself; 0: never. [60]"
    )  # it leaves a traceback
    keepalive: types.Seconds = setting(15.0, "S", "Seconds between keep-alive messages on streams. [15]")
    coalesce_ms: float = setting(
        0.0, "MS", "Milliseconds to collect text chunks into one event. [0]", ge=0, le=10_000, allow_inf_nan=False
    )
    coalesce_bytes: ByteSize = setting(
        ByteSize(0), "SIZE", "Size of text in such an event. [off; 64KiB with the above]", ge=0
    )


class ProtocolSettings(Group):
    """Choices that A2A leaves open, or that its versions made differently."""

    title: ClassVar[str] = "Protocol"

    idempotent_message_ids: bool = setting(False, "", "Use the messageId of a send as its idempotency key.")
    """Of sends without another key."""
    blocking_default: types.BlockingDefaults = setting(
        ByAgent("wait"),
        "wait|return",
        "What sends of 0.1 to 0.3 do that leave blocking open; per agent: wait,desk=return. [wait]",
    )
    card_versions: types.CardVersionsSetting = setting(
        "all", "all|1.0|0.3", "Versions of A2A that cards are for. [all]"
    )  # one version alone is for strict readers
    cors: types.Names = setting((), "ORIGIN,...", "Origins of web pages that may call; * for all. [none]")
    error_table: Literal["1.0.1", "1.0.0"] = setting(
        "1.0.1", "1.0.1|1.0.0", "A2A version that defines the status codes. [1.0.1]"
    )
    v03_files: FileForm = setting(
        "bytes", "bytes|base64", "Files of 0.3 over gRPC and REST: bytes, base64 text. [bytes]"
    )
    strict_transitions: bool = setting(False, "", "Fail tasks whose transitions violate a2a-rust's state table.")
    lossy_numbers: bool = setting(False, "", "Accept JSON integers beyond 2^53.")  # they lose digits


class RetentionSettings(Group):
    """How long tasks and audit entries stay."""

    title: ClassVar[str] = "Retention"

    tasks: types.Retention = setting(
        RetentionPolicy(),
        "STATE=AGE,...",
        "Erase tasks after this age in a state, such as completed=30d; fail those that wait so long for a caller "
        "(input-required=7d); of single agents: AGENT.STATE=AGE. [never]",
        name="retention",
    )
    audit: AuditLevel = setting("all", "all|security|off", "What the audit log records. [all]")
    """Every change (`all`); rejected callers, operator calls, keys and erasures (`security`); nothing (`off`)."""
    audit_age: types.Age = setting(
        31_536_000_000, "AGE", "Erase audit entries after this age; 0: never. [365d]", name="retain_audit"
    )


class PushSettings(Group):
    """Push notifications."""

    title: ClassVar[str] = "Push notifications"
    prefix: ClassVar[str] = "push_"

    enabled: bool = setting(True, "--push/--no-push", "Enable push notifications. [on]", name="push")
    """Without them cards and push operations report them as unsupported."""
    give_up: types.Age = setting(
        86_400_000, "AGE", "Time without a successful delivery after which a receiver is dropped. [24h]"
    )  # its deliveries are given up, and can be redelivered
    first_wait: types.Seconds = setting(1.0, "S", "Maximum seconds before the first retry. [1]")
    """Doubled after each failure."""
    longest_wait: types.Seconds = setting(3600.0, "S", "Maximum seconds between two retries. [3600]")
    secrets_keys: Path | None = setting(
        None, "PATH", "Keys that encrypt receivers' secrets in the store. [none]", name="secrets_keys"
    )  # base64, one per line: the first encrypts, all decrypt

    @field_validator("give_up")
    @classmethod
    def _check_give_up(cls, value: int | None) -> int:
        if not value:
            raise ValueError("must be more than 0: a delivery that is never given up would keep its task forever")
        return value

    @property
    def retry_policy(self) -> PushRetryPolicy:
        assert self.give_up is not None
        return PushRetryPolicy(self.first_wait, self.longest_wait, self.give_up / 1000)
