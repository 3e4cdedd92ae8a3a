"""Python sessions of pages run with the shown output."""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SESSION: Final = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES: Final = {"transcoder.md": ROOT / "examples" / "transcoder", "protos.md": ROOT}
"""Each page, and its working folder."""


@pytest.fixture
def folder(page: str) -> Iterator[None]:
    """Lets modules of the page's folder be found, and forgets those of the library afterwards."""
    # What grpcio-tools adds to the path when it is first imported stays: it would not add it again.
    sys.path.insert(0, str(PAGES[page]))
    yield
    sys.path.remove(str(PAGES[page]))
    for name in ("library_pb2", "library_pb2_grpc"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", PAGES)
def test_a_python_session_prints_the_shown_output(page: str, folder: None) -> None:
    text = (ROOT / "docs" / "how-to" / page).read_text("utf-8")
    sessions = "\n".join(SESSION.findall(text))  # one session, with words in between
    assert sessions.count(">>>") >= 5
    test = doctest.DocTestParser().get_doctest(sessions, {"__name__": page}, page, page, 0)
    texts: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    failed, tried = runner.run(test, out=texts.append)
    assert not failed, "".join(texts)
    assert tried == sessions.count(">>>")
