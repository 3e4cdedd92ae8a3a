"""Objects of frameworks are recognized by their classes."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from dragoman.extensions.frameworks.child import adapters
from dragoman.extensions.frameworks.child.main import open_target
from dragoman.extensions.frameworks.child.target import InvalidTarget


def object_of(package: str, name: str) -> object:
    """An object of a subclass of a class of this name in this package."""
    base = type(name, (), {"__module__": f"{package}.agent.abstract"})
    return types.new_class("Own", (base,))()


@pytest.mark.parametrize("kind", adapters.KINDS, ids=lambda kind: kind.adapter)
def test_an_object_is_recognized_by_the_names_of_its_classes(kind: adapters.FrameworkKind) -> None:
    for name in kind.classes:
        assert adapters.recognize(object_of(kind.package, name)) == kind
        assert adapters.recognize(object_of("another_package", name)) is None


def test_an_object_of_no_known_kind_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text("thing = {'an': 'object'}\n")
    with pytest.raises(InvalidTarget, match=r"the value of type builtins.dict is not an agent that can be served"):
        open_target("odd.py:thing")


def test_a_version_without_what_its_adapter_uses_is_refused_with_the_versions_that_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pydantic_ai.py").write_text("class Agent: ...\n")
    (tmp_path / "pydantic_ai_slim-0.8.1.dist-info").mkdir()
    metadata = tmp_path / "pydantic_ai_slim-0.8.1.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: pydantic-ai-slim\nVersion: 0.8.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    kind = next(one for one in adapters.KINDS if one.package == "pydantic_ai")
    rule = r"is a pydantic-ai Agent, and pydantic-ai-slim 0\.8\.1 cannot be served \(.*\); install pydantic-ai-slim 2"
    with pytest.raises(InvalidTarget, match=rule):
        adapters.open_adapter(kind, types.ModuleType("app"), "agent", object())
