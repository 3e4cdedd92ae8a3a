"""A store that is damaged, read-only, full, locked, or of another version: clear errors, and nothing lost."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from tests.conftest import timings
from tests.eventually import eventually
from tests.runtime.harness import open_harness, state

from dragoman import Turn, agent
from dragoman.core.durations import Backoff
from dragoman.core.errors import Unavailable
from dragoman.core.names import Owner, task_id_of
from dragoman.core.push.configuration import PushConfig
from dragoman.core.task.log import Appended
from dragoman.ports.extension import StartError
from dragoman.settings.settings import Settings
from dragoman.stores.shared.errors import StoreFault, Verdict
from dragoman.stores.sqlite import SqliteStore, open_store, schema
from dragoman.stores.sqlite.errors import ERROR_TABLE, explain, failure_of, row_of
from dragoman.testing.fixtures import artifact, created, finished, new_ref
from dragoman.wiring.app import open_app


@agent
async def echo(turn: Turn) -> str:
    return turn.text


@pytest.fixture
async def filled(tmp_path: Path) -> Path:
    """A store with some tasks in it, closed."""
    store = open_store(tmp_path / "t.db")
    for _ in range(50):
        await finished(store, artifact("a", "x" * 3000))
    await store.close()
    return tmp_path / "t.db"


async def refusal(path: Path) -> str:
    """The error of `serve` with this store."""
    settings = Settings(store=f"sqlite:///{path}", http="127.0.0.1:0", grpc="127.0.0.1:0")
    with pytest.raises(StartError) as caught:
        async with open_app(settings, [echo]):
            pass
    return str(caught.value)


# At the start ------------------------------------------------------------------------------------------------------


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            half,
            "the file is damaged; move it away with the files beside it that begin with its name, and restore a backup",
        ),
        (lambda content: content[:4096], "the file is damaged"),
        (lambda content: content[:50], "the file is damaged"),
        (lambda content: b"garbage " * 1000, "the file is not a SQLite database"),
        (lambda content: b"\0" * 4096 + content[4096:], "the file is not a SQLite database"),
    ],
)
async def test_a_damaged_file_is_reported_and_left_unchanged(
    filled: Path, spoil: Callable[[bytes], bytes], expected: str
) -> None:
    spoiled = spoil(filled.read_bytes())
    filled.write_bytes(spoiled)
    message = await refusal(filled)
    assert message.startswith(f"the store {filled} cannot be opened: ")
    assert expected in message
    assert filled.read_bytes() == spoiled


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("tasks", name) for name in ("id", "agent", "context", "principal", "dialect")),
        *(("pushes", name) for name in ("url", "token")),
        ("owners", "principal"),
    ],
)
async def test_a_damaged_record_is_named_and_all_others_are_served(
    tmp_path: Path, table: str, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.db"
    store = open_store(path)
    session = await store.open_session(10)
    damaged, interrupted = new_ref(Owner("default", "eve")), new_ref(Owner("default", "anonymous"))
    config = PushConfig(id="c", url="http://127.0.0.1:9999/", dialect="1.0")
    await store.append(replace(created(damaged, agent="echo", claim=session), push_config=config))
    await store.append(created(interrupted, agent="echo", claim=session))
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        where = "principal = 'eve'" if table == "owners" else f"task = x'{damaged.key.hex()}'"
        connection.execute(f"UPDATE {table} SET {column} = CAST(x'66ff80fe' AS TEXT) WHERE {where}")
        connection.commit()
    settings = Settings(store=f"sqlite:///{path}", http="127.0.0.1:0", grpc="127.0.0.1:0")
    async with (
        open_app(settings, [echo]) as app,
        aiohttp.ClientSession(f"http://{app.http}", timeout=aiohttp.ClientTimeout(15)) as http,
    ):
        for id in (task_id_of(interrupted.key), await sent(http)):
            async with http.get(f"/tasks/{id}") as response:
                task = await response.json()
            assert task["status"]["state"] in ("TASK_STATE_FAILED", "TASK_STATE_COMPLETED")
        if table == "pushes":  # found when it is due
            await eventually(lambda: "is damaged" in caplog.text)
    (line,) = [text for record in caplog.records if "the text is damaged" in (text := record.getMessage())]
    assert line.startswith(f"{path}: table {table}, column {column}")
    assert f"task {task_id_of(damaged.key)}" in line or table == "owners"
    assert "dragoman restore" in line
    assert "dragoman purge" in line
    assert not [record for record in caplog.records if record.exc_info]


async def sent(http: aiohttp.ClientSession) -> str:
    """The id of a new task."""
    call = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    async with http.post("/message:send", json=call) as response:
        return str((await response.json())["task"]["id"])


async def test_a_newer_schema_is_reported_with_both_versions(filled: Path) -> None:
    connection = sqlite3.connect(filled)
    connection.execute("PRAGMA user_version = 99")
    connection.execute("UPDATE meta SET value = '99' WHERE name = 'oldest'")
    connection.commit()
    connection.close()
    assert "the store has schema 99; this version of Dragoman knows up to " in await refusal(filled)


async def test_a_file_locked_by_another_program_is_reported(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **how: connect(*given, **{**how, "timeout": 0.01}))
    other = connect(filled, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "another program has locked the file" in await refusal(filled)
    other.close()
    await open_store(filled).close()


async def test_a_store_that_opens_but_rejects_writes_is_reported(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate = schema.migrate

    def then_full(connection: sqlite3.Connection) -> None:
        migrate(connection)
        connection.execute("PRAGMA query_only = ON")

    monkeypatch.setattr("dragoman.stores.sqlite.store.migrate", then_full)
    message = await refusal(filled)
    assert message.startswith(f"the store {filled} cannot be opened: attempt to write a readonly database: ")


@pytest.fixture
def powerless(filled: Path) -> Iterator[Path]:
    """The same store where an ordinary user can reach it, with this process as such a user."""
    schema.migrations()  # that user may not be able to read them
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    path = folder / "t.db"
    shutil.copyfile(filled, path)
    (folder / "t.db-lock").touch()
    (folder / "t.db-lock").chmod(0o666)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        yield path
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o777)
        shutil.rmtree(folder)


def as_owner(action: Callable[[], object]) -> None:
    """Runs as the owner of the file."""
    mine = os.geteuid()
    os.seteuid(os.getuid())
    try:
        action()
    finally:
        os.seteuid(mine)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="files have no owners here")
async def test_an_unwritable_file_is_reported(powerless: Path) -> None:
    as_owner(lambda: powerless.chmod(0o444))
    assert "this user may not open the file; check the owner and permissions" in await refusal(powerless)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="files have no owners here")
async def test_an_unreadable_file_is_reported(powerless: Path) -> None:
    as_owner(lambda: powerless.chmod(0o000))
    assert "this user may not open the file; check the owner and permissions" in await refusal(powerless)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="files have no owners here")
async def test_an_unwritable_folder_is_reported(powerless: Path) -> None:
    as_owner((powerless.parent / "t.db-lock").unlink)
    as_owner(lambda: powerless.parent.chmod(0o555))
    assert (
        "this user may not open the file; check the owner and permissions of the file and its folder"
        in await refusal(powerless)
    )


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="files have no owners here")
async def test_a_new_store_in_an_unwritable_folder_is_reported(powerless: Path) -> None:
    as_owner(lambda: powerless.parent.chmod(0o555))
    text = await refusal(powerless.with_name("new.db"))
    assert "this user may not open the file; check the owner and permissions of the file and its folder" in text


async def test_a_folder_that_is_missing_or_none_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    missing, none = await refusal(tmp_path / "no" / "new.db"), await refusal(tmp_path / "file" / "new.db")
    assert missing == f"--store: folder {tmp_path}/no does not exist; create it, or choose another"
    assert none.endswith("a part of the path is a file; choose another folder")


def test_a_read_only_file_system_is_explained() -> None:
    assert "its file system is read-only; mount it" in explain(OSError(errno.EROFS, "Read-only file system", "x.db"))


# While it is served ------------------------------------------------------------------------------------------------


async def fill_up(store: SqliteStore) -> list[Appended]:
    """Fills the store, and returns what was acknowledged until then."""
    await set_pages(store, 120)
    kept: list[Appended] = []
    while True:
        try:
            kept.append(await store.append(created(new_ref(), text="x" * 3000)))
        except Unavailable:
            return kept


async def set_pages(store: SqliteStore, pages: int) -> None:
    await store.writer.submit(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB])
def test_nothing_is_promised_of_a_damaged_store(code: int) -> None:
    error = sqlite3.DatabaseError("damaged")
    error.sqlite_errorcode = code
    assert str(failure_of(error)) == (
        "the store is damaged; some of what it has acknowledged may be lost, this request was not done"
    )


async def test_a_full_store_rejects_writes_and_loses_none(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    kept = await fill_up(store)
    assert len(kept) > 5
    late = await asyncio.gather(
        *(store.append(created(new_ref(), text="x" * 30_000)) for _ in range(5)), return_exceptions=True
    )
    assert {str(one) for one in late} == {
        "the store is full; what it has acknowledged is safe, this request was not done"
    }
    assert all([await store.read(one.record.ref) for one in kept])  # it still responds
    await set_pages(store, 1_000_000)
    more = await store.append(created(new_ref()))
    await store.close()
    store = open_store(tmp_path / "t.db")
    assert len(await store.last_sequences([one.record.ref for one in (*kept, more)])) == len(kept) + 1
    await store.close()
    connection = sqlite3.connect(tmp_path / "t.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def test_the_result_of_a_run_waits_for_disk_space(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path / "t.db")

    async def works(turn: Turn) -> str:
        here.at("working").set()
        await here.at("go").wait()
        return "the result" * 10_000  # more than a store has left that is full for tasks of 3 KB

    async with open_harness(tmp_path, works, store=store, timings=timings(store_retry=Backoff(0.01, 0.02))) as here:
        task = await here.start()
        await here.at("working").wait()
        async with asyncio.timeout(60):
            while state(await here.get(task.id)) != "WORKING":  # noqa: ASYNC110 - written before the store is full
                await asyncio.sleep(0.005)
        await fill_up(store)
        failed = store.commit_counters.failed_batches
        here.at("go").set()
        await eventually(lambda: store.commit_counters.failed_batches > failed + 4)  # it was retried
        assert caplog.text.count("the end of a turn waits for the store") == 1
        assert state(await here.get(task.id)) == "WORKING"
        await set_pages(store, 1_000_000)
        ended = await here.ended(task.id)
        assert (state(ended), ended.artifacts[0].parts[0].text) == ("COMPLETED", "the result" * 10_000)


RESULT_CODES: Final[Mapping[str, int]] = {
    name: value
    for name, value in vars(sqlite3).items()
    if name.startswith("SQLITE_") and not name.startswith(("SQLITE_DBCONFIG_", "SQLITE_LIMIT_"))
}
"""With the actions of authorizers, which are small numbers."""


def test_every_result_code_has_a_row() -> None:
    """Primary ones are numbered without gaps; extended ones have their primary code in the lowest byte."""
    primary = {*range(sqlite3.SQLITE_WARNING + 1), sqlite3.SQLITE_ROW, sqlite3.SQLITE_DONE}
    assert primary == {code for code in ERROR_TABLE if code < 0x100}
    extended = {value for name, value in RESULT_CODES.items() if value >= 0x100}
    assert {code & 0xFF for code in extended} <= primary
    assert {code for code in ERROR_TABLE if code >= 0x100} <= extended


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Verdict.REPEAT),
        (sqlite3.SQLITE_INTERRUPT, Verdict.REPEAT),
        (sqlite3.SQLITE_BUSY_TIMEOUT, Verdict.BLOCKED),
        (sqlite3.SQLITE_LOCKED_SHAREDCACHE, Verdict.BLOCKED),
        (sqlite3.SQLITE_PROTOCOL, Verdict.BLOCKED),
        (sqlite3.SQLITE_IOERR_FSYNC, Verdict.REFUSED),
        (sqlite3.SQLITE_READONLY_DBMOVED, Verdict.REFUSED),
        (sqlite3.SQLITE_FULL, Verdict.REFUSED),
        (sqlite3.SQLITE_CORRUPT_INDEX, Verdict.REFUSED),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, Verdict.FAULT),
        (sqlite3.SQLITE_ERROR, Verdict.FAULT),
        (sqlite3.SQLITE_MISUSE, Verdict.FAULT),
        (0xFE, Verdict.FAULT),  # of a later release
        (None, Verdict.FAULT),  # of the driver, such as one about a closed connection
    ],
)
def test_an_error_is_repeated_or_unavailable_or_a_fault(code: int | None, verdict: Verdict) -> None:
    error = sqlite3.DatabaseError("the database's text")
    if code is not None:
        error.sqlite_errorcode = code
    assert row_of(error).verdict is verdict
    failure = failure_of(error)
    assert isinstance(failure, StoreFault if verdict is Verdict.FAULT else Unavailable)
    assert failure.__cause__ is error  # and, by its type, another one
    assert "the database's text" not in str(failure)


async def test_a_read_that_was_interrupted_is_repeated_once(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    attempts: list[int] = []

    def interrupted(connection: sqlite3.Connection, times: int) -> str:
        attempts.append(times)
        if len(attempts) <= times:
            error = sqlite3.OperationalError("interrupted")
            error.sqlite_errorcode = sqlite3.SQLITE_INTERRUPT
            raise error
        return "read"

    assert await store._read(interrupted, 1) == "read"
    attempts.clear()
    with pytest.raises(Unavailable, match="was interrupted"):
        await store._read(interrupted, 2)
    await store.close()


async def test_a_read_with_an_unknown_error_is_a_fault_with_a_cause_of_its_own(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t.db")
    with pytest.raises(StoreFault) as caught:
        await store._read(lambda connection: connection.execute("SELECT nothing FROM nowhere"))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert caught.value.__cause__.__cause__ is None
    await store.close()


def test_other_errors_are_not_mapped() -> None:
    assert explain(ValueError("x")) == "x"
    assert explain(sqlite3.IntegrityError("UNIQUE constraint failed")) == "UNIQUE constraint failed"


def test_an_input_or_output_error_is_explained_with_its_extended_code() -> None:
    """A full disk may be one: SQLite cannot tell when it fails to extend the index of its log."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_SHMSIZE, "SQLITE_IOERR_SHMSIZE"
    assert explain(error).startswith(
        "disk I/O error (SQLITE_IOERR_SHMSIZE): the disk fails to read or write, or is full"
    )
