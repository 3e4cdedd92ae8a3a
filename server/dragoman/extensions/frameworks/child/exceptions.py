"""The functions of `core/exceptions.py`, loaded from its file.

The package's own import path does not exist here: the executor's environment may have another Dragoman, or none. That
file imports nothing but the standard library.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any


def _load() -> Any:
    here = os.path.dirname(os.path.abspath(__file__))
    file = os.path.normpath(os.path.join(here, "..", "..", "..", "core", "exceptions.py"))
    spec = importlib.util.spec_from_file_location(f"{__package__}.core_exceptions", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_functions = _load()

is_a: Callable[..., bool] = _functions.is_a
name_of: Callable[[BaseException], str] = _functions.name_of
text_of: Callable[..., str] = _functions.text_of
describe_leaf: Callable[..., str] = _functions.describe_leaf
describe: Callable[..., str] = _functions.describe
leaves: Callable[[BaseException], list[BaseException]] = _functions.leaves
stack_of: Callable[[BaseException], Any] = _functions.stack_of
format_traceback: Callable[..., str] = _functions.format_traceback
ERROR_ID_BYTES: int = _functions.ERROR_ID_BYTES
generic_error_text: Callable[[str], str] = _functions.generic_error_text
failure_fields: Callable[..., dict[str, Any]] = _functions.failure_fields
note_step: Callable[[BaseException, str], None] = _functions.note_step
