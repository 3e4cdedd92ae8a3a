"""Core and adapters name no extension: not in identifiers, texts or comments, but for a short list."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[1] / "server" / "dragoman"

NAMES: Final = (
    "mcp", "postgres", "postgresql", "postgre sql", "asyncpg", "nats", "langgraph", "langchain", "crewai", "openai",
    "google adk", "pydantic ai", "strands", "agent framework",
)  # fmt: skip
"""Extensions and what they attach. The names of published dialects, such as fasta2a, are not among them: clients of a
server without extensions speak these."""

_MENTION: Final = re.compile(rf"(?<![a-z])(?:{'|'.join(NAMES)})(?![a-z])")

ALLOWED: Final[Mapping[str, tuple[int, str]]] = {
    "core/names.py": (1, "no agent ever has the id `mcp`, so that the path is free when the extension is installed"),
    "core/cards/skill_schemas.py": (1, "the document that defines the annotations, which cards show without MCP, too"),
    "agents/functions/declaration.py": (1, "the same document, for authors"),
}
"""Number of mentions that stay, with the reason, by file."""

MAX_MENTIONS: Final = 20


def mentions(text: str) -> list[str]:
    """The names of extensions in a source, in any spelling: `PostgresStore`, `mcp_wait`, `--bus nats://`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").replace("-", " ").lower()
    return _MENTION.findall(words)


def mentions_by_file(package: Path) -> dict[str, int]:
    """Files outside of the extensions that name one, with the number of mentions."""
    found: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        place = path.relative_to(package)
        if place.parts[0] != "extensions" and place.parts[:2] != ("testing", "contracts"):
            found[str(place)] = len(mentions(path.read_text("utf-8")))
    return dict(+found)


def test_core_and_adapters_name_no_extension() -> None:
    assert mentions_by_file(PACKAGE) == {file: number for file, (number, _) in ALLOWED.items()}


def test_the_list_stays_short() -> None:
    assert sum(number for number, _ in ALLOWED.values()) <= MAX_MENTIONS
    assert all(reason for _, reason in ALLOWED.values())


@pytest.mark.parametrize(
    "slip",
    [
        "class PostgresStore: ...",
        "from dragoman.extensions import nats",
        "mcp_wait = 50",
        "SERVE = McpEndpoint()",
        '"""Faster on PostgreSQL."""',
        'hint = "pass --bus nats://HOST"',
        "# crewai calls this twice",
        "adapter = PydanticAiAgent",
    ],
)
def test_a_mention_is_found(tmp_path: Path, slip: str) -> None:
    (tmp_path / "wiring").mkdir()
    (tmp_path / "wiring" / "infra.py").write_text(slip)
    assert mentions_by_file(tmp_path) == {"wiring/infra.py": 1}


@pytest.mark.parametrize("text", ["coordinates = alternats", "class Signats: ...", "demcpx", "agent_frameworks = 1"])
def test_other_words_are_no_mentions(text: str) -> None:
    assert mentions(text) == []


def test_extensions_and_contracts_may_name_themselves(tmp_path: Path) -> None:
    for folder in ("extensions/nats", "testing/contracts"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "bus.py").write_text("nats = 1")
    assert mentions_by_file(tmp_path) == {}
