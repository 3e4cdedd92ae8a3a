"""Loads APP, a `.py` file or a module.

Errors in APP are reported with its file and line, and without a traceback of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dragoman.agents.functions.declaration import agents_in
from dragoman.agents.functions.runner import DeclaredAgent
from dragoman.agents.functions.startup import StartupHook, startup_hooks_in
from dragoman.core.exceptions import describe, is_a, stack_of
from dragoman.core.names import nearest
from dragoman.ports import Agent
from dragoman.settings.extensions import used_sources
from dragoman.settings.settings import Settings
from dragoman.wiring.extensions import import_libraries

DECLARE_HINT: Final = """\
    from dragoman import agent, Turn

    @agent(name="Echo", description="Says it back")
    async def echo(turn: Turn) -> str:
        return turn.text"""


class LoadError(Exception):
    """APP cannot be loaded; the text names the reason, the file and the line."""


@dataclass(frozen=True, slots=True)
class LoadedApp:
    """Declarations of an APP, in source order."""

    agents: Sequence[Agent] = ()
    startup_hooks: Sequence[StartupHook[..., Any]] = ()  # also those that its module imports


def load_app(app: str) -> LoadedApp:
    """Loads what APP declares; nothing for an empty APP. Raises LoadError."""
    return app_of(load_module(app), app) if app else LoadedApp()


def app_of(module: ModuleType, app: str) -> LoadedApp:
    """The declarations of a module. `app`: its name in errors. Raises LoadError."""
    if not any(isinstance(value, DeclaredAgent) for value in vars(module).values()):
        raise LoadError(f"{app}: declares no agent. An agent is a function with @agent:\n\n{DECLARE_HINT}")
    try:
        return LoadedApp(agents_in(module), startup_hooks_in(module))
    except ValueError as error:
        raise LoadError(f"{app}: {error}") from error


def load_own_app(settings: Settings) -> LoadedApp:
    """The agents of a server's own APP. Raises LoadError.

    The folder of APP is searched first from then on: see `import_libraries`.
    """
    import_libraries(used_sources(settings.extensions, settings.agents.app))
    return load_app(settings.own_app)


def load_module(app: str) -> ModuleType:
    """Imports APP the way Python would run it. Raises LoadError.

    Imports in it search first its own directory (a file) or the working directory (a module).
    """
    return _load_file(app) if _is_path(app) else _load_name(app)


def _is_path(app: str) -> bool:
    return app.endswith(".py") or app.startswith(".") or "/" in app or "\\" in app


def source_directory(app: str) -> Path | None:
    """The directory of APP; None for a module that cannot be found."""
    if _is_path(app):
        path = Path(app).absolute()
        return path if path.is_dir() else path.parent
    _search_first(Path.cwd())
    try:
        spec = importlib.util.find_spec(app)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).absolute().parent if spec and spec.origin else None


def _load_file(app: str) -> ModuleType:
    path = Path(app).absolute()
    if path.is_dir():
        files = sorted(Path(app).glob("*.py"), key=lambda file: (file.name != "agents.py", file.name))
        example = f", such as {files[0]}" if files else ""
        raise LoadError(f"{app} is a folder; pass a .py file in it{example}")
    if not path.is_file():
        near = nearest(path.name, [file.name for file in path.parent.glob("*.py")])
        advice = f"; did you mean {near}?" if near else ""
        raise LoadError(f"{app}: this file does not exist{advice} (APP is a .py file or the name of a module)")
    _search_first(path.parent)
    name = path.stem
    if name in sys.modules or not name.isidentifier():
        name = f"dragoman_app_{name}"  # never shadows a module that is already imported
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{app}: is not a Python file (APP is a .py file or the name of a module)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a module up during its import
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise LoadError(_describe_error(app, error)) from error
    return module


def _load_name(app: str) -> ModuleType:
    _search_first(Path.cwd())
    try:
        return importlib.import_module(app)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and (app == missing or app.startswith(f"{missing}.")):
            raise LoadError(
                f'{app}: module "{missing}" does not exist (APP is a .py file or the name of a module)'
            ) from error
        raise LoadError(_describe_error(app, error)) from error


def _search_first(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _describe_error(app: str, error: BaseException) -> str:
    """Formats an error as `FILE, line N: Error: text`, with the source line."""
    description = describe(error)
    if is_a(error, SyntaxError) and error.filename and error.lineno:
        file, line, description = error.filename, error.lineno, f"{type(error).__name__}: {error.msg}"
    elif location := _author_line(app, error):
        file, line = location
    else:
        return f"{app}: {description}"
    source, path = linecache.getline(file, line).strip(), Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else file
    return f"{shown}, line {line}: {description}" + (f"\n    {source}" if source else "")


_INSTALLED_PREFIXES: Final = tuple(
    f"{Path(folder).resolve().as_posix()}/"
    for folder in (
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[1]),
    )
)


def _author_line(app: str, error: BaseException) -> tuple[str, int] | None:
    """File and line of the innermost frame in the author's code: APP, or code that is not installed."""
    package = Path(app).name.partition(".")[0]
    own, installed = None, None
    for frame, line in stack_of(error):
        file = frame.f_code.co_filename
        if file.startswith("<"):
            continue
        if not Path(file).resolve().as_posix().startswith(_INSTALLED_PREFIXES):
            own = file, line
        elif frame.f_globals.get("__name__", "").partition(".")[0] == package:
            installed = file, line
    return own or installed
