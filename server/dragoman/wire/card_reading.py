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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin

import orjson

from dragoman.core.card import DEFAULT_MODES, Extension, Provider, Skill

TEXT: Final = 4000
NAME: Final = 200
"""Characters of a text, and of a name, that are kept."""

INTERFACES: Final = 32
SKILLS: Final = 200
WORDS: Final = 50
"""How many interfaces, skills, and words of one list (modes, tags, examples) are looked at."""

BINDINGS: Final = {"JSONRPC": "JSONRPC", "HTTP+JSON": "HTTP+JSON", "REST": "HTTP+JSON", "GRPC": "GRPC"}

_MEDIA_TYPE: Final = re.compile(r"(?:[\w.+-]+|\*)/(?:[\w.+-]+|\*)(?:\s*;.*)?", re.ASCII)
_OLD_MODES: Final = {"text": "text/plain", "data": "application/json", "file": "application/octet-stream"}
"""Words that 0.1 has for modes."""

_URI: Final = re.compile(r"[!-+\--~]+")
_TARGET: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_VERSION: Final = re.compile(r"v?(?P<major>[0-9]{1,4})(?:\.(?P<minor>[0-9]{1,4}))?(?:[.-].*)?")


class Unfit(ValueError):
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
class Card:
    """What an agent elsewhere says of itself, as far as it can be used."""

    name: str
    description: str
    version: str
    interfaces: tuple[Interface, ...]
    """Those that are spoken here, the agent's favourite first."""
    left_out: tuple[str, ...] = ()
    """Why others of its interfaces are not among them."""
    streaming: bool = False
    skills: tuple[Skill, ...] = ()
    input_modes: tuple[str, ...] = DEFAULT_MODES
    output_modes: tuple[str, ...] = DEFAULT_MODES
    provider: Provider | None = None
    icon_url: str = ""
    documentation_url: str = ""
    extensions: tuple[Extension, ...] = ()


