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
