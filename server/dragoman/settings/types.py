"""Types of settings: how text and TOML values are parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr

from dragoman.bindings.cards import CardVersions
from dragoman.calling.secret_files import check_header_secret
from dragoman.core import agent_sources
from dragoman.core.access import caller_credentials, identity, jwt_claims
from dragoman.core.access.identity import Isolation
from dragoman.core.access.jwt_claims import Issuer
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.core.durations import parse_age
from dragoman.core.limits import quotas
from dragoman.core.limits.quotas import TaskBudgets
from dragoman.core.names import AGENT_ID, ByAgent, parse_by_agent, parse_table, split_items
from dragoman.core.net.addresses import AllowEntry, is_loopback_host, parse_allow_entry
from dragoman.core.net.targets import parse_port
from dragoman.core.task.maintenance import RetentionPolicy, parse_retention_ages
from dragoman.runtime.access import BLOCKING_DEFAULTS, BlockingDefault
from dragoman.settings.extensions import bus_schemes, installed_extensions, store_schemes


def store_kind(url: str) -> str:
    """Returns `sqlite`, `memory`, `own`, or the scheme of an extension. Raises ValueError with the formats."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in (stores := store_schemes()) and stores[scheme][1].is_valid(url):
        return scheme
    if url.startswith("sqlite:///") and rest not in ("/", "/:memory:"):
        return "sqlite"
    if url == "memory:":
        return "memory"
    if is_function(url):
        return "own"
    raise ValueError(f'"{without_password(url)}" is not the URL of a store; use {store_url_formats()}')


def is_function(text: str) -> bool:
    """Whether a text is MODULE:FUNCTION, which opens a store or bus of one's own. `sqlite:foo` is a mistyped URL."""
    name, colon, function = text.rpartition(":")
    if not (colon and name) or "://" in name or not all(part.isidentifier() for part in function.split(".")):
        return False
    names = (extension.name for extension in installed_extensions())
    return name.lower() not in {"sqlite", "memory", *store_schemes(), *bus_schemes(), *names}


def store_url_formats() -> str:
    """The formats of URLs of stores, for people."""
    shared = [
        f"{store.url_format}{f' (needs {extension.requirement})' if extension.requirement else ''}"
        for extension, store in store_schemes().values()
    ]
    own = ("sqlite:///PATH (from here), sqlite:////PATH (from the root)", *shared, "memory: (keeps nothing)")
    return f"{', '.join(own)} or MODULE:FUNCTION (a store of your own)"


def without_password(url: str) -> str:
    """A URL for display, with its password masked or removed."""
    return re.sub(r"([?&]password=)[^&]*", r"\1***", re.sub(r"(://[^:/@]*):.*@", r"\1@", url))


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. Port 0 lets the system choose a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses HOST:PORT, with an IPv6 host in brackets. Raises ValueError that states the format."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        bracketed = bare != host
        if not (colon and bare and port.isascii() and port.isdigit()) or (":" in bare) != bracketed:
            raise ValueError(f'"{text}" is not HOST:PORT; for example 127.0.0.1:8080 or [::1]:8080')
        if int(port) > 65535:
            raise ValueError(f'"{text}": a port is 0 (any free one) to 65535')
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        return is_loopback_host(self.host)


def _parsed(parse: Callable[[Any], object], *kinds: type) -> BeforeValidator:
    """Parses values of these types. Others stay, so that their type is checked."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, kinds) else value)


def _list_items(value: object) -> object:
    """Splits a comma-separated text into a list; other values are returned as given."""
    return list(split_items(str(value))) if isinstance(value, str | int) else value


def parse_allow_list(value: object) -> Any:
    """Parses private networks and hosts that may be called, separated by commas. Raises ValueError."""
    value = _list_items(value)
    if not isinstance(value, Sequence):
        return value
    return tuple(parse_allow_entry(item) if isinstance(item, str) else item for item in value)


def _parse_ports(value: object) -> object:
    value = _list_items(value)
    return frozenset(parse_port(str(item)) for item in value) if isinstance(value, Iterable) else value


def _parse_retention(value: object) -> object:
    """Parses a table of ages by state with nested tables by agent, or `completed=30d,echo.completed=1d`."""
    if isinstance(value, str):
        value = parse_table(value, "STATE=AGE or AGENT.STATE=AGE, such as completed=30d")
    if not isinstance(value, Mapping):
        return value
    agents = {name: parse_retention_ages(ages) for name, ages in value.items() if isinstance(ages, Mapping)}
    return RetentionPolicy(
        parse_retention_ages({name: age for name, age in value.items() if name not in agents}), overrides=agents
    )


ClientGrants = Annotated[Mapping[str, frozenset[str]], BeforeValidator(caller_credentials.parse_certificate_grants)]


def _check_store_url(url: str) -> str:
    store_kind(url)
    return url


def _check_absolute_url(url: str) -> str:
    parts = urlsplit(url)
    absolute = parts.scheme in ("http", "https") and parts.netloc and not (parts.query or parts.fragment)
    if url and not absolute:
        raise ValueError(f'"{url}" is not http(s)://HOST[:PORT][/PATH]')
    return url.rstrip("/")


def _check_target(text: str) -> str:
    scheme, found, address = text.rpartition("://")
    if found and scheme not in ("http", "https", "grpc", "grpcs", "dns"):
        raise ValueError(f'"{text}" has an unknown scheme; use HOST:PORT, http(s)://... or grpc(s)://...')
    if text:
        Address.parse(address.removeprefix("/") if scheme == "dns" else address)
    return text


StoreUrl = Annotated[str, AfterValidator(_check_store_url)]
AbsoluteUrl = Annotated[str, AfterValidator(_check_absolute_url)]  # empty, or an HTTP URL without a trailing slash
Target = Annotated[str, AfterValidator(_check_target)]  # empty, or HOST:PORT, with or without a scheme

_TRACE_URL_FIELDS: Final = frozenset(("trace_id", "task_id"))


def check_trace_url(value: str) -> str:
    """Validates the template of a trace's URL. Raises ValueError."""
    names = set(re.findall(r"\{(.*?)\}", value))
    if not value or (value.startswith(("http://", "https://")) and names and names <= _TRACE_URL_FIELDS):
        return value
    raise ValueError(f'"{value}" must be an HTTP URL with {{trace_id}} or {{task_id}}')


