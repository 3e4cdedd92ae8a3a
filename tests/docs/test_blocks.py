"""Every fenced block of the documentation is valid, as far as it can be checked without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.blocks import InvalidBlock, Place, calls, check_command, every

from tools.pages import ROOT, Block

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def wrong(places: Iterator[Place], folder: Path) -> Iterator[str]:
    for place in places:
        try:
            assert place.kind
            place.check(folder)
        except InvalidBlock as error:
            yield f"{place}: {error}"


def test_every_block_is_valid(tmp_path: Path) -> None:
    assert not "\n".join(wrong(every(), tmp_path))


def block(language: str, text: str, *response: tuple[str, str]) -> Place:
    return Place(ROOT / "README.md", Block(1, language, text, "", "", response))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("", "hello"),
        ("text", "hello"),
        ("python", "return 1"),
        ("python", "undefined"),
        ("json", "{"),
        ("toml", "no_such_setting = 1"),
        ("toml", "# cards.toml\n[echo]\nnonsense = 1"),
        ("yaml", "a: [b"),
        ("diff", "-there is no such line\n+nor this"),
        ("console", "$ dragoman serve --no-such-option"),
        ("console", "$ dragoman no-such-command"),
        ("console", "$ echo a && dragoman get"),
        ("console", "hello"),
        ("sh", "make no-such-target"),
        ("console", "$ dragoman cancel a b c d"),
    ],
)
def test_invalid_blocks_are_rejected(language: str, text: str, tmp_path: Path) -> None:
    assert list(wrong(iter([block(language, text)]), tmp_path))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "from dragoman import agent"),
        ("python", "# late.py\nundefined"),
        ("json", '{"a":1}\n{"b":2}'),
        ("toml", "live-tasks = 5"),
        ("console", "$ DRAGOMAN_KEY=x dragoman send hello --task $TASK | cat\nsaid"),
        ("sh", "make test ARGS='-k x'  # why\n\n# or\nmake long"),
        ("mermaid", "flowchart TB"),
    ],
)
def test_valid_blocks_are_accepted(language: str, text: str, tmp_path: Path) -> None:
    assert not list(wrong(iter([block(language, text)]), tmp_path))


def test_an_installation_names_the_tested_packages(tmp_path: Path) -> None:
    text = '$ python3 -m venv venv\n$ venv/bin/pip install "{}"\n'
    tested, other = text.format("pydantic-ai-slim[openai]"), text.format("pydantic-ai")
    assert not list(wrong(iter([block("console", tested, ("installed", "pydantic_ai"))]), tmp_path))
    assert list(wrong(iter([block("console", other, ("installed", "pydantic_ai"))]), tmp_path))
    assert list(wrong(iter([block("console", tested, ("installed", "no_such_framework"))]), tmp_path))


def test_a_block_that_is_not_run_is_still_checked(tmp_path: Path) -> None:
    why = ("not run", "needs a cluster")
    assert not list(wrong(iter([block("", "hello", why)]), tmp_path))
    assert list(wrong(iter([block("sh", "dragoman serve --nonsense", why)]), tmp_path))


def test_the_programs_of_a_command_are_separated() -> None:
    assert list(calls('a "b c" | d $(e f) > g; h &')) == [["a", "b c"], ["d", "X"], ["h"], []]
    with pytest.raises(InvalidBlock, match="--nonsense"):
        check_command("printf x | dragoman send y --nonsense")
