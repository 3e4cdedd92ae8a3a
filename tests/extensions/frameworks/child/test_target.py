"""Targets: resolution, errors for unusable ones, and the registration from card, name and docstring."""

from __future__ import annotations

import abc
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragoman.extensions.frameworks.child import main, target
from dragoman.extensions.frameworks.child.target import InvalidTarget


class Greeter:
    """Looks like an AgentExecutor."""

    async def execute(self, context: object, queue: object) -> None: ...

    async def cancel(self, context: object, queue: object) -> None: ...


class Wants(Greeter):
    def __init__(self, model: str, *, key: str, size: int = 1, **more: Any) -> None: ...


class Breaks(Greeter):
    def __init__(self) -> None:
        raise KeyError("MODEL_KEY")


class Abstract(abc.ABC):
    @abc.abstractmethod
    async def execute(self) -> None: ...

    @abc.abstractmethod
    async def cancel(self) -> None: ...


async def later() -> Greeter:
    return Greeter()


def test_a_class_is_instantiated_and_an_object_used_unchanged() -> None:
    assert isinstance(target.create_executor(Greeter, {}), Greeter)
    executor = Greeter()
    assert target.create_executor(executor, {}) is executor


def test_a_function_receives_the_dependencies_that_it_has_parameters_for() -> None:
    def make(broker: str, size: int = 3) -> tuple[str, int]:
        return broker, size

    assert target.create_executor(make, {"broker": "b", "storage": "s"}) == ("b", 3)


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (Wants, r"the class Wants has required arguments: model, key; name a function without"),
        (Breaks, r"Breaks\(\) failed: .*test_target.py, line \d+: KeyError: 'MODEL_KEY'"),
        (Abstract, "Abstract is abstract: it does not define cancel, execute"),
        (later, "later is an async function"),
    ],
)
def test_a_target_that_creates_no_executor_is_rejected(found: Any, rule: str) -> None:
    with pytest.raises(InvalidTarget, match=rule):
        target.create_executor(found, {})


def write(folder: Path, text: str) -> str:
    (folder / "made_up.py").write_text(text)
    return f"{folder}/made_up.py"


def test_a_file_is_loaded_as_a_module(tmp_path: Path) -> None:
    module, found = target.load(write(tmp_path, "class Outer:\n    inner = 7\n") + ":Outer.inner")
    assert found == 7
    assert module.__name__ == "made_up"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "import nothing_of_the_kind\n",
            r"made_up.py, line 1: ModuleNotFoundError: .* in .*; pass another interpreter with --executor-python",
        ),
        ("def f(:\n", r"made_up.py, line 1: SyntaxError"),
        ("x = 1\n\nx.y\n", r"made_up.py, line 3: AttributeError"),
        ("raise SystemExit('no key')\n", r"made_up.py, line 1: SystemExit: no key"),
    ],
)
def test_a_module_that_fails_to_import_is_reported_with_the_line(tmp_path: Path, text: str, rule: str) -> None:
    with pytest.raises(InvalidTarget, match=rule):
        target.load(f"{write(tmp_path, text)}:X")


def test_a_missing_name_is_reported_with_the_existing_executors(tmp_path: Path) -> None:
    text = "class Greeter:\n    def execute(self): ...\n    def cancel(self): ...\nclass Other: ...\n"
    with pytest.raises(InvalidTarget, match=r'has no "Executor"; its executors: Greeter$'):
        target.load(f"{write(tmp_path, text)}:Executor")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("no_such_module_at_all:X", 'module "no_such_module_at_all" was not found by '),
        ("no_such_module_at_all.inner:X", 'module "no_such_module_at_all" was not found by '),
        ("json.no_such_part:X", 'module "json.no_such_part" was not found by '),
        ("nowhere/desk.py:X", "file nowhere/desk.py does not exist"),
        ("json", "must have the form MODULE:NAME"),
    ],
)
def test_a_missing_module_is_named(name: str, rule: str) -> None:
    with pytest.raises(InvalidTarget, match=rule):
        target.load(name)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (
            "json:JSONDecoder",
            "the class JSONDecoder is not an agent that can be served. Known are: .*LangGraph",
        ),
        ("math:pi", "of type builtins.float is not an agent that can be served"),
        ("time:time", "of type builtins.float is not an agent that can be served"),
    ],
)
def test_a_target_that_is_not_an_executor_is_rejected(name: str, rule: str) -> None:
    with pytest.raises(InvalidTarget, match=rule):
        main.open_target(name)


