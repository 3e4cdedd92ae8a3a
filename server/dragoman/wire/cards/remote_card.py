"""Cards of other agents, read in the shape of every generation, and without belief in what they say.

| generation | where it says how to reach the agent |
|---|---|
| 1.0 | `supportedInterfaces`: URL, binding, version, tenant |
| 0.2 and 0.3 | `url` with `preferredTransport` (JSON-RPC unless it says so), and `additionalInterfaces` |
| 0.1 | `url`, which is JSON-RPC |

A card may be all of them at once; then what 1.0 says counts first. Texts are cut, lists are counted, and what is not
what it should be is left out, as far as the agent can be called without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

import orjson

from dragoman.core.cards.agent_spec import DEFAULT_MODES, Extension, Provider, Skill

MAX_TEXT_CHARS: Final = 4000
MAX_NAME_CHARS: Final = 200
"""Characters of a text, and of a name, that are kept."""

MAX_INTERFACES: Final = 32
MAX_SKILLS: Final = 200
MAX_LIST_ITEMS: Final = 50
"""How many interfaces, skills, and words of one list (modes, tags, examples) are looked at."""

BINDING_ALIASES: Final = {"JSONRPC": "JSONRPC", "HTTP+JSON": "HTTP+JSON", "REST": "HTTP+JSON", "GRPC": "GRPC"}

_MEDIA_TYPE: Final = re.compile(r"(?:[\w.+-]+|\*)/(?:[\w.+-]+|\*)(?:\s*;.*)?", re.ASCII)
_V01_MODES: Final = {"text": "text/plain", "data": "application/json", "file": "application/octet-stream"}
"""Words that 0.1 has for modes."""

_URI: Final = re.compile(r"[!-+\--~]+")
_TARGET: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_VERSION: Final = re.compile(r"v?(?P<major>[0-9]{1,4})(?:\.(?P<minor>[0-9]{1,4}))?(?:[.-].*)?")


class InvalidRemoteCard(ValueError):
    """A document that is no card, or the card of an agent that cannot be called. The text names the field and why."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One way to an agent. `binding` is JSONRPC, HTTP+JSON or GRPC; `dialect` 1.0, 0.3 or 0.1."""

    url: str
    binding: str
    dialect: str
    tenant: str = ""

    def __str__(self) -> str:
        return f"{self.binding} {self.dialect} at {self.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCard:
    """What an agent elsewhere says of itself, as far as it can be used."""

    name: str
    description: str
    version: str
    interfaces: tuple[Interface, ...]
    """Those that are spoken here, the agent's favourite first."""
    skipped_interfaces: tuple[str, ...] = ()
    """Why others of its interfaces are not among them."""
    streaming: bool = False
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = DEFAULT_MODES
    output_modes: tuple[str, ...] = DEFAULT_MODES
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    extensions: tuple[Extension, ...] = ()


