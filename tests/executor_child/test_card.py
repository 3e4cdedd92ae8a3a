"""Registration of an executor: from its card, or from its name and docstring."""

from __future__ import annotations

from types import ModuleType

from dragoman.executor_child import target


class HelloWorldAgentExecutor:
    """Greets whoever asks,
    and nobody else.

    Further down is of no interest to callers.
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


def test_without_a_card_its_name_and_text_count() -> None:
    registration = target.build_registration("greeter", HelloWorldAgentExecutor, None, None)
    assert registration["card"]["name"] == "Hello World"
    assert registration["card"]["description"] == "Greets whoever asks, and nobody else."
    assert registration["direct"] is True


def test_a_text_that_is_inherited_is_not_its_own() -> None:
    assert target.build_registration("mute", Mute, None, None)["card"]["description"] == "Mute"


def test_of_a_card_only_what_is_the_agents_to_say_is_taken() -> None:
    registration = target.build_registration("greeter", HelloWorldAgentExecutor, CARD, None)["card"]
    assert registration == {
        "name": "Greeter",
        "description": "Greets",
        "version": "2.0",
        "skills": [{"id": "greet", "name": "Greet", "description": "d", "tags": ["t"]}],
        "defaultInputModes": ["text/plain"],
        "capabilities": {"streaming": False, "extensions": [{"uri": "urn:x"}]},
    }


def test_skills_of_the_extended_card_are_shown_to_those_who_have_shown_who_they_are() -> None:
    extended = {"skills": [*CARD["skills"], {"id": "more", "name": "More"}]}
    registration = target.build_registration("greeter", HelloWorldAgentExecutor, CARD, extended)
    assert [skill["id"] for skill in registration["extendedSkills"]] == ["more"]


def test_cards_are_found_in_the_executor_and_in_its_module() -> None:
    module = ModuleType("m")
    module.__dict__.update(specific_extended_agent_card=2, public_agent_card=1, other=3, text="x")
    assert target.find_cards(module, object(), int) == (1, 2)
    assert target.find_cards(module, Mute(), int) == (7, 2)
    assert target.find_cards(ModuleType("n"), object(), int) == (None, None)


def test_names_are_written_for_people() -> None:
    assert [target.display_name(name) for name in ("HTTPDeskExecutor", "make_agent", "Executor", "Desk2Worker")] == [
        "HTTP Desk",
        "Make Agent",
        "Executor",
        "Desk2",
    ]
