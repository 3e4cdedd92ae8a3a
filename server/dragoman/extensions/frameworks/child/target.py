"""Resolves TARGET (MODULE:NAME or FILE.py:NAME) to an executor and its card."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from .exceptions import describe, is_a, stack_of


class InvalidTarget(Exception):
    """TARGET is not a usable executor. The text says why."""


def load(target: str) -> tuple[ModuleType, Any]:
    """Imports the module and returns it with the value of the name. Raises InvalidTarget."""
    module_name, colon, name = target.rpartition(":")
    if not colon or not module_name or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidTarget("must have the form MODULE:NAME or FILE.py:NAME")
    module = _import_module(module_name)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise InvalidTarget(f'{module_name} has no "{name}"{_suggestions(module)}')
        value = getattr(value, part)
    return module, value


def create_executor(target: Any, dependencies: Mapping[str, Any]) -> Any:
    """Returns the executor: calls a class or function, and returns any other value as it is. Raises InvalidTarget.

    A class or function receives those of `dependencies` that it has parameters for.
    """
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        return target
    if inspect.isabstract(target):
        missing = ", ".join(sorted(getattr(target, "__abstractmethods__", ())))
        raise InvalidTarget(f"{target.__name__} is abstract: it does not define {missing}")
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in dependencies
    ]
    if needed:
        kind = "class" if inspect.isclass(target) else "function"
        raise InvalidTarget(
            f"the {kind} {target.__name__} has required arguments: {', '.join(needed)}; "
            "name a function without arguments that returns an executor, or an executor object"
        )
    arguments = {
        parameter.name: dependencies[parameter.name] for parameter in parameters if parameter.name in dependencies
    }
    try:
        value = target(**arguments)
    except Exception as error:
        raise InvalidTarget(f"{target.__name__}() failed: {_describe_import_error(error)}") from error
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidTarget(f"{target.__name__} is an async function; name a function that is not async")
    return value


def _import_module(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name or "\\" in name:
        return _import_file(name)
    _prepend_search_path(os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise InvalidTarget(
                f'module "{missing}" was not found by {sys.executable} in {os.getcwd()} or its installed packages'
            ) from None
        raise InvalidTarget(f"{name} cannot be imported: {_describe_import_error(error)}") from error


def _import_file(name: str) -> ModuleType:
    path = os.path.abspath(name)
    if not os.path.isfile(path):
        raise InvalidTarget(f"file {name} does not exist")
    _prepend_search_path(os.path.dirname(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem in sys.modules or not stem.isidentifier():
        stem = f"dragoman_executor_{stem}"
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise InvalidTarget(f"{name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InvalidTarget(f"{name} cannot be imported: {_describe_import_error(error)}") from error
    return module


def _prepend_search_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _suggestions(module: ModuleType) -> str:
    """A hint with the names of the module's executors; empty if there are none."""
    names = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and is_executor(value)
    ]
    return f"; its executors: {', '.join(names[:5])}" if names else ""


def is_executor(value: Any) -> bool:
    """Whether it has the methods of a2a-sdk's AgentExecutor or of fasta2a's Worker."""
    return any(
        all(callable(getattr(value, name, None)) for name in names)
        for names in (("execute", "cancel"), ("run_task", "cancel_task"))
    )


def _describe_import_error(error: BaseException) -> str:
    """The error, with the innermost line outside installed packages and this one."""
    text = describe(error)
    if is_a(error, ModuleNotFoundError):
        text += f" in {sys.executable}; pass another interpreter with --executor-python"
    own_folder = os.path.dirname(os.path.abspath(__file__))
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in stack_of(error)
        if not frame.f_code.co_filename.startswith((own_folder, "<"))
        and "site-packages" not in frame.f_code.co_filename
        and os.path.dirname(os.__file__) not in frame.f_code.co_filename
    ]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    return f"{places[-1][0]}, line {places[-1][1]}: {text}" if places else text


CARD_FIELDS = (
    *("name", "description", "version", "iconUrl", "documentationUrl", "provider", "skills"),
    *("defaultInputModes", "defaultOutputModes"),
)
_SKILL_KEYS = ("id", "name", "description", "tags", "examples", "inputModes", "outputModes")
_CLASS_NAME_SUFFIXES = ("AgentExecutor", "AgentWorker", "Executor", "Worker")


def build_registration(id: str, target: Any, card: Mapping[str, Any] | None, extended: Mapping[str, Any] | None) -> Any:
    """Builds an AgentRegistration from the named target and its cards (camelCase JSON of any version)."""
    fields = {key: card[key] for key in CARD_FIELDS if card and card.get(key)}
    card_capabilities = (card or {}).get("capabilities") or {}
    capabilities = {"streaming": card_capabilities.get("streaming") is not False}
    if extensions := card_capabilities.get("extensions"):
        capabilities["extensions"] = extensions
    fields["skills"] = _skills(fields.get("skills"))
    source = target if inspect.isclass(target) or inspect.isroutine(target) else type(target)
    fields.setdefault("name", display_name(source.__name__) or id)
    # Only its own docstring: an inherited one describes executors in general.
    text = inspect.cleandoc(vars(source).get("__doc__") or "" if inspect.isclass(source) else source.__doc__ or "")
    fields.setdefault("description", text.partition("\n\n")[0].replace("\n", " ") or fields["name"])
    registration = {"id": id, "card": {**fields, "capabilities": capabilities}, "direct": True}
    if extended:
        ids = {skill["id"] for skill in fields["skills"]}
        registration["extendedSkills"] = [skill for skill in _skills(extended.get("skills")) if skill["id"] not in ids]
    return registration


def find_cards(module: ModuleType, executor: Any, kind: type) -> tuple[Any, Any]:
    """Returns the card and the extended card among the values of the executor and its module, None if missing.

    `kind`: the card class. A card whose name contains `extended` is the extended one.
    """
    cards = {name: value for name, value in vars(module).items() if isinstance(value, kind)}
    for name in ("agent_card", "card"):
        if isinstance(value := getattr(executor, name, None), kind):
            cards = {name: value, **cards}
    extended = [value for name, value in cards.items() if "extended" in name.lower()]
    public = [value for name, value in cards.items() if "extended" not in name.lower()]
    return public[0] if public else None, extended[0] if extended else None


def display_name(name: str) -> str:
    """Converts a class name to a display name: `HelloWorldAgentExecutor` to `Hello World`."""
    for suffix in _CLASS_NAME_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
            break
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", name).strip()
    return " ".join(word[:1].upper() + word[1:] for word in words.split())


def _skills(skills: Any) -> list[dict[str, Any]]:
    return [{key: skill[key] for key in _SKILL_KEYS if skill.get(key)} for skill in skills or []]
