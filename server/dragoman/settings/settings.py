"""What an operator may set, in one frozen object that is parsed once.

Where several say something, the first of these wins: the command line, `DRAGOMAN_*` in the environment, a
TOML file (`--config`, else `dragoman.toml` in the working directory when there is one), the default. Nothing
else reads the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    ByteSize,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from dragoman.bindings.options import DEFAULT_MAX_CONNECTIONS
from dragoman.core.access import caller_credentials
from dragoman.core.access.caller_credentials import CertificateName
from dragoman.core.access.identity import Isolation
from dragoman.core.agent_sources import DEFAULT_EXECUTOR_TURNS
from dragoman.core.audit import AuditLevel
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.core.limits.quotas import DEFAULT_LIMITS, NO_BUDGETS, Quotas
from dragoman.core.names import AGENT_ID
from dragoman.core.push.delivery import PushRetryPolicy
from dragoman.core.task.maintenance import RETENTION_STATES, RetentionPolicy
from dragoman.runtime.scheduler import DEFAULT_SLOTS, WORKER_WAIT_SECONDS
from dragoman.settings.sources import (
    ENV_PREFIX,
    SettingsError,
    environment_value,
    explain_setting_error,
    has_environment_settings,
    read_config_file,
)
from dragoman.settings.types import (
    POSTGRES_URL_PREFIX,
    AbsoluteUrl,
    Address,
    Age,
    AgentLimits,
    AllowList,
    Bind,
    Budgets,
    ClientGrants,
    Collector,
    Executors,
    Headers,
    Issuers,
    Limit,
    Names,
    Networks,
    OptionalBind,
    Policies,
    Ports,
    Retention,
    Seconds,
    StoreUrl,
    Target,
    Upstreams,
    without_password,
)

__all__ = ["Address", "Settings", "SettingsError", "load_settings"]

DEFAULT_APP: Final = "dragoman.playground"
T = TypeVar("T")

MIN_TOKEN_LENGTH: Final = 16
"""Characters of a token that strangers may try to guess."""

_AUTH_OPTIONS: Final = "--api-keys, --issuers, --tls-client-ca, --token"


def _requires_auth(values: Mapping[str, Any]) -> bool:
    """Whether a setting makes callers say who they are."""
    token = values.get("token", SecretStr(""))
    ways = ("api_keys", "issuers", "tls_client_ca")
    return bool(token.get_secret_value() or any(values.get(way) for way in ways))


def _needs_authentication(value: T, info: ValidationInfo) -> T:
    if value and not _requires_auth(info.data):
        raise ValueError(
            "means nothing where nobody is asked who they are; add --api-keys, --issuers, --tls-client-ca or --token"
        )
    return value


class Settings(BaseSettings):
    """Everything a server is told. Raises pydantic's ValidationError; `load` says the same to people."""

    # An empty variable is one that a compose file or a unit left open, so it says nothing.
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    config: Path | None = None
    """The TOML file these settings were read from."""
    app: str = DEFAULT_APP
    """A `.py` file or a module with agents."""
    workers_only: bool = False
    """There are no agents but those of workers."""
    upstream: Upstreams = ()
    """Agents elsewhere that speak A2A themselves, and that this server stands in front of."""
    upstream_bytes: ByteSize = Field(default=ByteSize(64 * 1024 * 1024), ge=1024)
    """Bytes of one answer, or one event, of such an agent."""
    upstream_silence: Seconds = 120.0
    """Seconds without a byte after which a call to such an agent is taken for broken."""
    role: Literal["all", "server", "worker"] = "all"
    """`server`: takes requests and leaves APP's turns to others; `worker`: runs APP's agents and takes no requests."""
    processes: int = Field(default=1, ge=1, le=256)
    """Processes on this machine that listen on the same ports."""
    executor: Executors = ()
    """Executors of a2a-sdk and workers of fasta2a that are run beside the server, each in a process of its own."""
    executor_python: str = ""
    """The interpreter of the environment that has them; empty: the server's own."""
    executor_turns: int = Field(default=DEFAULT_EXECUTOR_TURNS, ge=1, le=10_000)
    """Turns of each of them at the same time; more wait."""
    executor_retries: int = Field(default=0, ge=0, le=100)
    """How often a turn is begun again whose process was lost; 0 ends its task as FAILED."""
    root: str = ""
    """The id of the agent meant when a request names none; empty: the agents' own choice."""
    insecure: bool = False
    """Allows addresses that other machines reach although nobody is asked who they are."""
    token: SecretStr = SecretStr("")
    """Callers who show it as bearer token are the principal `token`, and operators; empty: nobody."""
    api_keys: bool = False
    """Callers are known by the API keys that `dragoman keys` made."""
    issuers: Issuers = ()
    """Whose tokens (JWT) callers are known by."""
    tls_client_ca: Path | None = None
    """Certificates (PEM) of authorities: who shows one of theirs is known by it. Read again when it changes."""
    tls_client_revoked: Path | None = None
    """A CRL, or serial numbers, of certificates that count no more. Read again when it changes."""
    tls_client_principal: CertificateName = "cn"
    """What of a certificate is its holder's name."""
    tls_client_grants: ClientGrants = {}
    """Grants of holders, by principal: a table, or `alice=operator,box1=worker`."""
    public_agents: Names = ()
    """Agents that may be called without credentials where others ask for them; `*` for all."""
    private_pages: bool = False
    """Cards, /agents, /docs, /openapi.json and the list at / are for callers with credentials, too."""
    http: Bind = Address("127.0.0.1", 8080)
    grpc: Bind = Address("127.0.0.1", 50051)
    channelz: bool = False
    """Operators see the connections of the gRPC port (grpc.channelz.v1)."""
    metrics: OptionalBind = None
    """Where `/metrics` is for whoever reaches it; none: operators have it on the HTTP port."""
    tls_cert: Path | None = None
    """The certificate of both ports, with those that lead to its authority, in PEM. Read again when it changes."""
    tls_key: Path | None = None
    """Its key, in PEM, without a passphrase."""
    connections: int = Field(default=DEFAULT_MAX_CONNECTIONS, ge=1)
    """Connections that each port holds open."""
    public_url: AbsoluteUrl = ""
    """What the card says instead of the HTTP address, behind a proxy."""
    public_grpc: Target = ""
    """What the card says instead of the gRPC address, behind a proxy: HOST:PORT."""
    sign_cards: bool = False
    """Cards are signed, with the key that signs push notifications; needs `public_url`."""
    card_file: Path | None = None
    """What cards say instead of what agents say of themselves, in TOML. Read again when it changes."""
    trusted_proxies: Networks = ()
    """Who may say by `Forwarded` or `X-Forwarded-*` what the caller saw."""
    outbound_allow: AllowList = ()
    """Networks, addresses and hosts inside private space that webhooks may lead to, also with a port."""
    outbound_ports: Ports = frozenset()
    """The only ports that webhooks may lead to; empty: all but those of protocols that are not the web's."""
    outbound_https_only: bool = False
    """Refuses webhooks that are not https."""
    outbound_ca: Path | None = None
    """Certificates (PEM) that other servers may have besides those that the system knows."""
    store: StoreUrl = "sqlite:///dragoman.db"
    sqlite_synchronous: Literal["full", "normal"] = "full"
    """`normal` may lose the last commits when the machine loses power, not when the process dies."""
    postgres_connections: int = Field(default=10, ge=1)
    """Connections to PostgreSQL, besides three that are kept for appends, for the session and for links."""
    postgres_pooler: bool = False
    """A pooler stands before PostgreSQL and may give each transaction another connection."""
    bus: SecretStr = SecretStr("")
    """Where servers of one store meet: `nats://` or `tls://`, several with commas; empty: nowhere but in the store."""
    bus_prefix: str = Field(default="dragoman", max_length=100, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")
    """What its subjects begin with: another one for each store."""
    bus_credentials: Path | None = None
    """Who we are there: a user's JWT and seed, as `nsc` makes them."""
    bus_ca: Path | None = None
    """Certificates (PEM) of which one vouches for it, besides those that the system knows."""
    fold_rows: int = Field(default=256, ge=0)
    """Rows by which a task's artifacts grew, after which the store joins them; 0: never. No answer changes."""
    cut_after: float = Field(default=86400.0, ge=0, allow_inf_nan=False)
    """Seconds after the end of a task when only the last 64 events are kept to be followed again; 0: never."""
    inline_bytes: ByteSize = Field(default=ByteSize(16 * 1024 * 1024), ge=0)
    """Bytes of large parts (over 256 KiB) in one answer; further ones are given as links that expire."""
    log_format: Literal["text", "json"] = "text"
    otlp: Collector = ""
    """Who collects traces: `http://HOST:4318` or `grpc://HOST:4317`; empty: nothing is traced."""
    otlp_headers: Headers = SecretStr("")
    """What it is shown: NAME=VALUE, several with commas."""
    trace_share: float = Field(default=1.0, ge=0, le=1)
    """Of the traces that begin here: 0.1 is every tenth. Who names a trace says itself whether it is recorded."""
    message_bytes: ByteSize = Field(default=ByteSize(MAX_MESSAGE_BYTES), ge=1024)
    """Decoded size of the largest message accepted."""
    slots: int = Field(default=DEFAULT_SLOTS, ge=1)
    """Turns that run at the same time; more wait."""
    worker_wait: float = Field(default=WORKER_WAIT_SECONDS, ge=0, allow_inf_nan=False)
    """Seconds for which tasks wait for an agent of workers while none of them is there."""
    coalesce_ms: float = Field(default=0.0, ge=0, le=10_000, allow_inf_nan=False)
    """Milliseconds that a text chunk may wait for the next ones, to be one event with them; 0: none waits."""
    coalesce_bytes: ByteSize = Field(default=ByteSize(0), ge=0)
    """Bytes of text up to which chunks that wait become one event; 0: 64 KiB with `coalesce_ms`, else off."""
    blocking_wait: Seconds = 300.0
    """Seconds after which a waiting send answers with the task as it is."""
    drain: float = Field(default=300.0, ge=0, allow_inf_nan=False)
    """Seconds that running turns get to end when the server stops."""
    keepalive: Seconds = 15.0
    """Seconds between signs of life on a silent stream."""
    idempotent_message_ids: bool = False
    """A message's id is the idempotency key of its send, when it has no other."""
    isolation: Policies = Isolation()
    """Who sees a task: `owner`, `scope` or `context`; also by agent, `owner,desk=scope` or a table."""
    live_tasks: Limit = None
    """Tasks of one principal that have not ended; here and below 0 is no limit, and the defaults (core.quotas) are
    for principals that show who they are, for all where other machines reach the server."""
    live_tasks_per_agent: Limit = None
    """The same with one agent."""
    queued_bytes: Annotated[ByteSize | None, Field(ge=0)] = None
    """Messages of one principal that nobody has taken up yet."""
    starts_per_minute: Limit = None
    """Turns of one principal with one agent that begin in a minute."""
    requests_per_second: Limit = None
    """Requests of one principal; twice as many may come at once."""
    open_streams: Limit = None
    """Streams, waiting sends and WebSocket connections of one principal."""
    agent_limits: AgentLimits = {}
    """`live_tasks` and `starts_per_minute` of some agents, as tables by id; or `desk.live-tasks=5`."""
    budgets: Budgets = NO_BUDGETS
    """What one task may use: `tokens=100000,cost=5`, of some agents `desk.cost=0.5`, or a table."""
    retain_completed: Age = None
    """How long tasks are kept after they have ended in this state: `30d`, `12h`, `90m`; 0 for ever."""
    retain_failed: Age = None
    retain_canceled: Age = None
    retain_rejected: Age = None
    retain_input_required: Age = None
    """How long tasks wait for their caller before they end as FAILED (EXPIRED)."""
    retain_auth_required: Age = None
    retention: Retention = RetentionPolicy()
    """The same as a table by state, and tables by agent in it."""
    audit: AuditLevel = "all"
    """What the audit log is told: everything that changes something; who was refused, operators' verbs, keys and
    erasures (`security`); nothing (`off`)."""
    retain_audit: Age = Field(default=31_536_000_000, validate_default=False)
    """How long its entries are kept; 0 for ever."""
    push: bool = True
    """Push notifications are offered; otherwise cards and operations say that they are not."""
    push_first_wait: Seconds = 1.0
    """Seconds after which a push that failed is tried again at the latest; each failure doubles them."""
    push_longest_wait: Seconds = 3600.0
    """The most that these seconds become."""
    push_give_up: Age = Field(default=86_400_000, validate_default=False)
    """How long a receiver may take nothing before it is given up, so that what is left are dead letters."""
    secrets_keys: Path | None = None
    """Keys (base64, one a line) with which secrets of others are sealed in the store; the first seals, all open."""
    cors: Names = ()
    """Origins of web pages that may call, such as `https://app.example.com`; `*` for all."""
    error_table: Literal["1.0.1", "1.0.0"] = "1.0.1"
    """Which edition's status codes 1.0 errors have."""
    strict_transitions: bool = False
    """Fails a task whose agent leaves a2a-rust's narrower table of states."""
    lossy_numbers: bool = False
    """Accepts JSON integers beyond 2^53, which then lose digits."""

    @field_validator("http", "grpc")
    @classmethod
    def _check_listen_address(cls, value: Address, info: ValidationInfo) -> Address:
        if value.is_loopback or info.data.get("insecure") or info.data.get("role") == "worker":
            return value  # a worker shows nothing but that it is there
        asks, token = _requires_auth(info.data), info.data.get("token", SecretStr("")).get_secret_value()
        if not asks:
            raise ValueError(
                f'"{value}" can be reached from other machines, and nobody is asked who they are; use 127.0.0.1, '
                "[::1] or localhost, or authentication "
                f"({_AUTH_OPTIONS}), or allow it with --insecure "
                "(DRAGOMAN_INSECURE=true)"
            )
        if 0 < len(token) < MIN_TOKEN_LENGTH:
            raise ValueError(
                f'"{value}" can be reached from other machines, which could guess the token; it must have at least '
                f"{MIN_TOKEN_LENGTH} characters"
            )
        return value

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if text != text.strip() or not text.isascii() or not text.isprintable():
            raise ValueError("must be printable ASCII without blanks around it, to fit into a header")
        if text.startswith(caller_credentials.API_KEY_PREFIX):
            raise ValueError("is an API key, with which a client says who it is; a server's own is made up by you")
        return value

    @field_validator("public_agents")
    @classmethod
    def _check_public_agents(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if wrong := [name for name in value if name != "*" and not AGENT_ID.fullmatch(name)]:
            raise ValueError(f'"{wrong[0]}" is no agent id')
        return _needs_authentication(value, info)

    @field_validator("private_pages")
    @classmethod
    def _check_private_pages(cls, value: bool, info: ValidationInfo) -> bool:
        return _needs_authentication(value, info)

    @field_validator("push_give_up")
    @classmethod
    def _check_push_give_up(cls, value: int | None) -> int:
        if not value:
            raise ValueError("must be more than nothing: what is never given up would keep its task for ever")
        return value

    @field_validator("sign_cards")
    @classmethod
    def _check_sign_cards(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("public_url"):
            raise ValueError("needs --public-url: else whoever asks could have a card signed that leads to himself")
        return value

    @field_validator("workers_only")
    @classmethod
    def _check_workers_only(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("app", DEFAULT_APP) != DEFAULT_APP:
            raise ValueError(f'APP "{info.data["app"]}" would not be served; say one or the other')
        return value

    @field_validator("root")
    @classmethod
    def _check_root(cls, value: str) -> str:
        if value and not AGENT_ID.fullmatch(value):
            raise ValueError(f'"{value}" is no agent id: a lower-case letter, then at most 62 letters, digits or "-"')
        return value

    @property
    def own_app(self) -> str:
        """APP; nothing on a server that has only agents of workers, or others and no APP was asked for."""
        others = self.upstream or self.executor
        return "" if self.workers_only or (others and "app" not in self.model_fields_set) else self.app

    @property
    def sends_push(self) -> bool:
        """Whether this process tells webhooks: those do that have an address of their own to sign with."""
        return self.push and self.role != "worker"

    @property
    def requires_auth(self) -> bool:
        """Whether callers are asked who they are."""
        return _requires_auth(dict(self))

    @property
    def store_path(self) -> Path:
        """The file of an SQLite store, made absolute from the working directory."""
        return Path(self.store.removeprefix("sqlite:///")).expanduser().absolute()

    @property
    def is_shared(self) -> bool:
        """Whether other servers may serve the same store at the same time."""
        return self.store.startswith(POSTGRES_URL_PREFIX)

    @property
    def store_name(self) -> str:
        """The store as people are told of it: a path, or a URL without a password and options."""
        return without_password(self.store).partition("?")[0] if self.is_shared else str(self.store_path)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach us."""
        return self.http.is_loopback and self.grpc.is_loopback

    @property
    def push_retry_policy(self) -> PushRetryPolicy:
        """How long pushes are tried."""
        assert self.push_give_up is not None
        return PushRetryPolicy(self.push_first_wait, self.push_longest_wait, self.push_give_up / 1000)

    @property
    def retention_policy(self) -> RetentionPolicy:
        """How long tasks are kept: of what is said of a state, `retain_STATE` counts more than the table."""
        said = {state: getattr(self, f"retain_{name.replace('-', '_')}") for name, state in RETENTION_STATES.items()}
        simple = {state: age for state, age in said.items() if age is not None}
        return replace(self.retention, default={**self.retention.default, **simple})

    @property
    def quotas(self) -> Quotas:
        """What callers may take up."""
        said = {limit: int(value) for limit in DEFAULT_LIMITS if (value := getattr(self, limit)) is not None}
        public = not (self.http.is_loopback and self.grpc.is_loopback)
        return Quotas(said, self.agent_limits, public)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        said = init_settings().get("config") or environment_value("config")
        file, values = read_config_file(Path(said) if said else None)
        if file:
            values["config"] = file
        # Each of them goes through all settings, for 2 ms and more, also when it has nothing to say.
        sources = [init_settings]
        if has_environment_settings():
            sources.append(env_settings)
        if file:
            sources.append(InitSettingsSource(settings_cls, values))
        return tuple(sources)


def load_settings(arguments: Mapping[str, Any]) -> Settings:
    """Settings from what the command line said (values of None were not said), and the other sources.

    Raises SettingsError.
    """
    said = {name: value for name, value in arguments.items() if value is not None}
    try:
        return Settings(**said)
    except ValidationError as error:
        chosen = said.get("config") or environment_value("config")
        file, _ = read_config_file(Path(chosen) if chosen else None)
        lines = [explain_setting_error(Settings.model_fields, item, said, file) for item in error.errors()]
        raise SettingsError("\n".join(lines)) from error
