"""MODULE:NAME, and what it names: an executor, a class of them, or a function that makes one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class InvalidTarget(Exception):
    """TARGET gives no executor; the text says why."""


def load(target: str) -> tuple[ModuleType, Any]:
    """The module, and what it has under the name. Raises Unusable."""
    module_name, colon, name = target.rpartition(":")
    if not colon or not module_name or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidTarget("must be MODULE:NAME or FILE.py:NAME")
    module = _import_module(module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidTarget(f'{module_name} has no "{name}"{_suggestions(module)}')
        found = getattr(found, part)
    return module, found


def create_executor(target: Any, dependencies: Mapping[str, Any]) -> Any:
    """The executor: what a class or a function gives, called with as much of `given` as it has
    parameters for; anything
    else is one already. Raises Unusable."""
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
        one.name
        for one in parameters
        if one.default is one.empty
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and one.name not in dependencies
    ]
    if needed:
        what = "the class" if inspect.isclass(target) else "the function"
        raise InvalidTarget(
            f"{what} {target.__name__} needs arguments that nobody gives it: {', '.join(needed)}; "
            "name a function without arguments that returns an executor, or an executor itself"
        )
    said = {one.name: dependencies[one.name] for one in parameters if one.name in dependencies}
    try:
        value = target(**said)
    except Exception as error:
        raise InvalidTarget(f"{target.__name__}() failed: {_describe_import_error(error)}") from error
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidTarget(f"{target.__name__} is an async function; name one that returns an executor at once")
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
                f'there is no module "{missing}" in {sys.executable} (searched from {os.getcwd()})'
            ) from None
        raise InvalidTarget(f"{name} cannot be imported: {_describe_import_error(error)}") from error


def _import_file(name: str) -> ModuleType:
    path = os.path.abspath(name)
    if not os.path.isfile(path):
        raise InvalidTarget(f"there is no file {name}")
    _prepend_search_path(os.path.dirname(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem in sys.modules or not stem.isidentifier():
        stem = f"dragoman_executor_{stem}"
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise InvalidTarget(f"{name} is no Python file")
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
    """Names that may have been meant."""
    names = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and is_executor(value)
    ]
    return f"; there is {', '.join(names[:5])}" if names else ""


def is_executor(value: Any) -> bool:
    """Whether it has what a2a-sdk's AgentExecutor has to have, or fasta2a's Worker."""
    return any(
        all(callable(getattr(value, name, None)) for name in names)
        for names in (("execute", "cancel"), ("run_task", "cancel_task"))
    )


def _describe_import_error(error: BaseException) -> str:
    """The error, and the last line of somebody's file that it came from."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        text += f" in {sys.executable}; --executor-python names another"
    ours = os.path.dirname(os.path.abspath(__file__))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<"))
        and "site-packages" not in frame.filename
        and os.path.dirname(os.__file__) not in frame.filename
    ]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    if not frames:
        return text
    return f"{frames[-1].filename}, line {frames[-1].lineno}: {text}"


CARD_FIELDS = (
    *("name", "description", "version", "iconUrl", "documentationUrl", "provider", "skills"),
    *("defaultInputModes", "defaultOutputModes"),
)
_SKILL_KEYS = ("id", "name", "description", "tags", "examples", "inputModes", "outputModes")
_CLASS_NAME_SUFFIXES = ("AgentExecutor", "AgentWorker", "Executor", "Worker")


def build_registration(id: str, target: Any, card: Mapping[str, Any] | None, extended: Mapping[str, Any] | None) -> Any:
    """An AgentRegistration. `found`: what the target named; the cards: in camelCase, of whatever version."""
    said = {key: card[key] for key in CARD_FIELDS if card and card.get(key)}
    capabilities = (card or {}).get("capabilities") or {}
    told = {"streaming": capabilities.get("streaming") is not False}
    if extensions := capabilities.get("extensions"):
        told["extensions"] = extensions
    said["skills"] = _skills(said.get("skills"))
    named = target if inspect.isclass(target) or inspect.isroutine(target) else type(target)
    said.setdefault("name", display_name(named.__name__) or id)
    # Its own text only: what it inherits is about executors in general.
    text = inspect.cleandoc(vars(named).get("__doc__") or "" if inspect.isclass(named) else named.__doc__ or "")
    said.setdefault("description", text.partition("\n\n")[0].replace("\n", " ") or said["name"])
    made = {"id": id, "card": {**said, "capabilities": told}, "direct": True}
    if extended:
        ids = {skill["id"] for skill in said["skills"]}
        made["extendedSkills"] = [one for one in _skills(extended.get("skills")) if one["id"] not in ids]
    return made


def find_cards(module: ModuleType, executor: Any, kind: type) -> tuple[Any, Any]:
    """The card and the extended card among the values of a kind that a module has, or the executor itself; None for
    what is not there. One whose name says `extended` is that."""
    named = {name: value for name, value in vars(module).items() if isinstance(value, kind)}
    for name in ("agent_card", "card"):
        if isinstance(value := getattr(executor, name, None), kind):
            named = {name: value, **named}
    extended = [value for name, value in named.items() if "extended" in name.lower()]
    public = [value for name, value in named.items() if "extended" not in name.lower()]
    return public[0] if public else None, extended[0] if extended else None


def display_name(name: str) -> str:
    """`HelloWorldAgentExecutor` as people write it: `Hello World`."""
    for suffix in _CLASS_NAME_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
            break
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", name).strip()
    return " ".join(word[:1].upper() + word[1:] for word in split.split())


def _skills(skills: Any) -> list[dict[str, Any]]:
    return [{key: one[key] for key in _SKILL_KEYS if one.get(key)} for one in skills or []]
