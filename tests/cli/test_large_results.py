"""Commands on a task whose text and file are above the server's limit of a response: they print and save all of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.server import Server, serving

from dragoman.calling.errors import ServerUnavailable
from dragoman.cli.output import ConsoleOutput
from dragoman.wire.content_links import ContentLink
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

TEXT = "".join(f"{number:07d} {'é' * 32_000}\n" for number in range(6))
FILE = bytes(range(256)) * 1200

AGENTS = """
from dragoman import agent, types

@agent(default=True)
async def streams(turn):
    for number in range(6):
        yield f"{number:07d} " + "é" * 32_000 + "\\n"

@agent(streaming=False)
async def waits(turn):
    for number in range(6):
        yield f"{number:07d} " + "é" * 32_000 + "\\n"

@agent
async def makes(turn):
    return [types.file(bytes(range(256)) * 1200, name="../a.bin", media_type="application/x-a")]
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("large")
    (folder / "agents.py").write_text(AGENTS)
    with serving("agents.py", "--inline-bytes", "1000", cwd=folder) as server:
        yield server


@pytest.mark.parametrize("agent", ["streams", "waits"])
@pytest.mark.parametrize("binding", ["grpc", "rest"])
@pytest.mark.parametrize("how", [(), ("--stream",)])
def test_send_prints_the_complete_text(
    dragoman: Run, large: Server, agent: str, binding: str, how: tuple[str, ...]
) -> None:
    at = large.grpc if binding == "grpc" else large.http
    result = dragoman("send", "x", "--agent", agent, "--server", at, "--binding", binding, *how)
    assert (result.code, result.out == TEXT) == (0, True)


def test_get_and_watch_print_the_complete_text(dragoman: Run, large: Server) -> None:
    task = dragoman("send", "x", "--no-wait", "--server", large.grpc).out.strip()
    assert dragoman("watch", task, "--server", large.grpc).out.endswith(TEXT)
    assert dragoman("get", task, "--server", large.grpc).out.endswith(TEXT)
    shown = json.loads(dragoman("get", task, "--json", "--server", large.grpc).out)
    assert [part == {"text": TEXT} for part in shown["artifacts"][0]["parts"]] == [True]


@pytest.mark.parametrize("how", [(), ("--stream",)])
def test_a_large_file_is_named_and_saved_only_with_the_option(
    dragoman: Run, large: Server, how: tuple[str, ...]
) -> None:
    common = ("x", "--agent", "makes", "--server", large.http, *how)
    assert dragoman("send", *common).out == "[../a.bin, application/x-a; pass --save DIR to write it]\n"
    assert not list(Path.cwd().iterdir())
    for name in ("a.bin", "a-1.bin"):
        saved = dragoman("send", *common, "--save", "here")
        assert saved.out == f"[../a.bin, application/x-a, {len(FILE):,} bytes; written to here/{name}]\n"
        assert Path("here", name).read_bytes() == FILE
    assert len(list(Path("here").iterdir())) == 2


async def test_a_download_that_breaks_leaves_no_file_behind(tmp_path: Path) -> None:
    async def breaks() -> AsyncGenerator[bytes, None]:
        yield b"half"
        raise ServerUnavailable.for_reason("it broke")

    link = ContentLink(pb.Part(url="https://a.example/blobs/x", filename="a.bin"), "https://a.example/blobs/x", None)
    with pytest.raises(ServerUnavailable):
        await ConsoleOutput(tmp_path).receive(link, breaks())
    assert not list(tmp_path.iterdir())