def read(document: bytes, base: str) -> Card:
    """The card in a document that came from the URL `base`, to which its own URLs may be relative. Raises Unfit."""
    try:
        value = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise Unfit(f"is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unfit("is no JSON object")
    card = {_camel(key): item for key, item in value.items()}
    if not (name := _text(card.get("name"), NAME)):
        raise Unfit("name: is required, a text that is not empty")
    interfaces, left_out = _interfaces(card, base)
    if not interfaces:
        why = "; ".join(left_out) or "it has neither supportedInterfaces nor url"
        raise Unfit(f"names no interface that is spoken here: {why}")
    capabilities = _object(card.get("capabilities"))
    return Card(
        name=name,
        description=_text(card.get("description"), TEXT) or name,
        version=_text(card.get("version"), NAME) or "unknown",
        interfaces=tuple(dict.fromkeys(interfaces)),
        left_out=tuple(left_out),
        streaming=capabilities.get("streaming") is True,
        skills=_skills(card.get("skills")),
        input_modes=_modes(card.get("defaultInputModes")) or DEFAULT_MODES,
        output_modes=_modes(card.get("defaultOutputModes")) or DEFAULT_MODES,
        provider=_provider(card.get("provider")),
        icon_url=_web(card.get("iconUrl")),
        documentation_url=_web(card.get("documentationUrl")),
        extensions=_extensions(capabilities.get("extensions")),
    )


# Interfaces ------------------------------------------------------------------------------------------------


def _interfaces(card: Mapping[str, Any], base: str) -> tuple[list[Interface], list[str]]:
    found: list[Interface] = []
    left: list[str] = []

    def take(where: str, url: object, binding: object, dialect: str | None, tenant: object = "") -> None:
        known = BINDINGS.get(binding.upper()) if isinstance(binding, str) else None
        if known is None:
            left.append(f"{where}: the binding {_shown(binding)} is none of JSONRPC, HTTP+JSON, GRPC")
        elif dialect is None:
            left.append(f"{where}: its version is none of 1.x, 0.3, 0.2, 0.1")
        elif (address := _address(url, known, base)) is None:
            left.append(f"{where}: {_shown(url)} is no URL")
        elif dialect == "0.1" and known != "JSONRPC":
            left.append(f"{where}: 0.1 is spoken over JSONRPC only")
        else:
            found.append(Interface(address, known, dialect, tenant if isinstance(tenant, str) else ""))

    for index, one in enumerate(_objects(card.get("supportedInterfaces"))[:INTERFACES]):
        said = {_camel(key): item for key, item in one.items()}
        version = said.get("protocolVersion") or "1.0"  # the official SDKs take an interface without one for 1.0's
        where = f"supportedInterfaces[{index}]"
        take(where, said.get("url"), said.get("protocolBinding"), _dialect(version), said.get("tenant"))
    if "url" in card:
        old = _old_dialect(card)
        take("url", card["url"], card.get("preferredTransport") or "JSONRPC", old)
        for index, one in enumerate(_objects(card.get("additionalInterfaces"))[:INTERFACES]):
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


def _old_dialect(card: Mapping[str, Any]) -> str | None:
    """The dialect of a card's `url`. Before 0.2.5 cards do not say their version; 0.1's `authentication` tells it."""
    if "protocolVersion" in card:
        dialect = _dialect(card["protocolVersion"])
        # A card of both generations: the old fields are those of the old one, whatever version the card names.
        return "0.3" if dialect == "1.0" and "supportedInterfaces" in card else dialect
    later = ("preferredTransport", "additionalInterfaces", "securitySchemes", "security", "supportedInterfaces")
    return "0.1" if "authentication" in card and not any(key in card for key in later) else "0.3"


def _address(url: object, binding: str, base: str) -> str | None:
    if not isinstance(url, str) or not url or len(url) > 2048:
        return None
    if binding == "GRPC":
        url = url.removeprefix("dns:///").removeprefix("dns:")
        if _TARGET.fullmatch(url):
            return url
    try:
        whole = urljoin(base, url)
    except ValueError:
        return None
    schemes = ("http://", "https://", "grpc://", "grpcs://") if binding == "GRPC" else ("http://", "https://")
    return whole if whole.lower().startswith(schemes) else None


# What it says of itself ------------------------------------------------------------------------------------


def _skills(value: object) -> tuple[Skill, ...]:
    made: dict[str, Skill] = {}
    for one in _objects(value)[:SKILLS]:
        said = {_camel(key): item for key, item in one.items()}
        name = _text(said.get("name"), NAME) or _text(said.get("id"), NAME)
        id = _text(said.get("id"), NAME) or name
        if id and id not in made:
            made[id] = Skill(
                id=id,
                name=name,
                description=_text(said.get("description"), TEXT) or name,
                tags=_texts(said.get("tags")),
                examples=_texts(said.get("examples")),
                input_modes=_modes(said.get("inputModes")),
                output_modes=_modes(said.get("outputModes")),
            )
    return tuple(made.values())


def _extensions(value: object) -> tuple[Extension, ...]:
    made: dict[str, Extension] = {}
    for one in _objects(value)[:WORDS]:
        uri = one.get("uri")
        if isinstance(uri, str) and len(uri) <= TEXT and _URI.fullmatch(uri) and uri not in made:
            made[uri] = Extension(
                uri=uri,
                description=_text(one.get("description"), TEXT),
                required=one.get("required") is True,
                params=_object(one.get("params")),
            )
    return tuple(made.values())


def _provider(value: object) -> Provider | None:
    said = _object(value)
    organization, url = _text(said.get("organization"), NAME), _web(said.get("url"))
    return Provider(organization=organization, url=url) if organization and url else None


def _modes(value: object) -> tuple[str, ...]:
    said = (_OLD_MODES.get(one, one) for one in _texts(value))
    return tuple(dict.fromkeys(mode for mode in said if _MEDIA_TYPE.fullmatch(mode)))


def _web(value: object) -> str:
    text = _text(value, TEXT)
    return text if text.lower().startswith(("http://", "https://")) else ""


def _texts(value: object) -> tuple[str, ...]:
    given = value[:WORDS] if isinstance(value, list) else []
    return tuple(text for one in given if (text := _text(one, TEXT)))


def _text(value: object, longest: int) -> str:
    """A text of one line, cut; empty for what is none."""
    if not isinstance(value, str):
        return ""
    return "".join(sign if sign.isprintable() else " " for sign in value[:longest]).strip()


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _camel(key: str) -> str:
    """`supported_interfaces` is `supportedInterfaces`: some servers write the names of the protos."""
    first, *rest = key.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _shown(value: object) -> str:
    return f'"{_text(value, 100)}"' if isinstance(value, str) else "that is missing or no text"
