"""`@agent`: defaults from the function, and errors at import."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import pytest

import dragoman
from dragoman import Provider, Skill, Turn, agent
from dragoman.agents.functions.declaration import agents_in
from dragoman.agents.functions.runner import DeclaredAgent
from dragoman.core.cards.agent_spec import DEFAULT_MODES, AgentSpec
from dragoman.ports import Agent


async def csv_profile(turn: Turn) -> str:
    """Profiles a file.

    And more.
    """
    return turn.text


def test_a_bare_decorator_derives_the_spec_from_the_function() -> None:
    assert agent(csv_profile).spec == AgentSpec(id="csv-profile", name="Csv profile", description="Profiles a file.")


def test_a_function_without_a_docstring_has_its_name_as_description() -> None:
    @agent
    async def echo(turn: Turn) -> str:
        return turn.text

    assert (echo.spec.name, echo.spec.description) == ("Echo", "Echo")
    assert echo.spec.input_modes == DEFAULT_MODES


def test_every_field_of_the_card_can_be_set() -> None:
    provider = Provider(organization="Acme", url="https://acme.example")
    skill = Skill(id="s", name="S", description="d", tags=("t",))
    spec = agent(
        id="x",
        name="X",
        description="Does x",
        version="2.0",
        skills=[skill, {"name": "Two words", "examples": ["e"], "input_modes": ["image/*"]}, "just a name"],
        input_modes=["text/plain;charset=utf-8", "*/*"],
        output_modes=["image/svg+xml"],
        provider=provider,
        icon_url="https://acme.example/i.png",
        documentation_url="https://acme.example",
        default=True,
        streaming=False,
        direct=True,
        cancelable=False,
        while_working="refuse",
    )(csv_profile).spec
    assert spec == AgentSpec(
        id="x",
        name="X",
        description="Does x",
        version="2.0",
        skills=(
            skill,
            Skill(id="two-words", name="Two words", description="Two words", examples=("e",), input_modes=("image/*",)),
            Skill(id="just-a-name", name="just a name", description="just a name"),
        ),
        input_modes=("text/plain;charset=utf-8", "*/*"),
        output_modes=("image/svg+xml",),
        provider=provider,
        icon_url="https://acme.example/i.png",
        documentation_url="https://acme.example",
        default=True,
        streaming=False,
        direct=True,
        cancelable=False,
        while_working="refuse",
    )
    assert (
        agent(provider={"organization": "Acme", "url": "https://acme.example"})(csv_profile).spec.provider == provider
    )


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": "Bad_Id"}, 'agent id "Bad_Id"'),
    ({"id": "tasks"}, "is taken by a route"),
    ({"id": ""}, "id is empty"),
    ({"name": 3}, "name=3 must be a string"),
    ({"description": ""}, "description is empty"),
    ({"version": ""}, "version is empty"),
    ({"icon_url": None}, "icon_url=None must be a string"),
    ({"default": "yes"}, "default='yes' must be True or False"),
    ({"direct": 1}, "direct=1 must be True or False"),
    ({"streaming": "no"}, "streaming='no' must be True or False"),
    ({"while_working": "wait"}, 'must be "queue" or "refuse"'),
    ({"input_modes": "text/plain"}, "input_modes='text/plain' must be a list of strings"),
    ({"input_modes": ["text"]}, '"text" is not a media type'),
    ({"input_modes": []}, "input_modes is empty"),
    ({"output_modes": [1]}, "output_modes=1 must be a string"),
    ({"skills": "echo"}, "skills='echo' must be a list"),
    ({"skills": ["echo", "Echo"]}, r'skills[1] has the id "echo" of an earlier skill'),
    ({"skills": [{"nmae": "x"}]}, "skills[0] has no field nmae; known fields: id, name"),
    ({"skills": [{}]}, "skills[0] needs a name or an id"),
    ({"skills": [7]}, "skills[0]=7 must be a Skill or a dict"),
    ({"skills": [{"name": "x", "tags": "t"}]}, "skills[0].tags='t' must be a list of strings"),
    ({"provider": "Acme"}, "provider='Acme' must be a Provider or a dict"),
    ({"provider": {"organization": "Acme"}}, "provider.url=None must be a string"),
    ({"nmae": "X"}, "unexpected keyword argument 'nmae'"),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_an_invalid_argument_fails_at_the_declaration(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        agent(**arguments)(csv_profile)
    assert reason in str(caught.value)


class Thing:
    def __call__(self, turn: Turn) -> str:
        return ""


def takes_text(text: str) -> str:
    return text


def takes_object(data: dict[str, Any]) -> str:
    return ""


def takes_names(*names: int) -> str:
    return ""


NO_AGENT: list[tuple[Any, str]] = [
    (takes_text, "takes_text: the argument text is annotated as str"),
    (takes_object, r"annotated as dict[str, typing.Any], but an agent is called with the turn; write data: Turn"),
    (takes_names, "the argument names is annotated as int"),
    ("Echo", "'Echo' is not a function"),
    (Thing, "is not a function"),
    (Thing(), "is not a function"),
    (lambda: "x", "cannot be called with one argument, the turn"),
    (lambda turn, other: "x", "cannot be called with one argument, the turn"),
    (agent(csv_profile), "is already declared as an agent"),
    (lambda turn: "x", 'agent id "<lambda>"'),
]


@pytest.mark.parametrize(("thing", "reason"), NO_AGENT, ids=[reason for _, reason in NO_AGENT])
def test_only_functions_of_one_argument_can_be_agents(thing: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        agent(thing)
    assert reason in str(caught.value)


async def test_a_declared_function_can_still_be_called() -> None:
    declared = agent(csv_profile)
    assert (declared.__name__, declared.__doc__, declared.__module__) == (
        csv_profile.__name__, csv_profile.__doc__, __name__,
    )  # fmt: skip
    assert inspect.unwrap(declared) is csv_profile
    assert inspect.signature(declared) == inspect.signature(csv_profile)
    assert 'agent "csv-profile"' in repr(declared)

    class FixedContext:
        text = "hi"

    assert await declared(FixedContext()) == "hi"  # type: ignore[arg-type]


def test_a_declared_function_implements_agent() -> None:
    declared: Agent = agent(csv_profile)
    assert declared.spec.id == "csv-profile"


def test_a_generator_and_a_method_can_be_declared() -> None:
    class Shop:
        def sell(self, turn: Turn) -> str:
            return "sold"

    @agent
    async def count(turn: Turn) -> AsyncIterator[str]:
        yield "1"

    assert agent(Shop().sell).spec.id == "sell"
    assert count.spec.id == "count"


# Modules -----------------------------------------------------------------------------------------------------------


def module(**values: object) -> ModuleType:
    module = ModuleType("shop")
    vars(module).update(values)
    return module


def named(name: str, **arguments: Any) -> DeclaredAgent[Any, Any]:
    @functools.wraps(csv_profile)
    async def one(turn: Turn) -> str:
        return name

    return agent(id=name, **arguments)(one)


def test_agents_in_a_module_are_found_once_in_source_order() -> None:
    zebra, ant = named("zebra"), named("ant")
    assert agents_in(module(z=zebra, number=3, a=ant, again=zebra, function=csv_profile)) == [zebra, ant]


PROBLEMS: list[tuple[Callable[[], ModuleType], str]] = [
    (lambda: module(x=1), "shop declares no agent"),
    (lambda: module(a=named("a"), b=named("a")), 'two agents have the id "a": '),
    (lambda: module(a=named("a", default=True), b=named("b", default=True)), "two agents have default=True"),
]


@pytest.mark.parametrize(("make", "reason"), PROBLEMS, ids=[reason for _, reason in PROBLEMS])
def test_a_module_with_invalid_agents_is_rejected(make: Callable[[], ModuleType], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        agents_in(make())


# The package -------------------------------------------------------------------------------------------------------


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_dragoman_does_not_import_the_server() -> None:
    heavy = run(
        "import sys, dragoman; from dragoman import Turn, agent; "
        "print(*(m for m in ('grpc', 'aiohttp', 'pydantic', 'sqlite3') if m in sys.modules))"
    )
    assert heavy.split() == []


def test_public_names_are_imported_on_first_use() -> None:
    loaded = run("import sys, dragoman, dragoman.cli; print(*(m for m in ('asyncio', 'google') if m in sys.modules))")
    assert loaded.split() == []


def test_our_messages_are_not_in_the_default_descriptor_pool() -> None:
    run(
        """
        import dragoman
        from google.protobuf import descriptor_pb2, descriptor_pool
        pool = descriptor_pool.Default()
        ours = dragoman.types.Part.DESCRIPTOR.file
        for find, name in ((pool.FindMessageTypeByName, "lf.a2a.v1.Part"), (pool.FindFileByName, ours.name)):
            try:
                find(name)
            except KeyError:
                continue
            raise SystemExit(f"{name} is in the default pool")
        """
    )


@pytest.mark.parametrize("first", ["dragoman", "theirs"])
def test_another_library_may_register_the_same_names_before_or_after(first: str) -> None:
    theirs = """
        from google.protobuf import descriptor_pb2, descriptor_pool
        file = descriptor_pb2.FileDescriptorProto(name="a2a.proto", package="lf.a2a.v1", syntax="proto3")
        file.message_type.add(name="Part").field.add(name="text", number=1, type=9, label=1)
        descriptor_pool.Default().Add(file)
    """
    ours = """
        import dragoman
        assert dragoman.types.text("x").text == "x"
    """
    run("\n".join(map(textwrap.dedent, (theirs, ours) if first == "theirs" else (ours, theirs))))


def test_the_package_has_a_version() -> None:
    assert dragoman.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        dragoman.no_such_name  # noqa: B018
