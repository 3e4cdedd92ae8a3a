"""Exceptions whose classes and causes harm who looks at them."""

from __future__ import annotations

import json
import sys
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import kinds

from dragoman.core import exceptions
from dragoman.core.errors import OutOfMemory, lacks_memory
from dragoman.core.task.failures import task_failure
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

HOSTILE = pytest.mark.parametrize("make", kinds.EXCEPTIONS.values(), ids=kinds.EXCEPTIONS)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@HOSTILE
def test_nothing_of_an_exception_raises_or_takes_long(make: Callable[[], BaseException]) -> None:
    error = raised(make())
    started = time.thread_time()
    found = list(exceptions.walk(error))
    assert found[0] is error
    assert len(found) == len({id(one) for one in found}) <= exceptions.MAX_CAUSES
    assert 1 <= len(exceptions.leaves(error)) <= exceptions.MAX_CAUSES
    assert len(exceptions.describe(error)) <= exceptions.MAX_TEXT_CHARS + exceptions.MAX_NAME_CHARS + 3
    exceptions.describe(error).encode()
    text = exceptions.format_traceback(error)
    assert len(text) <= exceptions.MAX_TRACEBACK_CHARS + 1
    text.encode()
    failure = task_failure(wk.Failure(**exceptions.failure_fields(error)).SerializeToString(), b"", "agent", 1)
    assert len(failure.data) <= 40_000
    lacks_memory(error)
    assert time.thread_time() - started < 1


def fail_three_times() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise ValueError("second") from first
    except ValueError:
        raise TypeError("third")  # noqa: B904  # the context is what is tested


def fail_without_context() -> None:
    try:
        raise KeyError("hidden")
    except KeyError:
        raise ValueError("shown") from None


def caught(function: Callable[[], None]) -> BaseException:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError


def test_a_traceback_reads_as_python_prints_it() -> None:
    error = caught(fail_three_times)
    error.add_note("a note")
    assert exceptions.format_traceback(error) == "".join(traceback.format_exception(error)).rstrip()


def test_the_exceptions_of_a_group_follow_it() -> None:
    error = BaseExceptionGroup("two", [raised(KeyError("k")), ExceptionGroup("one", [ValueError("v")])])
    text = exceptions.format_traceback(raised(error))
    for line in ("ExceptionGroup: two (2 sub-exceptions)", "  | KeyError: 'k'", "  |   | ValueError: v"):
        assert f"\n{line}" in text
    assert [exceptions.describe(one) for one in exceptions.leaves(error)] == ["KeyError: 'k'", "ValueError: v"]


def test_hidden_frames_are_left_out_where_others_remain() -> None:
    error = raised(ValueError("x"))
    assert __file__ in exceptions.format_traceback(error, lambda file: file == __file__)
    assert exceptions.format_traceback(error, lambda file: file == __file__, hides_all=True) == "ValueError: x"


def test_a_suppressed_context_is_not_shown() -> None:
    error = caught(fail_without_context)
    assert "hidden" not in exceptions.format_traceback(error)
    assert len(list(exceptions.walk(error))) == 2  # but a lack of memory is found


def test_an_exception_that_is_raised_again_and_again_is_read_with_a_bound() -> None:
    error = ValueError("same")
    for _ in range(50_000):
        raised(error)
    assert len(list(exceptions.stack_of(error))) == exceptions.MAX_TRACEBACK_ENTRIES
    assert exceptions.format_traceback(error).endswith("ValueError: same")


def test_a_class_that_lies_is_taken_for_what_it_is() -> None:
    assert isinstance(kinds.LyingClass(), MemoryError)
    assert not exceptions.is_a(kinds.LyingClass(), MemoryError)
    assert not lacks_memory(kinds.LyingClass())


def test_a_lack_of_memory_is_found_among_causes_and_in_groups() -> None:
    inner = ValueError("x")
    inner.__context__ = MemoryError()
    assert lacks_memory(ExceptionGroup("group", [KeyError(), inner]))
    assert lacks_memory(RuntimeError("can't start new thread"))
    assert lacks_memory(OutOfMemory())
    assert not lacks_memory(kinds.ring())


def test_an_unreadable_text_says_why() -> None:
    assert exceptions.describe(kinds.NoText()) == "NoText: its text is unknown: __str__ failed with RuntimeError"
    assert exceptions.describe(kinds.EvilText()) == "EvilText: text"
    assert exceptions.describe(ValueError()) == "ValueError"
    assert exceptions.text_of(ValueError("x" * 10), 4) == "xxxx…"
    assert exceptions.text_of(ValueError("\ud800")) == "\\ud800"


def test_an_exception_without_frames_does_not_keep_their_values() -> None:
    class Large:
        pass

    def fail() -> None:
        value = Large()
        held.append(weakref.ref(value))
        raise ValueError

    held: list[weakref.ref[Large]] = []
    kept: list[ValueError] = []
    try:
        fail()
    except ValueError as error:
        kept.append(error)
    assert held[0]() is not None
    exceptions.forget_frames(kept[0])
    assert held[0]() is None