def test_an_agent_of_dragoman_itself_is_served_by_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, "from dragoman import agent\n@agent\ndef echo(turn):\n    return turn.text\n")
    with pytest.raises(InvalidTarget, match=rf"^echo is declared with @agent; .*: dragoman serve {path}$"):
        main.open_target(f"{path}:echo")


def test_an_agent_executor_requires_the_sdk(tmp_path: Path) -> None:
    text = "class Greeter:\n    def execute(self): ...\n    def cancel(self): ...\n"
    with pytest.raises(InvalidTarget, match=r"looks like an AgentExecutor, but .* has no a2a-sdk"):
        main.open_target(f"{write(tmp_path, text)}:Greeter")


def test_a_fasta2a_worker_requires_fasta2a(tmp_path: Path) -> None:
    text = "class Greeter:\n    def run_task(self): ...\n    def cancel_task(self): ...\n"
    with pytest.raises(InvalidTarget, match=r"looks like a fasta2a Worker, but .* has no fasta2a"):
        main.open_target(f"{write(tmp_path, text)}:Greeter")


# Registration ------------------------------------------------------------------------------------------------------


class HelloWorldAgentExecutor:
    """Greets each caller,
    in English.

    The rest is not in the description.
    """


class Mute(HelloWorldAgentExecutor):
    agent_card = 7


CARD = {
    "name": "Greeter",
    "description": "Greets",
    "version": "2.0",
    "url": "http://elsewhere",
    "capabilities": {"streaming": False, "pushNotifications": True, "extensions": [{"uri": "urn:x"}]},
    "skills": [{"id": "greet", "name": "Greet", "description": "d", "tags": ["t"], "security": []}],
    "defaultInputModes": ["text/plain"],
    "securitySchemes": {"a": {}},
}


def test_without_a_card_the_class_name_and_docstring_are_used() -> None:
    registration = target.build_registration("greeter", HelloWorldAgentExecutor, None, None)
    assert registration["card"]["name"] == "Hello World"
    assert registration["card"]["description"] == "Greets each caller, in English."
    assert registration["direct"] is True


def test_an_inherited_docstring_is_ignored() -> None:
    assert target.build_registration("mute", Mute, None, None)["card"]["description"] == "Mute"


def test_only_fields_that_describe_the_agent_are_taken_from_a_card() -> None:
    registration = target.build_registration("greeter", HelloWorldAgentExecutor, CARD, None)["card"]
    assert registration == {
        "name": "Greeter",
        "description": "Greets",
        "version": "2.0",
        "skills": [{"id": "greet", "name": "Greet", "description": "d", "tags": ["t"]}],
        "defaultInputModes": ["text/plain"],
        "capabilities": {"streaming": False, "extensions": [{"uri": "urn:x"}]},
    }


def test_additional_skills_of_the_extended_card_are_extended_skills() -> None:
    extended = {"skills": [*CARD["skills"], {"id": "more", "name": "More"}]}
    registration = target.build_registration("greeter", HelloWorldAgentExecutor, CARD, extended)
    assert [skill["id"] for skill in registration["extendedSkills"]] == ["more"]


def test_cards_are_found_in_the_executor_and_in_its_module() -> None:
    module = ModuleType("m")
    module.__dict__.update(specific_extended_agent_card=2, public_agent_card=1, other=3, text="x")
    assert target.find_cards(module, object(), int) == (1, 2)
    assert target.find_cards(module, Mute(), int) == (7, 2)
    assert target.find_cards(ModuleType("n"), object(), int) == (None, None)


def test_display_names_are_derived_from_class_names() -> None:
    assert [target.display_name(name) for name in ("HTTPDeskExecutor", "make_agent", "Executor", "Desk2Worker")] == [
        "HTTP Desk",
        "Make Agent",
        "Executor",
        "Desk2",
    ]
