"""The recipes of docs/explanation/how-a-message-travels.md, followed on a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).parents[2]

HANGS_AFTER: Final = 300  # seconds
LAST_COLUMN: Final = {
    "stores/sqlite": "    status_text    TEXT    NOT NULL,\n",
    "extensions/postgres": '    status_text    text COLLATE "C" NOT NULL,\n',
}
"""A column of `tasks` in the first migration of each store."""


class Copy:
    """A copy of the package and its protos, whose files a recipe changes. `places`: how many it has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.places = 0
        ignored = shutil.ignore_patterns("__pycache__", "console")
        shutil.copytree(ROOT / "server" / "dragoman", root / "dragoman", ignore=ignored)

    def add(self, file: str, after: str, text: str) -> None:
        """Adds text after a line that the file has once. A file of the package, or a proto."""
        path = self._root / ("" if file.startswith("proto/") else "dragoman") / file
        source = path.read_text(encoding="utf-8")
        assert source.count(after) == 1, f"{file}: {after}"
        path.write_text(source.replace(after, after + text), encoding="utf-8")
        self.places += 1

    def add_column(self, name: str) -> None:
        """Adds a text to the tasks of both stores."""
        for store, last in LAST_COLUMN.items():
            self.add(f"{store}/migrations/0001_baseline.sql", last, last.replace("status_text", name))

    def copy_protos(self) -> None:
        """Copies what `buf generate` reads, with the environment of this process."""
        for name in ("proto", "tools", "third_party"):
            shutil.copytree(ROOT / name, self._root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("buf.yaml", "buf.gen.yaml"):
            shutil.copy(ROOT / name, self._root / name)
        (self._root / ".venv").symlink_to(Path(sys.executable).parents[1])

    def generate(self) -> None:
        """Does what `make proto` does to the Python of the protos."""
        subprocess.run([".venv/bin/buf", "generate"], cwd=self._root, check=True, timeout=HANGS_AFTER)

    def run(self, *arguments: str, **variables: str) -> str:
        """What Python prints that imports the copy, with these variables of its environment."""
        paths = os.pathsep.join((str(self._root), str(self._root / "gen")))
        environment = {**os.environ, "PYTHONPATH": paths, **variables}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self._root, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=HANGS_AFTER,
        ).stdout  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


PRINTS_A_SETTING: Final = """
from dragoman.settings.settings import load_settings
print(load_settings({}).limits.max_foo, load_settings({"max_foo": "9"}).limits.max_foo)
"""


def test_a_setting_is_added_in_one_place(copy: Copy) -> None:
    title = '    """Sizes, counts and waits."""\n\n    title: ClassVar[str] = "Limits"\n'
    copy.add("settings/groups.py", title, '\n    max_foo: int = setting(7, "N", "Foos of a caller. [7]", ge=1)\n')
    assert "--max-foo" in copy.run("-m", "dragoman", "serve", "--help-all")
    assert copy.run("-c", PRINTS_A_SETTING, DRAGOMAN_MAX_FOO="8") == "8 9\n"  # from the environment, and given
    assert copy.places == 1


STORES_A_TASK: Final = """
import asyncio, sqlite3
from pathlib import Path
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import created, new_ref

async def main():
    store, ref = open_store(Path("tasks.db")), new_ref()
    await store.append(created(ref))
    snapshot = await store.read(ref)
    await store.close()
    print(snapshot.record.mood, *sqlite3.connect("tasks.db").execute("SELECT mood FROM tasks").fetchone())

asyncio.run(main())
"""


def test_a_task_column_is_added_in_the_record_and_each_migration(copy: Copy) -> None:
    summary = '    """The beginning of its first message; empty for tasks of releases that did not store it."""\n'
    copy.add("core/task/log.py", summary, '    mood: str = "calm"\n')
    copy.add_column("mood")
    assert copy.run("-c", STORES_A_TASK) == "calm calm\n"
    assert copy.places == 3


SHOWS_A_TASK: Final = """
import asyncio, json
import aiohttp, grpc
from dragoman import Turn, agent, open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03, a2a_pb2_grpc as v03_grpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as v1, a2a_pb2_grpc as v1_grpc

@agent
def echo(turn: Turn) -> str:
    return turn.text

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}

async def main():
    async with (
        open_app(echo, http="127.0.0.1:0", grpc="127.0.0.1:0", store="sqlite:///tasks.db") as server,
        aiohttp.ClientSession(server.url) as session,
        grpc.aio.insecure_channel(server.grpc) as channel,
    ):
        async def call(version, method, params):
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            async with session.post("/", json=request, headers={"A2A-Version": version}) as response:
                return (await response.json())["result"]

        sent = (await call("1.0", "SendMessage", {"message": MESSAGE}))["task"]
        (listed,) = (await call("1.0", "ListTasks", {}))["tasks"]
        shown = {"sent": sent, "get": await call("1.0", "GetTask", {"id": sent["id"]}), "list": listed}
        for version in ("0.3", "0.1"):
            shown[version] = await call(version, "tasks/get", {"id": sent["id"]})
        print({name: task.get("mood") for name, task in shown.items()})

        stub = v1_grpc.A2AServiceStub(channel)
        message = v1.Message(message_id="n", role=v1.ROLE_USER, parts=[v1.Part(text="hello")])
        request, version = v1.SendMessageRequest(message=message), (("a2a-version", "1.0"),)
        events = [event async for event in stub.SendStreamingMessage(request, metadata=version)]
        task = await stub.GetTask(v1.GetTaskRequest(id=sent["id"]), metadata=version)
        print(events[0].task.mood, task.mood)
        older = v03.GetTaskRequest(name=f"tasks/{sent['id']}")
        task = await v03_grpc.A2AServiceStub(channel).GetTask(older)
        print(task.id == sent["id"], "mood" in str(task))

asyncio.run(main())
"""


def test_a_field_of_a_task_is_added_in_six_places(copy: Copy) -> None:
    copy.copy_protos()
    last = "collide. At most 24 levels deep.\n  google.protobuf.Struct metadata = 6;\n"
    copy.add("proto/lf/a2a/v1/a2a.proto", last, "\n  // How the task began.\n  string mood = 7;\n")
    summary = '    """The beginning of its first message; empty for tasks of releases that did not store it."""\n'
    copy.add("core/task/log.py", summary, '    mood: str = ""\n')
    copy.add_column("mood")
    copy.add("core/task/plan.py", "summary=new.summary,", ' mood="claimed" if change.claim_session else "waits",')
    copy.add("core/task/plan.py", "*rows, frames.submessage(6, metadata)", ", frames.text(7, record.mood)")
    assert copy.places == 6
    copy.generate()
    assert copy.run("-c", SHOWS_A_TASK).splitlines() == [
        "{'sent': 'claimed', 'get': 'claimed', 'list': 'claimed', '0.3': 'claimed', '0.1': 'claimed'}",
        "claimed claimed",
        "True False",  # the protobuf form of 0.3 has no such field
    ]
