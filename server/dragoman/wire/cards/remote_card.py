"""Parser for untrusted cards of remote agents, in every version, and the choice of an interface.

1.0 cards have `supportedInterfaces` (URL, binding, version, tenant). 0.2 and 0.3 cards have `url` with
`preferredTransport` (default JSON-RPC), and `additionalInterfaces`. The `url` of 0.1 cards is JSON-RPC. A card may have
all of these; 1.0 interfaces are preferred. Texts and lists are truncated, and invalid fields are ignored unless a call
needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from dragoman.core.agent_sources import FileForm
from dragoman.core.cards.agent_spec import BASE64_FILES_EXTENSION, DEFAULT_MODES, Extension, Provider, Skill
from dragoman.core.net.addresses import is_loopback_host
from dragoman.core.schemas import levels
from dragoman.wire.json import remote_values

MAX_TEXT_CHARS: Final = 4000
MAX_NAME_CHARS: Final = 200
"""Characters after which a text, and a name, is truncated."""

MAX_INTERFACES: Final = 32
MAX_SKILLS: Final = 200
MAX_LIST_ITEMS: Final = 50
"""Items after which interfaces, skills, and lists of strings (modes, tags, examples) are truncated."""

MAX_PARAMS_DEPTH: Final = 28
"""Levels of an extension's parameters: up to three of the 100 that protobuf parsers allow for each."""

BINDING_ALIASES: Final = {"JSONRPC": "JSONRPC", "HTTP+JSON": "HTTP+JSON", "REST": "HTTP+JSON", "GRPC": "GRPC"}

_MEDIA_TYPE: Final = re.compile(r"(?:[\w.+-]+|\*)/(?:[\w.+-]+|\*)(?:\s*;.*)?", re.ASCII)
_V01_MODES: Final = {"text": "text/plain", "data": "application/json", "file": "application/octet-stream"}
"""The mode names of 0.1, with their media types."""

_URI: Final = re.compile(r"[!-+\--~]+")
_TARGET: Final = re.compile(r"(?:[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(?=/|$)")
_WILDCARDS: Final = frozenset(("*", "0.0.0.0", "::", "0:0:0:0:0:0:0:0"))
_VERSION: Final = re.compile(r"v?(?P<major>[0-9]{1,4})(?:\.(?P<minor>[0-9]{1,4}))?(?:[.-].*)?")


class InvalidRemoteCard(ValueError):
    """The document is not a card, or names no usable interface. The text says which field is wrong and why."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface of a remote agent. `binding` is JSONRPC, HTTP+JSON or GRPC; `dialect` is 1.0, 0.3 or 0.1."""

    url: str
    binding: str
    dialect: str
    tenant: str = ""
    files: FileForm | None = field(default=None, compare=False)
    """The form of its files in 0.3 over gRPC and REST; None: unknown."""

    def __str__(self) -> str:
        return f"{self.binding} {self.dialect} at {self.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCard:
    """The usable fields of a remote agent's card."""

    name: str
    description: str
    version: str
    interfaces: tuple[Interface, ...]  # the supported interfaces, in the order of the card
    skipped_interfaces: tuple[str, ...] = ()  # the other interfaces, each with the reason why it is not supported
    streaming: bool = False
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = DEFAULT_MODES
    output_modes: tuple[str, ...] = DEFAULT_MODES
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    extensions: tuple[Extension, ...] = ()