def _price(order: str) -> int:
    return int(order)


def test_the_fields_of_a_failure_are_its_class_text_authors_frames_and_causes() -> None:
    try:
        try:
            _price("seven")
        except ValueError as cause:
            raise LookupError("no price") from cause
    except LookupError as caught:
        error = caught
    fields = exceptions.failure_fields(error)
    assert (fields["type"], fields["text"], fields["step"]) == ("LookupError", "no price", "")
    assert fields["causes"] == ["ValueError: invalid literal for int() with base 10: 'seven'"]
    (frame,) = fields["frames"]
    assert frame["code"] == 'raise LookupError("no price") from cause'
    assert (frame["file"], frame["function"]) == (
        __file__,
        test_the_fields_of_a_failure_are_its_class_text_authors_frames_and_causes.__name__,
    )


def test_the_fields_of_a_group_in_groups_are_those_of_its_first_leaf_with_the_others_as_causes() -> None:
    def failed(number: int) -> ValueError:
        try:
            _price(f"item {number}")
        except ValueError as error:
            return error
        raise AssertionError

    inner = [ExceptionGroup(f"inner {number}", [failed(number)]) for number in range(100)]
    outer = raised(ExceptionGroup("outer", [ExceptionGroup("middle", inner), KeyError("last")]))
    fields = exceptions.failure_fields(outer)
    text = "invalid literal for int() with base 10: 'item {}'"
    assert (fields["type"], fields["text"]) == ("ValueError", text.format(0))
    assert fields["causes"] == [f"ValueError: {text.format(number)}" for number in range(1, 5)]
    assert fields["frames"][-1]["function"] == "_price"
    assert exceptions.failure_fields(exceptions.leaves(outer)[0], outer) == fields
    caused = raised(RuntimeError("one task"))
    caused.__cause__ = outer
    assert exceptions.failure_fields(caused)["causes"] == [f"ValueError: {text.format(number)}" for number in range(4)]
    assert exceptions.describe_leaf(ExceptionGroup("a", [ExceptionGroup("b", [KeyError("k")])])) == "KeyError: 'k'"
    assert exceptions.describe_leaf(outer).endswith("'item 0' (and 63+ more)"), "counted up to a limit"
    some = ExceptionGroup("some", [OSError("down"), *(OSError("down") for _ in range(5)), KeyError("k")])
    assert exceptions.describe_leaf(some) == "OSError: down (and 6 more)"
    assert exceptions.failure_fields(some)["causes"] == ["OSError: down", "KeyError: 'k'"]


def test_frames_of_ours_and_of_libraries_are_left_out(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages" / "shop"
    installed.mkdir(parents=True)
    agent, library = installed / "agent.py", tmp_path / "site-packages" / "requests.py"
    for file, text in ((library, "def get(call): call()"), (agent, "def pay(call, get): get(call)")):
        file.write_text(text)
    names: dict[str, Any] = {}
    for file in (library, agent):
        exec(compile(file.read_text(), str(file), "exec"), names)

    def functions(own_file: str) -> list[str]:
        try:
            names["pay"](lambda: json.loads("{"), names["get"])
        except ValueError as error:
            return [frame["function"] for frame in exceptions.failure_fields(error, None, own_file)["frames"]]
        raise AssertionError

    assert functions("")[1:] == ["<lambda>"]
    assert functions(str(agent))[1:] == ["pay", "<lambda>"]
    rejected = raised_within(lambda: exceptions.is_a(ValueError(), 7))  # type: ignore[arg-type]
    assert [frame["function"] for frame in exceptions.failure_fields(rejected)["frames"]] == [
        "raised_within",
        "<lambda>",
    ]


def raised_within(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError


def test_the_step_that_an_exception_ended_is_noted_with_it() -> None:
    error = ValueError("x")
    exceptions.note_step(error, "book a room")
    assert exceptions.failure_fields(RuntimeError("y"), error)["step"] == "book a room"


@pytest.mark.parametrize(
    ("file", "function"), [("/caf\udce9/shop.py", "pay"), ("a\0b", "pay"), ("shop.py", "p\ud800y")]
)
def test_names_that_no_text_may_have_are_in_no_traceback_and_in_no_failure(file: str, function: str) -> None:
    def pay() -> None:
        raise ValueError("no money")

    pay.__code__ = pay.__code__.replace(co_filename=file, co_name=function)
    tracer = sys.gettrace()
    sys.settrace(None)  # that of a coverage run would raise another error for such a file
    error = raised_within(pay)
    sys.settrace(tracer)
    text = exceptions.format_traceback(error)
    assert text.endswith("ValueError: no money")
    text.encode()
    wk.Failure(**exceptions.failure_fields(error)).SerializeToString()


def test_a_step_is_noted_with_an_exception_whose_attributes_raise() -> None:
    class Attributes(dict[str, object]):
        def __setitem__(self, key: str, value: object) -> None:
            raise RuntimeError(key)

    error = ValueError("no money")
    error.__dict__ = Attributes()
    exceptions.note_step(error, "pay")
    assert exceptions.failure_fields(error)["step"] == "pay"
