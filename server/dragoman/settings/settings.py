"""The settings of a server: one frozen object, parsed and validated once.

Precedence: command line, `DRAGOMAN_*` environment variables, TOML file (`--config`, else `dragoman.toml` in the
working directory, if present), default. Nothing else reads the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dragoman.bindings.options import DEFAULT_MAX_CONNECTIONS
from dragoman.core.access.caller_credentials import CertificateName
from dragoman.core.access.identity import Isolation
from dragoman.core.agent_sources import FileForm
from dragoman.core.audit import AuditLevel
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.core.limits.quotas import DEFAULT_LIMITS, NO_BUDGETS, Quotas
from dragoman.core.names import AGENT_ID, ByAgent
from dragoman.core.push.delivery import PushRetryPolicy
from dragoman.core.task.maintenance import RetentionPolicy
from dragoman.runtime.lease import LOOP_EXIT, LOOP_TIMEOUT
from dragoman.runtime.scheduler import DEFAULT_SLOTS, WORKER_WAIT_SECONDS
from dragoman.settings.authentication import (
    check_listen_address,
    check_proxy,
    is_behind_proxy,
    needs_authentication,
    requires_auth,
)
from dragoman.settings.extensions import (
    InvalidGroups,
    extension_fields,
    flatten_tables,
    is_recognized,
    read_groups,
    take_groups,
    used_sources,
)
from dragoman.settings.sources import (
    SettingsError,
    explain_setting_error,
    read_config_file,
    read_environment,
    reject_unknown_variables,
)
from dragoman.settings.types import (
    AbsoluteUrl,
    Address,
    Age,
    AgentLimits,
    AllowList,
    BearerToken,
    Bind,
    BlockingDefaults,
    Budgets,
    CardVersionsSetting,
    ClientGrants,
    Collector,
    Headers,
    Issuers,
    Limit,
    Names,
    Networks,
    OptionalAgentId,
    OptionalBind,
    Policies,
    Ports,
    Retention,
    Seconds,
    StoreUrl,
    Target,
    TraceUrl,
    Upstreams,
    store_kind,
    without_password,
)

__all__ = ["Address", "Settings", "SettingsError", "load_settings"]

DEFAULT_APP: Final = "dragoman.playground"

DEFAULT_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""Default of the maximum size of a response of another server."""