def parse_card(document: bytes, base_url: str) -> RemoteCard:
    """Parses a card. Its URLs may be relative to `base_url`, from which it was read. Raises InvalidRemoteCard."""
    try:
        fields = remote_values.loads(document)
    except ValueError as error:
        raise InvalidRemoteCard(f"is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidRemoteCard("is not a JSON object")
    card = {_camel(key): value for key, value in fields.items()}
    if not (name := _text(card.get("name"), MAX_NAME_CHARS)):
        raise InvalidRemoteCard("name: is required; must be a non-empty string")
    interfaces, skipped = _interfaces(card, base_url)
    if not interfaces:
        reasons = "; ".join(skipped) or "it has neither supportedInterfaces nor url"
        raise InvalidRemoteCard(f"names no supported interface: {reasons}")
    capabilities = _object(card.get("capabilities"))
    return RemoteCard(
        name=name,
        description=_text(card.get("description"), MAX_TEXT_CHARS) or name,
        version=_text(card.get("version"), MAX_NAME_CHARS) or "unknown",
        interfaces=tuple(dict.fromkeys(interfaces)),
        skipped_interfaces=tuple(skipped),
        streaming=capabilities.get("streaming") is True,
        skills=_skills(card.get("skills")),
        input_modes=_modes(card.get("defaultInputModes")) or DEFAULT_MODES,
        output_modes=_modes(card.get("defaultOutputModes")) or DEFAULT_MODES,
        provider=_provider(card.get("provider")),
        icon_url=_http_url(card.get("iconUrl")),
        documentation_url=_http_url(card.get("documentationUrl")),
        extensions=_extensions(capabilities.get("extensions")),
    )


# Interfaces ------------------------------------------------------------------------------------------------


def _interfaces(card: Mapping[str, Any], base_url: str) -> tuple[list[Interface], list[str]]:
    """The supported interfaces, and the reasons why others are skipped."""
    interfaces: list[Interface] = []
    skipped: list[str] = []

    def add(path: str, url: object, binding: object, dialect: str | None, tenant: object = "") -> None:
        known = BINDING_ALIASES.get(binding.upper()) if isinstance(binding, str) else None
        if known is None:
            skipped.append(f"{path}: the binding {_quoted(binding)} is not one of JSONRPC, HTTP+JSON, GRPC")
        elif dialect is None:
            skipped.append(f"{path}: its version is not one of 1.x, 0.3, 0.2, 0.1")
        elif (address := _interface_url(url, known, base_url)) is None:
            skipped.append(f"{path}: {_quoted(url)} is not a URL")
        elif dialect == "0.1" and known != "JSONRPC":
            skipped.append(f"{path}: 0.1 is supported over JSONRPC only")
        else:
            interfaces.append(Interface(address, known, dialect, tenant if isinstance(tenant, str) else ""))

    for index, entry in enumerate(remote_values.objects(card.get("supportedInterfaces"))[:MAX_INTERFACES]):
        fields = {_camel(key): value for key, value in entry.items()}
        version = fields.get("protocolVersion") or "1.0"  # as the official SDKs interpret an interface without one
        path = f"supportedInterfaces[{index}]"
        add(path, fields.get("url"), fields.get("protocolBinding"), _dialect(version), fields.get("tenant"))
    if "url" in card:
        legacy = _legacy_dialect(card)
        add("url", card["url"], card.get("preferredTransport") or "JSONRPC", legacy)
        for index, entry in enumerate(remote_values.objects(card.get("additionalInterfaces"))[:MAX_INTERFACES]):
            add(f"additionalInterfaces[{index}]", entry.get("url"), entry.get("transport"), legacy)
    return interfaces, skipped


def _dialect(version: object) -> str | None:
    match = _VERSION.fullmatch(version.strip()) if isinstance(version, str) else None
    if match is None:
        return None
    major, minor = int(match["major"]), int(match["minor"] or 0)
    if major == 1:
        return "1.0"
    return {1: "0.1", 2: "0.3", 3: "0.3"}.get(minor) if major == 0 else None


def _legacy_dialect(card: Mapping[str, Any]) -> str | None:
    """The dialect of a card's `url`. Cards before 0.2.5 have no version; `authentication` identifies those of 0.1."""
    if "protocolVersion" in card:
        dialect = _dialect(card["protocolVersion"])
        # A card of both versions: its old fields are 0.3, whatever `protocolVersion` it has.
        return "0.3" if dialect == "1.0" and "supportedInterfaces" in card else dialect
    later = ("preferredTransport", "additionalInterfaces", "securitySchemes", "security", "supportedInterfaces")
    return "0.1" if "authentication" in card and not any(key in card for key in later) else "0.3"


def _interface_url(url: object, binding: str, base_url: str) -> str | None:
    if not isinstance(url, str) or not url or len(url) > 2048:
        return None
    try:
        base = urlsplit(base_url)
        if binding == "GRPC":
            url = url.removeprefix("dns:///").removeprefix("dns:")
            if _TARGET.fullmatch(url):
                return _with_host_of(base, f"//{url}")[2:]
        elif _TARGET.match(url):
            url = f"{base.scheme}://{url}"
        absolute = _with_host_of(base, urljoin(base_url, url))
    except ValueError:
        return None
    schemes = ("http://", "https://", "grpc://", "grpcs://") if binding == "GRPC" else ("http://", "https://")
    return absolute if absolute.lower().startswith(schemes) else None


def _with_host_of(base: SplitResult, url: str) -> str:
    """The URL; with the host of the card's own URL, `base`, where its host means the machine that the card is from.

    Many servers write the address that they listen on: a wildcard, or loopback, which is another machine here.
    """
    parts = urlsplit(url)
    host = parts.hostname or "*"
    is_elsewhere = host in _WILDCARDS or (is_loopback_host(host) and not is_loopback_host(base.hostname or ""))
    if not base.hostname or not is_elsewhere:
        return url
    netloc = f"[{base.hostname}]" if ":" in base.hostname else base.hostname
    return parts._replace(netloc=netloc if parts.port is None else f"{netloc}:{parts.port}").geturl()


# Descriptive fields ----------------------------------------------------------------------------------------


def _skills(value: object) -> tuple[Skill, ...]:
    skills: dict[str, Skill] = {}
    for entry in remote_values.objects(value)[:MAX_SKILLS]:
        fields = {_camel(key): item for key, item in entry.items()}
        name = _text(fields.get("name"), MAX_NAME_CHARS) or _text(fields.get("id"), MAX_NAME_CHARS)
        id = _text(fields.get("id"), MAX_NAME_CHARS) or name
        if id and id not in skills:
            skills[id] = Skill(
                id=id,
                name=name,
                description=_text(fields.get("description"), MAX_TEXT_CHARS) or name,
                tags=_texts(fields.get("tags")),
                examples=_texts(fields.get("examples")),
                input_modes=_modes(fields.get("inputModes")),
                output_modes=_modes(fields.get("outputModes")),
            )
    return tuple(skills.values())


def _extensions(value: object) -> tuple[Extension, ...]:
    extensions: dict[str, Extension] = {}
    for entry in remote_values.objects(value)[:MAX_LIST_ITEMS]:
        uri = entry.get("uri")
        if isinstance(uri, str) and len(uri) <= MAX_TEXT_CHARS and _URI.fullmatch(uri) and uri not in extensions:
            extensions[uri] = Extension(
                uri=uri,
                description=_text(entry.get("description"), MAX_TEXT_CHARS),
                required=entry.get("required") is True,
                params=_params(entry.get("params")),
            )
    return tuple(extensions.values())


def _params(value: object) -> dict[str, Any]:
    """The parameters of an extension; none if they nest too deeply to be shown on a card of protobuf."""
    params = _object(value)
    return params if len(list(islice(levels(params), MAX_PARAMS_DEPTH + 1))) <= MAX_PARAMS_DEPTH else {}


def _provider(value: object) -> Provider | None:
    fields = _object(value)
    organization, url = _text(fields.get("organization"), MAX_NAME_CHARS), _http_url(fields.get("url"))
    return Provider(organization=organization, url=url) if organization and url else None


def _modes(value: object) -> tuple[str, ...]:
    modes = (_V01_MODES.get(mode, mode) for mode in _texts(value))
    return tuple(dict.fromkeys(mode for mode in modes if _MEDIA_TYPE.fullmatch(mode)))


def _http_url(value: object) -> str:
    text = _text(value, MAX_TEXT_CHARS)
    return text if text.lower().startswith(("http://", "https://")) else ""


def _texts(value: object) -> tuple[str, ...]:
    items = value[:MAX_LIST_ITEMS] if isinstance(value, list) else []
    return tuple(text for item in items if (text := _text(item, MAX_TEXT_CHARS)))


def _text(value: object, max_chars: int) -> str:
    """The text on one line, truncated; empty for anything but a string."""
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else " " for char in value[:max_chars]).strip()


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _camel(key: str) -> str:
    """The JSON name of a key: some servers write proto names, such as `supported_interfaces`."""
    first, *rest = key.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _quoted(value: object) -> str:
    return f'"{_text(value, 100)}"' if isinstance(value, str) else "that is missing or not a string"


CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The paths of cards, since 0.3 and before."""

GRPC_LISTING: Final = "urn:dragoman:grpc:v1"
"""The extension of clients whose cards may list gRPC. A Dragoman's gRPC port is another origin than that of its card,
and some clients refuse a whole card with addresses of several."""

CARD_REQUEST_HEADERS: Final = (
    {"Accept": "application/json", "A2A-Version": "1.0", "A2A-Extensions": GRPC_LISTING},
    {"Accept": "application/json"},
)
"""Headers of card requests, to be tried in order: one server shows its 1.0 card only to clients that name the version,
others reject such requests (400)."""

_DIALECT_ORDER: Final = ("1.0", "0.3", "0.1")


class InterfaceChoice(NamedTuple):
    """The interfaces that may be called, best first, and the reasons why others are skipped."""

    interfaces: tuple[Interface, ...]
    skipped_interfaces: tuple[str, ...]


def card_urls(url: str) -> list[str]:
    """The possible URLs of the card of an agent at `url`, which may be the card's own URL."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith(".json"):
        return [parts._replace(path=path).geturl()]
    return [parts._replace(path=path + card_path, query="").geturl() for card_path in CARD_PATHS]


def choose_interfaces(
    card: RemoteCard,
    card_url: str,
    *,
    has_credentials: bool,
    v03_files: FileForm | None = None,
    url_problem: Callable[[str], str] = lambda url: "",
) -> InterfaceChoice:
    """The callable interfaces of a card read from `card_url`: newest dialect first, then in the order of the card.

    `has_credentials`: calls carry credentials, which must not go to another host. `v03_files`: the form of its files in
    0.3 over gRPC and REST; None: unknown, so JSON-RPC, where all SDKs have one form, goes first. `url_problem` returns
    why a URL may not be called, empty if it may. Raises InvalidRemoteCard if no interface may be called.
    """
    is_dragoman = any(one.uri == BASE64_FILES_EXTENSION.uri for one in card.extensions)
    files = v03_files or ("bytes" if is_dragoman else None)
    kept, skipped = [], list(card.skipped_interfaces)
    for interface in card.interfaces:
        if problem := _interface_problem(interface, card_url, has_credentials, url_problem):
            skipped.append(f"{interface}: {problem}")
        else:
            kept.append(replace(interface, files=files))
    if not kept:
        raise InvalidRemoteCard(f"names no interface that may be called: {'; '.join(skipped)}")

    def rank(interface: Interface) -> tuple[int, bool]:
        may_spoil_files = v03_files is None and interface.dialect == "0.3" and interface.binding != "JSONRPC"
        return _DIALECT_ORDER.index(interface.dialect), may_spoil_files

    return InterfaceChoice(tuple(sorted(kept, key=rank)), tuple(skipped))


def grpc_url(address: str, *, encrypted: bool) -> str:
    """The http(s) URL of a gRPC interface, for checks. An address without a scheme uses TLS if `encrypted`."""
    scheme, divider, rest = address.partition("://")
    if not divider:
        return f"{'https' if encrypted else 'http'}://{address}"
    known = "http" if scheme.lower() in ("grpc", "http") else "https"
    return f"{known}://{rest.partition('/')[0]}"


def _interface_problem(
    interface: Interface, card_url: str, has_credentials: bool, url_problem: Callable[[str], str]
) -> str:
    """Why an interface may not be called; empty if it may."""
    safe = card_url.startswith("https:")
    url = grpc_url(interface.url, encrypted=safe) if interface.binding == "GRPC" else interface.url
    if problem := url_problem(url):
        return problem
    parts = urlsplit(url)
    if has_credentials and parts.hostname != urlsplit(card_url).hostname:
        return "is on another host than the card, which must not receive its credentials"
    if safe and parts.scheme == "http":
        return "does not use TLS, although the card does"
    return ""