def parse_card(document: bytes, base_url: str) -> RemoteCard:
    """The card in a document that came from the URL `base`, to which its own URLs may be relative. Raises Unfit."""
    try:
        value = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise InvalidRemoteCard(f"is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRemoteCard("is no JSON object")
    card = {_camel(key): item for key, item in value.items()}
    if not (name := _text(card.get("name"), MAX_NAME_CHARS)):
        raise InvalidRemoteCard("name: is required, a text that is not empty")
    interfaces, left_out = _interfaces(card, base_url)
    if not interfaces:
        why = "; ".join(left_out) or "it has neither supportedInterfaces nor url"
        raise InvalidRemoteCard(f"names no interface that is spoken here: {why}")
    capabilities = _object(card.get("capabilities"))
    return RemoteCard(
        name=name,
        description=_text(card.get("description"), MAX_TEXT_CHARS) or name,
        version=_text(card.get("version"), MAX_NAME_CHARS) or "unknown",
        interfaces=tuple(dict.fromkeys(interfaces)),
        skipped_interfaces=tuple(left_out),
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
    found: list[Interface] = []
    left: list[str] = []

    def take(where: str, url: object, binding: object, dialect: str | None, tenant: object = "") -> None:
        known = BINDING_ALIASES.get(binding.upper()) if isinstance(binding, str) else None
        if known is None:
            left.append(f"{where}: the binding {_quoted(binding)} is none of JSONRPC, HTTP+JSON, GRPC")
        elif dialect is None:
            left.append(f"{where}: its version is none of 1.x, 0.3, 0.2, 0.1")
        elif (address := _interface_url(url, known, base_url)) is None:
            left.append(f"{where}: {_quoted(url)} is no URL")
        elif dialect == "0.1" and known != "JSONRPC":
            left.append(f"{where}: 0.1 is spoken over JSONRPC only")
        else:
            found.append(Interface(address, known, dialect, tenant if isinstance(tenant, str) else ""))

    for index, one in enumerate(_objects(card.get("supportedInterfaces"))[:MAX_INTERFACES]):
        values = {_camel(key): item for key, item in one.items()}
        version = values.get("protocolVersion") or "1.0"  # the official SDKs take an interface without one for 1.0's
        where = f"supportedInterfaces[{index}]"
        take(where, values.get("url"), values.get("protocolBinding"), _dialect(version), values.get("tenant"))
    if "url" in card:
        old = _legacy_dialect(card)
        take("url", card["url"], card.get("preferredTransport") or "JSONRPC", old)
        for index, one in enumerate(_objects(card.get("additionalInterfaces"))[:MAX_INTERFACES]):
            take(f"additionalInterfaces[{index}]", one.get("url"), one.get("transport"), old)
    return found, left


def _dialect(version: object) -> str | None:
    match = _VERSION.fullmatch(version.strip()) if isinstance(version, str) else None
    if match is None:
        return None
    major, minor = int(match["major"]), int(match["minor"] or 0)
    if major == 1:
        return "1.0"
    return {1: "0.1", 2: "0.3", 3: "0.3"}.get(minor) if major == 0 else None


def _legacy_dialect(card: Mapping[str, Any]) -> str | None:
    """The dialect of a card's `url`. Before 0.2.5 cards do not say their version; 0.1's `authentication` tells it."""
    if "protocolVersion" in card:
        dialect = _dialect(card["protocolVersion"])
        # A card of both generations: the old fields are those of the old one, whatever version the card names.
        return "0.3" if dialect == "1.0" and "supportedInterfaces" in card else dialect
    later = ("preferredTransport", "additionalInterfaces", "securitySchemes", "security", "supportedInterfaces")
    return "0.1" if "authentication" in card and not any(key in card for key in later) else "0.3"


def _interface_url(url: object, binding: str, base_url: str) -> str | None:
    if not isinstance(url, str) or not url or len(url) > 2048:
        return None
    if binding == "GRPC":
        url = url.removeprefix("dns:///").removeprefix("dns:")
        if _TARGET.fullmatch(url):
            return url
    try:
        whole = urljoin(base_url, url)
    except ValueError:
        return None
    schemes = ("http://", "https://", "grpc://", "grpcs://") if binding == "GRPC" else ("http://", "https://")
    return whole if whole.lower().startswith(schemes) else None


# What it says of itself ------------------------------------------------------------------------------------


def _skills(value: object) -> tuple[Skill, ...]:
    values: dict[str, Skill] = {}
    for one in _objects(value)[:MAX_SKILLS]:
        response_values = {_camel(key): item for key, item in one.items()}
        name = _text(response_values.get("name"), MAX_NAME_CHARS) or _text(response_values.get("id"), MAX_NAME_CHARS)
        id = _text(response_values.get("id"), MAX_NAME_CHARS) or name
        if id and id not in values:
            values[id] = Skill(
                id=id,
                name=name,
                description=_text(response_values.get("description"), MAX_TEXT_CHARS) or name,
                tags=_texts(response_values.get("tags")),
                examples=_texts(response_values.get("examples")),
                input_modes=_modes(response_values.get("inputModes")),
                output_modes=_modes(response_values.get("outputModes")),
            )
    return tuple(values.values())


def _extensions(value: object) -> tuple[Extension, ...]:
    values: dict[str, Extension] = {}
    for one in _objects(value)[:MAX_LIST_ITEMS]:
        uri = one.get("uri")
        if isinstance(uri, str) and len(uri) <= MAX_TEXT_CHARS and _URI.fullmatch(uri) and uri not in values:
            values[uri] = Extension(
                uri=uri,
                description=_text(one.get("description"), MAX_TEXT_CHARS),
                required=one.get("required") is True,
                params=_object(one.get("params")),
            )
    return tuple(values.values())


def _provider(value: object) -> Provider | None:
    values = _object(value)
    organization, url = _text(values.get("organization"), MAX_NAME_CHARS), _http_url(values.get("url"))
    return Provider(organization=organization, url=url) if organization and url else None


def _modes(value: object) -> tuple[str, ...]:
    response = (_V01_MODES.get(one, one) for one in _texts(value))
    return tuple(dict.fromkeys(mode for mode in response if _MEDIA_TYPE.fullmatch(mode)))


def _http_url(value: object) -> str:
    text = _text(value, MAX_TEXT_CHARS)
    return text if text.lower().startswith(("http://", "https://")) else ""


def _texts(value: object) -> tuple[str, ...]:
    given = value[:MAX_LIST_ITEMS] if isinstance(value, list) else []
    return tuple(text for one in given if (text := _text(one, MAX_TEXT_CHARS)))


def _text(value: object, max_chars: int) -> str:
    """A text of one line, cut; empty for what is none."""
    if not isinstance(value, str):
        return ""
    return "".join(sign if sign.isprintable() else " " for sign in value[:max_chars]).strip()


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _camel(key: str) -> str:
    """`supported_interfaces` is `supportedInterfaces`: some servers write the names of the protos."""
    first, *rest = key.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _quoted(value: object) -> str:
    return f'"{_text(value, 100)}"' if isinstance(value, str) else "that is missing or no text"


CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where cards are: since 0.3, and before."""

CARD_REQUEST_HEADERS: Final = ({"Accept": "application/json", "A2A-Version": "1.0"}, {"Accept": "application/json"})
"""What to ask for a card with: one server shows its card of 1.0 to those alone who say that they read it, and others
refuse (400) who names a version."""

_DIALECT_ORDER: Final = ("1.0", "0.3", "0.1")
_PLAINTEXT_SCHEMES: Final = {"grpc": "http", "http": "http"}
_TLS_SCHEMES: Final = {"grpcs": "https", "https": "https"}


class InterfaceChoice(NamedTuple):
    """Interfaces that may be called, the best first; and why the others may not."""

    interfaces: tuple[Interface, ...]
    skipped_interfaces: tuple[str, ...]


def card_urls(url: str) -> list[str]:
    """The URLs at which to look for the card of an agent at `url`, which may be the card's own."""
    if urlsplit(url).path.endswith(".json"):
        return [url]
    return [url.partition("?")[0].rstrip("/") + path for path in CARD_PATHS]


def choose_interfaces(
    card: RemoteCard, card_url: str, *, has_credentials: bool, url_problem: Callable[[str], str] = lambda url: ""
) -> InterfaceChoice:
    """The interfaces of a card that was found at `at`, newest dialect first and as the card has them in each.

    `credentials`: some are shown with each call, which must not go to another host. `allowed` says why a URL may not be
    called, empty when it may be. Raises Unfit when none is left.
    """
    kept, left_out = [], list(card.skipped_interfaces)
    for interface in card.interfaces:
        if problem := _interface_problem(interface, card_url, has_credentials, url_problem):
            left_out.append(f"{interface}: {problem}")
        else:
            kept.append(interface)
    if not kept:
        raise InvalidRemoteCard(f"names no interface that may be called: {'; '.join(left_out)}")
    return InterfaceChoice(tuple(rank_interfaces(kept)), tuple(left_out))


def rank_interfaces(interfaces: Iterable[Interface]) -> Sequence[Interface]:
    """Newest dialect first, and as they were in each."""
    return sorted(interfaces, key=lambda one: _DIALECT_ORDER.index(one.dialect))


def grpc_url(address: str, *, encrypted: bool) -> str:
    """The URL that stands for the address of a gRPC interface. One without a scheme is encrypted if `safe`, as its card
    is."""
    scheme, divider, rest = address.partition("://")
    if not divider:
        return f"{'https' if encrypted else 'http'}://{address}"
    known = _TLS_SCHEMES.get(scheme.lower()) or _PLAINTEXT_SCHEMES.get(scheme.lower(), "https")
    return f"{known}://{rest.partition('/')[0]}"


def _interface_problem(
    interface: Interface, card_url: str, has_credentials: bool, url_problem: Callable[[str], str]
) -> str:
    """Why an interface is not called; empty when it may be."""
    safe = card_url.startswith("https:")
    url = grpc_url(interface.url, encrypted=safe) if interface.binding == "GRPC" else interface.url
    if problem := url_problem(url):
        return problem
    there = urlsplit(url)
    if has_credentials and there.hostname != urlsplit(card_url).hostname:
        return "is at another host than the card, and would get the credentials that are for that one"
    if safe and there.scheme == "http":
        return "is not encrypted, and the card is"
    return ""