class Settings(BaseModel):
    """All settings: those given, else of the environment, else of the TOML file, else the default.

    Raises pydantic's ValidationError; `load_settings` raises a readable SettingsError instead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    config: Path | None = None
    """The TOML file these settings were read from."""
    app: str = DEFAULT_APP
    """Agents to serve: a `.py` file or the name of a module."""
    workers_only: bool = False
    """Serve only the agents of workers."""
    upstream: Upstreams = ()
    """Upstream agents: A2A servers that this server is a gateway for."""
    upstream_bytes: ByteSize = Field(default=ByteSize(DEFAULT_RESPONSE_BYTES), ge=1024)
    """Maximum bytes of one response or event of an upstream agent."""
    upstream_silence: Seconds = 120.0
    """Seconds without a byte after which a call to an upstream agent counts as broken."""
    role: Literal["all", "server", "worker"] = "all"
    """`server`: accept requests, but do not run APP's agents; `worker`: run APP's agents, but accept no requests."""
    processes: int = Field(default=1, ge=1, le=256)
    """Server processes on this machine that share the ports."""
    root: OptionalAgentId = ""
    """Id of the agent for requests that name none; empty: the agents decide."""
    insecure: bool = False
    """Allow addresses that other machines can reach, directly or through a proxy, without authentication."""
    token: BearerToken = SecretStr("")
    """Static bearer token. Its callers are principal `token`, with the operator grant. Empty disables it."""
    api_keys: bool = False
    """Authenticate callers by the API keys that `dragoman keys` creates."""
    issuers: Issuers = ()
    """Issuers whose JWTs authenticate callers."""
    tls_client_ca: Path | None = None
    """CA certificates (PEM) that authenticate client certificates (mTLS). Reloaded when the file changes."""
    tls_client_revoked: Path | None = None
    """Revoked client certificates: a CRL, or serial numbers. Reloaded when the file changes."""
    tls_client_principal: CertificateName = "cn"
    """The field of a client certificate that names the principal."""
    tls_client_grants: ClientGrants = {}
    """Grants of certificate principals: a table, or `alice=operator,box1=worker`."""
    public_agents: Names = ()
    """Agents that accept calls without credentials on a server with authentication; `*` for all."""
    private_pages: bool = False
    """Require credentials for cards, /agents, /docs, /openapi.json and the list at /, too."""
    http: Bind = Address("127.0.0.1", 8080)
    grpc: Bind = Address("127.0.0.1", 50051)
    metrics: OptionalBind = None
    """Separate address of `/metrics`, without authentication; none: on the HTTP port, for operators."""
    tls_cert: Path | None = None
    """Certificate chain (PEM) of both ports. Reloaded when the file changes."""
    tls_key: Path | None = None
    """Private key (PEM) of `tls_cert`, without a passphrase."""
    connections: int = Field(default=DEFAULT_MAX_CONNECTIONS, ge=1)
    """Maximum open connections of each port."""
    public_url: AbsoluteUrl = ""
    """HTTP URL in agent cards, for servers behind a proxy."""
    public_grpc: Target = ""
    """gRPC address (HOST:PORT) in agent cards, for servers behind a proxy."""
    sign_cards: bool = False
    """Sign agent cards with the key that signs push notifications; needs `public_url`."""
    card_file: Path | None = None
    """TOML file with card fields that override those of the agents. Reloaded when it changes."""
    card_versions: CardVersionsSetting = "all"
    """Cards for clients of `all` versions, or of `1.0` or `0.3` alone, for strict readers."""
    trusted_proxies: Networks = ()
    """Networks whose `Forwarded` and `X-Forwarded-*` headers are trusted."""
    outbound_allow: AllowList = ()
    """Private networks, addresses and hosts, each optionally with a port, that webhooks may target."""
    outbound_ports: Ports = frozenset()
    """Ports that webhooks may target; empty: all except well-known ports of other protocols than HTTP."""
    outbound_https_only: bool = False
    """Reject webhooks that are not https."""
    outbound_ca: Path | None = None
    """CA certificates (PEM) trusted for outbound connections, in addition to the system's."""
    store: StoreUrl = "sqlite:///dragoman.db"
    """A URL, `memory:` for a store that is deleted at the end, or MODULE:FUNCTION for a store of your own."""
    sqlite_synchronous: Literal["full", "normal"] = "full"
    """`normal` may lose the last commits on power loss, but not when the process dies."""
    bus: SecretStr = SecretStr("")
    """URLs of the bus between servers of one store, comma-separated; empty: no bus."""
    compact_after_rows: int = Field(default=256, ge=0)
    """New artifact rows of a task after which the store compacts them; 0: never. Responses stay the same."""
    truncate_log_after: float = Field(default=86400.0, ge=0, allow_inf_nan=False)
    """Seconds after the end of a task until all but its last 64 events are dropped; 0: never."""
    inline_bytes: ByteSize = Field(default=ByteSize(16 * 1024 * 1024), ge=0)
    """Bytes of large contents (over 256 KiB: parts, and text joined from chunks) inlined in one response; further ones
    become links that expire."""
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    otlp: Collector = ""
    """OTLP collector of traces: `http://HOST:4318` or `grpc://HOST:4317`; empty: no tracing."""
    otlp_headers: Headers = SecretStr("")
    """Headers for the collector: NAME=VALUE, comma-separated."""
    trace_share: float = Field(default=1.0, ge=0, le=1)
    """Sampling rate of traces that start here: 0.1 is every tenth. A caller's trace context decides for itself."""
    trace_url: TraceUrl = ""
    """Where people see a task's trace: a URL with `{trace_id}` or `{task_id}`. The console and `explain` link to it."""
    message_bytes: ByteSize = Field(default=ByteSize(MAX_MESSAGE_BYTES), ge=1024)
    """Maximum decoded size of a message, in bytes."""
    loop_timeout: Seconds = LOOP_TIMEOUT
    """Seconds without an answer of the event loop after which other processes take over the tasks of this one."""
    loop_exit: float = Field(default=LOOP_EXIT, ge=0, allow_inf_nan=False)
    """Seconds after which a process whose event loop does not answer ends itself, with a traceback; 0: never."""
    slots: int = Field(default=DEFAULT_SLOTS, ge=1)
    """Concurrent turns; more wait."""
    worker_wait: float = Field(default=WORKER_WAIT_SECONDS, ge=0, allow_inf_nan=False)
    """Seconds that tasks wait for an agent none of whose workers is connected."""
    coalesce_ms: float = Field(default=0.0, ge=0, le=10_000, allow_inf_nan=False)
    """Milliseconds that a text chunk may wait to be merged with the next ones into one event; 0: no waiting."""
    coalesce_bytes: ByteSize = Field(default=ByteSize(0), ge=0)
    """Maximum bytes of a merged text chunk; 0: 64 KiB with `coalesce_ms`, else off."""
    blocking_wait: Seconds = 300.0
    """Seconds after which a blocking send returns the unfinished task."""
    blocking_default: BlockingDefaults = ByAgent("wait")
    """Whether sends before 1.0 that leave it open `wait` or `return` at once; per agent as `wait,desk=return`."""
    drain: float = Field(default=300.0, ge=0, allow_inf_nan=False)
    """Seconds that running turns have to finish when the server stops."""
    keepalive: Seconds = 15.0
    """Seconds between keep-alives on a silent stream."""
    idempotent_message_ids: bool = False
    """Use the message id as idempotency key of sends without another one."""
    isolation: Policies = Isolation()
    """Who may see a task: `owner`, `scope` or `context`; per agent as `owner,desk=scope` or a table."""
    live_tasks: Limit = None
    """Maximum unfinished tasks of one principal. For this and the limits below, 0 means no limit. The defaults
    (core.limits.quotas) apply to authenticated principals, and to all once other machines can reach the server."""
    live_tasks_per_agent: Limit = None
    """The same, per agent."""
    queued_bytes: Annotated[ByteSize | None, Field(ge=0)] = None
    """Maximum bytes of one principal's messages that no turn has read yet."""
    starts_per_minute: Limit = None
    """Maximum turns per minute of one principal with one agent."""
    requests_per_second: Limit = None
    """Maximum request rate of one principal; the burst is twice as high."""
    open_streams: Limit = None
    """Maximum streams, blocking sends and WebSocket connections of one principal, together."""
    agent_limits: AgentLimits = {}
    """`live_tasks` and `starts_per_minute` by agent id: a table, or `desk.live-tasks=5`."""
    budgets: Budgets = NO_BUDGETS
    """Budget of one task: `tokens=100000,cost=5`, per agent `desk.cost=0.5`, or a table."""
    retention: Retention = RetentionPolicy()
    """Age at which tasks are erased, or end as FAILED (EXPIRED) while they wait for their caller: a table by state with
    nested tables by agent, or `completed=30d,desk.input-required=12h`; 0: never."""
    audit: AuditLevel = "all"
    """Content of the audit log: every change (`all`); rejected callers, operator calls, keys and erasures (`security`);
    nothing (`off`)."""
    retain_audit: Age = Field(default=31_536_000_000, validate_default=False)
    """Retention of audit entries; 0: forever."""
    push: bool = True
    """Offer push notifications. Without them cards and push operations report them as unsupported."""
    push_first_wait: Seconds = 1.0
    """Maximum seconds until the first retry of a failed delivery; doubled after each failure."""
    push_longest_wait: Seconds = 3600.0
    """Maximum seconds between two retries."""
    push_give_up: Age = Field(default=86_400_000, validate_default=False)
    """How long a receiver may accept nothing before its deliveries become dead letters."""
    secrets_keys: Path | None = None
    """Keys (base64, one per line) that encrypt secrets in the store: the first encrypts, all decrypt."""
    cors: Names = ()
    """Web origins that may call, such as `https://app.example.com`; `*` for all."""
    error_table: Literal["1.0.1", "1.0.0"] = "1.0.1"
    """The edition of A2A 1.0 whose status codes errors use."""
    v03_files: FileForm = "bytes"
    """Form of files in 0.3 over gRPC and REST: `bytes`, `base64` text, or recognized in each request (`auto`)."""
    strict_transitions: bool = False
    """Fail tasks whose state transitions are not in a2a-rust's narrower table."""
    error_texts: Literal["auto", "agents", "all"] = "auto"
    """Exceptions whose text callers see: an agent's AgentErrors (`agents`) or `all`. `auto`: all if only this machine
    can call, without authentication and proxies."""
    lossy_numbers: bool = False
    """Accept JSON integers beyond 2^53, which then lose digits."""

    extensions: Annotated[Mapping[str, Any], BeforeValidator(read_groups)] = {}
    """The settings of each installed extension, by its name. Its options have names as if they were fields here."""

    def __init__(self, **given: Any) -> None:
        values = {**read_environment(setting_fields()), **given}
        file, in_file = read_config_file(values.get("config"))
        values = {**flatten_tables(in_file), **({"config": file} if file else {}), **values}
        values.setdefault("extensions", take_groups(values))
        super().__init__(**values)

    @field_validator("http", "grpc")
    @classmethod
    def _check_listen_address(cls, value: Address, info: ValidationInfo) -> Address:
        return check_listen_address(value, info)

    @field_validator("public_url", "public_grpc", "trusted_proxies")
    @classmethod
    def _check_proxy(cls, value: Any, info: ValidationInfo) -> Any:
        return check_proxy(value, info)

    @field_validator("public_agents")
    @classmethod
    def _check_public_agents(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if invalid := [name for name in value if name != "*" and not AGENT_ID.fullmatch(name)]:
            raise ValueError(f'"{invalid[0]}" is not an agent id')
        return needs_authentication(value, info)

    @field_validator("private_pages")
    @classmethod
    def _check_private_pages(cls, value: bool, info: ValidationInfo) -> bool:
        return needs_authentication(value, info)

    @field_validator("push_give_up")
    @classmethod
    def _check_push_give_up(cls, value: int | None) -> int:
        if not value:
            raise ValueError("must be more than 0: a delivery that is never given up would keep its task forever")
        return value

    @field_validator("sign_cards")
    @classmethod
    def _check_sign_cards(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("public_url"):
            raise ValueError(
                "needs --public-url: without it a caller could get a signed card with an address of its own"
            )
        return value

    @field_validator("workers_only")
    @classmethod
    def _check_workers_only(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("app", DEFAULT_APP) != DEFAULT_APP:
            raise ValueError(f'APP "{info.data["app"]}" would not be served; pass either APP or --workers-only')
        return value

    @property
    def own_app(self) -> str:
        """APP; empty with `workers_only`, with agents of other kinds unless APP was given, and if it is an object."""
        if is_recognized(self.app):
            return ""
        has_other_agents = self.upstream or used_sources(self.extensions, self.app)
        if self.workers_only or (has_other_agents and "app" not in self.model_fields_set):
            return ""
        return self.app

    @property
    def sends_push(self) -> bool:
        """Whether this process delivers push notifications; worker processes do not."""
        return self.push and self.role != "worker"

    @property
    def requires_auth(self) -> bool:
        """Whether authentication is on."""
        return requires_auth(dict(self))

    @property
    def store_kind(self) -> str:
        """Which store `store` names: `sqlite`, `memory`, `own`, or the scheme of an extension."""
        return store_kind(self.store)

    @property
    def store_path(self) -> Path:
        """The absolute path of an SQLite store, with symbolic links resolved: its other files are beside it."""
        return Path(self.store.removeprefix("sqlite:///")).expanduser().resolve()

    @property
    def is_shared(self) -> bool:
        """Whether several servers can use the store at the same time; of a store of your own that is assumed."""
        return self.store_kind not in ("sqlite", "memory")

    @property
    def store_name(self) -> str:
        """The store for display: a path, or a URL without password and options."""
        match self.store_kind:
            case "sqlite":
                return str(self.store_path)
            case "memory":
                return "memory: (deleted at the end)"
            case "own":
                return self.store
            case _:
                return without_password(self.store).partition("?")[0]

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.http.is_loopback and self.grpc.is_loopback

    @property
    def behind_proxy(self) -> bool:
        """Whether other machines call through a proxy: one is trusted, or the public name is not of this machine."""
        return is_behind_proxy(dict(self))

    @property
    def is_private(self) -> bool:
        """Whether only users of this machine call: no other machine reaches the server, and no proxy calls for one.

        Whoever turns on authentication expects other callers, mostly through a proxy on the same machine.
        """
        return self.is_loopback and not (self.requires_auth or self.behind_proxy)

    @property
    def shows_error_texts(self) -> bool:
        """Whether callers see what any exception of an agent says."""
        return self.error_texts == "all" or (self.error_texts == "auto" and self.is_private)

    @property
    def push_retry_policy(self) -> PushRetryPolicy:
        """Retries of push deliveries."""
        assert self.push_give_up is not None
        return PushRetryPolicy(self.push_first_wait, self.push_longest_wait, self.push_give_up / 1000)

    @property
    def quotas(self) -> Quotas:
        """The limits per principal and agent."""
        limits = {limit: int(value) for limit in DEFAULT_LIMITS if (value := getattr(self, limit)) is not None}
        return Quotas(limits, self.agent_limits, not self.is_loopback or self.behind_proxy)


def setting_fields() -> dict[str, FieldInfo]:
    """All settings by name, with those of the extensions. Raises InvalidExtension."""
    own = {name: field for name, field in Settings.model_fields.items() if name != "extensions"}
    return own | extension_fields()


def load_settings(arguments: Mapping[str, Any], *, in_code: bool = False) -> Settings:
    """Settings from command line arguments (None: not given) and the other sources.

    in_code: the arguments are those of a function, and errors spell them so. Raises SettingsError.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    fields = setting_fields()
    reject_unknown_variables(fields)
    try:
        return Settings(**given)
    except ValidationError as error:
        file, _ = read_config_file({**read_environment(fields), **given}.get("config"))
        lines = [explain_setting_error(fields, item, given, file, in_code=in_code) for item in _details(error)]
        raise SettingsError("\n".join(lines)) from error


def _details(error: ValidationError) -> Iterator[ErrorDetails]:
    for item in error.errors():
        cause = item.get("ctx", {}).get("error")
        yield from cause.errors if isinstance(cause, InvalidGroups) else [item]