def check_collector_url(url: str) -> str:
    """Validates the URL of an OTLP collector. Raises ValueError."""
    parts = urlsplit(url)
    is_supported = parts.scheme in ("http", "https", "grpc", "grpcs") and parts.hostname
    if url and (not is_supported or parts.query or parts.fragment):
        raise ValueError(
            f'"{url}" is not the URL of a collector; use http://HOST:4318, https://HOST/PATH or grpc://HOST:4317'
        )
    return url


def parse_headers(text: str) -> dict[str, str]:
    """Parses headers written as NAME=VALUE,NAME=VALUE. Raises ValueError."""
    headers: dict[str, str] = {}
    for item in split_items(text):
        name, equals, value = item.partition("=")
        if not (equals and name.strip()):
            raise ValueError("is not NAME=VALUE,NAME=VALUE, such as Authorization=Bearer abc")
        headers[name.strip()] = value.strip()
    return headers


def _check_headers(value: SecretStr) -> SecretStr:
    parse_headers(value.get_secret_value())
    return value


def _check_token(value: SecretStr) -> SecretStr:
    token = check_header_secret(value.get_secret_value())
    if token.startswith(caller_credentials.API_KEY_PREFIX):
        raise ValueError("is an API key, which identifies a client; choose a random text as the server's token")
    return value


def _check_agent_id(value: str) -> str:
    if value and not AGENT_ID.fullmatch(value):
        raise ValueError(f'"{value}" is not an agent id: a lower-case letter, then at most 62 letters, digits or "-"')
    return value


BearerToken = Annotated[SecretStr, AfterValidator(_check_token)]
OptionalAgentId = Annotated[str, AfterValidator(_check_agent_id)]  # empty, or the id of an agent
Limit = Annotated[int | None, Field(ge=0)]
AgentLimits = Annotated[Mapping[str, Mapping[str, int]], _parsed(quotas.parse_agent_limits, str, Mapping)]
CardVersionsSetting = Annotated[CardVersions, _parsed(str, float)]  # 1.0 in TOML without quotes is a number
BlockingDefaults = Annotated[
    ByAgent[BlockingDefault], _parsed(lambda value: parse_by_agent(value, "a default", BLOCKING_DEFAULTS), str, Mapping)
]
Policies = Annotated[Isolation, _parsed(identity.parse_isolation, str, Mapping)]
Upstreams = Annotated[tuple[UpstreamSpec, ...], BeforeValidator(agent_sources.parse_upstreams)]
Issuers = Annotated[tuple[Issuer, ...], BeforeValidator(jwt_claims.parse_issuers)]
Age = Annotated[int | None, _parsed(lambda age: parse_age(str(age)), str, int)]
Retention = Annotated[RetentionPolicy, BeforeValidator(_parse_retention)]
Names = Annotated[tuple[str, ...], _parsed(lambda text: tuple(item.rstrip("/") for item in split_items(text)), str)]
AllowList = Annotated[tuple[AllowEntry, ...], BeforeValidator(parse_allow_list)]
Ports = Annotated[frozenset[int], BeforeValidator(_parse_ports)]
_AddressText = _parsed(lambda value: Address.parse(str(value)), str, int, float)
Bind = Annotated[Address, _AddressText, PlainSerializer(str)]
OptionalBind = Annotated[Address | None, _AddressText, PlainSerializer(str)]
TraceUrl = Annotated[str, AfterValidator(check_trace_url)]  # empty, or the template of a URL
Collector = Annotated[str, AfterValidator(check_collector_url)]
Headers = Annotated[SecretStr, AfterValidator(_check_headers)]
Budgets = Annotated[TaskBudgets, _parsed(quotas.parse_budgets, str, Mapping)]
Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    _parsed(lambda text: tuple(ip_network(item, strict=False) for item in split_items(text)), str),
]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # 0: no time, or never
