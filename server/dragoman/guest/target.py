"""MODULE:NAME, and what it names: an executor, a class of them, or a function that makes one."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class Unusable(Exception):
    """TARGET gives no executor; the text says why."""


def load(target: str) -> tuple[ModuleType, Any]:
    """The module, and what it has under the name. Raises Unusable."""
    module_name, colon, name = target.rpartition(":")
    if not colon or not module_name or not all(part.isidentifier() for part in name.split(".")):
        raise Unusable("must be MODULE:NAME or FILE.py:NAME")
    module = _module(module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise Unusable(f'{module_name} has no "{name}"{_instead(module)}')
        found = getattr(found, part)
    return module, found


def made(found: Any, given: Mapping[str, Any]) -> Any:
    """The executor: what a class or a function gives, called with as much of `given` as it has parameters for; anything
    else is one already. Raises Unusable."""
    if not (inspect.isclass(found) or inspect.isroutine(found)):
        return found
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise Unusable(f"{found.__name__} is abstract: it does not define {missing}")
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name not in given
    ]
    if needed:
        what = "the class" if inspect.isclass(found) else "the function"
        raise Unusable(
            f"{what} {found.__name__} needs arguments that nobody gives it: {', '.join(needed)}; "
            "name a function without arguments that returns an executor, or an executor itself"
        )
    said = {one.name: given[one.name] for one in parameters if one.name in given}
    try:
        value = found(**said)
    except Exception as error:
        raise Unusable(f"{found.__name__}() failed: {_whats_wrong(error)}") from error
    if inspect.iscoroutine(value):
        value.close()
        raise Unusable(f"{found.__name__} is an async function; name one that returns an executor at once")
    return value


def _module(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name or "\\" in name:
        return _from_file(name)
    _search_first(os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise Unusable(
                f'there is no module "{missing}" in {sys.executable} (searched from {os.getcwd()})'
            ) from None
        raise Unusable(f"{name} cannot be imported: {_whats_wrong(error)}") from error


def _from_file(name: str) -> ModuleType:
    path = os.path.abspath(name)
    if not os.path.isfile(path):
        raise Unusable(f"there is no file {name}")
    _search_first(os.path.dirname(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem in sys.modules or not stem.isidentifier():
        stem = f"dragoman_executor_{stem}"
    spec = importlib.util.spec_from_file_location(stem, path)
    if spec is None or spec.loader is None:
        raise Unusable(f"{name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise Unusable(f"{name} cannot be imported: {_whats_wrong(error)}") from error
    return module


def _search_first(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _instead(module: ModuleType) -> str:
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


def _whats_wrong(error: BaseException) -> str:
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
