"""Backs up a store while it is in use, and restores one from a backup.

A backup is one snapshot of the store: one read transaction from start to end, so writers continue and nothing is
copied twice. It is a folder: `tasks.db`, `blobs/` when the store has blobs, and the manifest `backup.json`. It is
written under a temporary name and renamed once its integrity was checked.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import secrets
import shutil
import sqlite3
import stat
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from dragoman.core.errors import InvalidParams
from dragoman.core.task.blob_references import BLOB_NAME
from dragoman.ports import BackupProgress
from dragoman.stores.shared.tables import KEY_VALUE_NAME
from dragoman.stores.sqlite.cold.blobs import BlobFiles, fsync, renew_secret
from dragoman.stores.sqlite.hot import DEFAULT_TIMINGS
from dragoman.stores.sqlite.schema import check_version, connect, create_private_file

BACKUP_DATABASE: Final = "tasks.db"
BACKUP_BLOBS: Final = "blobs"
BACKUP_MANIFEST: Final = "backup.json"
BACKUP_FORMAT: Final = 1
RESTORING: Final = ".restoring"
"""A file among restored blobs until their database has its name: a restore that was killed between left them."""


class DatabaseDamaged(Exception):
    """SQLite's integrity check found a problem in a database."""


class _BackupStopped(Exception):
    """The caller no longer waits for the backup."""


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Counts of a restored store."""

    tasks: int
    running: int  # tasks that were running in the backup: they end as FAILED at the next start
    copied_at: int  # when the backup was taken, in milliseconds since the epoch; 0 when unknown
    epoch: str
    previous_epoch: str  # the epoch of the store that was backed up
    pushes: int = 0  # push configurations that continue from their cursor in the backup
    missing_blobs: int = 0  # large parts whose files the backup does not have: readers get a link without content


def blob_folder(store: Path) -> Path:
    """The folder of a store's blobs: parts too large for a row."""
    return store.with_name(f"{store.name}.blobs")


async def backup(
    store: Path,
    destination: Path,
    clock: Callable[[], int],
    source: sqlite3.Connection | None = None,
    step_pages: int = DEFAULT_TIMINGS.backup_pages,
) -> AsyncGenerator[BackupProgress, None]:
    """See `dragoman.ports.Store.backup`.

    source: an open connection to copy from; without it `store` is opened. step_pages: pages copied at a time.
    """
    loop = asyncio.get_running_loop()
    reports: asyncio.Queue[BackupProgress | None] = asyncio.Queue()
    stopped = False

    def report(progress: BackupProgress) -> None:
        if stopped:
            raise _BackupStopped
        loop.call_soon_threadsafe(reports.put_nowait, progress)

    with ThreadPoolExecutor(1, "dragoman-backup") as thread:
        work = loop.run_in_executor(thread, write_backup, store, destination, report, clock, source, step_pages)
        work.add_done_callback(lambda _: reports.put_nowait(None))
        try:
            while (progress := await reports.get()) is not None:
                yield progress
            await work
        finally:
            stopped = True
            with suppress(Exception):  # raised above, if the caller is still waiting
                await asyncio.shield(work)


def write_backup(
    store: Path,
    destination: Path,
    report_progress: Callable[[BackupProgress], None],
    clock: Callable[[], int],
    open_source: sqlite3.Connection | None = None,
    step_pages: int = DEFAULT_TIMINGS.backup_pages,
) -> None:
    """Copies the store to a new folder. Blocks. Exceptions of `report_progress` stop it and are raised."""
    if not destination.is_absolute():
        folder = store.with_name(f"{store.name}.backups")
        folder.mkdir(mode=0o700, exist_ok=True)
        destination = folder / destination
    partial = _create_partial(destination)
    with _written(partial, "destination"), _snapshot(store, open_source) as source:
        (epoch,) = source.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        copied_at = clock()
        # First: an erasure may remove files at any moment, and the snapshot protects rows only.
        _link_or_copy(blob_folder(store), partial / BACKUP_BLOBS)
        size = source.execute("PRAGMA page_size").fetchone()[0]

        def progress(_: int, remaining: int, total: int) -> None:
            report_progress(BackupProgress((total - remaining) * size, total * size))

        # SQLite would create it readable for others; cp and tar take no part in the mode of the folder.
        (partial / BACKUP_DATABASE).touch(0o600)
        with closing(sqlite3.connect(partial / BACKUP_DATABASE, isolation_level=None)) as copy:
            source.backup(copy, pages=step_pages, progress=progress)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            _check_integrity(copy)
            (tasks,) = copy.execute("SELECT count(*) FROM tasks").fetchone()
        manifest = {"format": BACKUP_FORMAT, "taken": copied_at, "epoch": epoch, "tasks": tasks}
        (partial / BACKUP_MANIFEST).touch(0o600)
        (partial / BACKUP_MANIFEST).write_text(json.dumps(manifest) + "\n", "utf-8")
        _fsync(partial)
        partial.rename(destination)
    written = sum(file.stat().st_size for file in destination.rglob("*") if file.is_file())
    report_progress(BackupProgress(written, written, done=True))


@contextmanager
def _snapshot(store: Path, source: sqlite3.Connection | None) -> Iterator[sqlite3.Connection]:
    """A connection in one read transaction: `source`, or a new one to the file at `store`."""
    connection = _open_reader(store) if source is None else source
    try:
        connection.execute("BEGIN")
        yield connection
    finally:
        if source is None:
            connection.close()
        elif connection.in_transaction:
            connection.execute("ROLLBACK")


def restore(source: Path, store: Path, forgotten: Iterable[str] = ()) -> RestoreResult:
    """Creates a store from a backup, with a new epoch, and a new secret: the backup has the old one. Blocks.

    forgotten: the names of key values that the new store does not get.

    Raises InvalidParams when the source is not a backup, or when the store exists or is being restored;
    DatabaseDamaged, SchemaTooNew, sqlite3.Error, OSError.
    """
    database = source / BACKUP_DATABASE if source.is_dir() else source
    if not database.is_file() or (source.is_dir() and database.is_symlink()):
        raise InvalidParams.field("SRC", f"{source} is not a backup: it has no {BACKUP_DATABASE} that is a file")
    marker = blob_folder(store) / RESTORING
    for existing in (store, store.with_name(f"{store.name}-wal"), blob_folder(store)):
        if existing.exists() and not (existing == marker.parent and marker.exists()):
            raise InvalidParams.field("--store", f"{existing} already exists; move it away, or choose another store")
    partial, blobs, journal = (store.with_name(f"{store.name}.partial{end}") for end in ("", ".blobs", "-journal"))
    epoch = secrets.token_hex(4)
    if partial.is_file() and partial.stat().st_nlink > 1:  # a restore that was killed had given the file its name
        partial.unlink()
    create_private_file(partial)
    with _written(partial, "--store", blobs, journal):  # SQLite would apply a journal that was left
        if marker.exists() and not store.exists():
            _remove(marker.parent)
        shutil.copyfile(database, partial)
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            _check_integrity(copy)
            check_version(copy)
            if code := copy.execute("SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view')").fetchone():
                raise InvalidParams.field("SRC", f"{database} has code of somebody else: the trigger or view {code[0]}")
            (previous_epoch,) = copy.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
            copy.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
            renew_secret(copy)
            copy.executemany("DELETE FROM meta WHERE name = ?", ((KEY_VALUE_NAME.format(name),) for name in forgotten))
            (tasks,) = copy.execute("SELECT count(*) FROM tasks").fetchone()
            (running,) = copy.execute("SELECT count(*) FROM tasks WHERE session > 0").fetchone()
            (pushes,) = copy.execute("SELECT count(*) FROM pushes WHERE state = 0").fetchone()
        _copy_blobs(source / BACKUP_BLOBS, blobs)
        missing = missing_blobs(partial, blobs)
        _fsync(partial)
        if blobs.exists():
            (blobs / RESTORING).touch()
            blobs.rename(marker.parent)
        try:
            _rename_to_new(partial, store)
        except OSError:
            if not store.exists():  # created by a server meanwhile, which has its blobs there
                _remove(marker.parent)
            raise
        marker.unlink(missing_ok=True)
        _fsync(store.parent)
    taken = _read_manifest(source).get("taken", 0)
    return RestoreResult(tasks, running, taken, epoch, previous_epoch, pushes, missing)


def missing_blobs(database: Path, folder: Path) -> int:
    """The number of blobs in use whose files are not in their folder. Raises sqlite3.Error."""
    files = BlobFiles(folder)
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        digests = connection.execute("SELECT hash FROM blobs WHERE uses > 0")
        return sum(not files.path(digest).exists() for (digest,) in digests)


@contextmanager
def _written(partial: Path, field: str, *beside: Path) -> Iterator[None]:
    """Locks a file or folder while it is written, and removes it and what is beside it at an error.

    Without a lock, it was left by a process that was killed: what is in the folder, and beside it, is removed first.
    Raises InvalidParams while another process, or backup, has the lock.
    """
    try:
        handle = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidParams.field(field, f"{partial} cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidParams.field(field, f"{partial} is being written by another process; wait for it") from None
        try:
            for path in (*beside, *(partial.iterdir() if partial.is_dir() else ())):
                _remove(path)
            yield
        except BaseException:
            for path in (partial, *beside):
                _remove(path)
            raise
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    """Removes a file, or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _rename_to_new(source: Path, destination: Path) -> None:
    """Renames a file unless the destination exists: a server may have created it meanwhile. Raises FileExistsError."""
    try:
        os.link(source, destination)
    except FileExistsError:
        raise
    except OSError:  # this file system has no hard links
        if destination.exists():
            raise FileExistsError(f"{destination} was created meanwhile") from None
        source.rename(destination)
    else:
        source.unlink(missing_ok=True)


def _create_partial(destination: Path) -> Path:
    try:
        exists, has_parent = destination.exists(), destination.parent.is_dir()
    except OSError as error:  # such as a name that is too long
        raise InvalidParams.field("destination", f"is not a path that can be created: {error.strerror}") from error
    if exists:
        raise InvalidParams.field("destination", f"{destination} already exists; choose another folder")
    if not has_parent:
        raise InvalidParams.field("destination", f"the folder {destination.parent} does not exist")
    partial = destination.with_name(f"{destination.name}.partial")
    try:
        partial.mkdir(mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InvalidParams.field("destination", f"{partial} cannot be created: {error}") from error
    return partial


def _open_reader(store: Path) -> sqlite3.Connection:
    """A connection that only reads. Without a running server there may be no shared memory file to read by."""
    reader = connect(store, readonly=True)
    try:
        reader.execute("SELECT 1 FROM meta").fetchone()
        return reader
    except sqlite3.OperationalError:
        reader.close()
        writer = sqlite3.connect(f"{store.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
        writer.execute("PRAGMA query_only = ON")
        return writer


def _check_integrity(connection: sqlite3.Connection) -> None:
    problems = [row[0] for row in connection.execute("PRAGMA quick_check(5)")]
    if problems != ["ok"]:
        raise DatabaseDamaged("; ".join(problems))


def _link_or_copy(source: Path, destination: Path) -> None:
    """Hard-links every file of a folder, or copies it where that is impossible. Blob files never change."""
    if not source.is_dir():
        return
    for file in source.rglob("*"):
        target = destination / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file():
            continue
        try:
            os.link(file, target)
        except FileNotFoundError:  # erased meanwhile
            continue
        except OSError:
            with suppress(FileNotFoundError):
                shutil.copyfile(file, target)


def _copy_blobs(source: Path, destination: Path) -> None:
    """Copies the blobs of a backup, if it has any. Raises InvalidParams for one whose content does not fit its name.

    Copies, no links: who made the backup could change those files later, or let them be links to others of this host.
    """
    folders = [source, *source.glob("*")] if source.is_dir() else []
    for folder in folders:
        if folder.is_symlink():
            raise InvalidParams.field("SRC", f"{folder} is a symbolic link; a backup has folders and files")
    for file in source.glob("*/*"):
        digest = file.parent.name + file.name
        if not BLOB_NAME.fullmatch(digest):  # a file that was being written
            continue
        target = destination / file.relative_to(source)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _copy_hashed(file, target) != digest:
            raise InvalidParams.field(
                "SRC", f"{file} does not have the content of its name; remove it to restore the rest without it"
            )


def _copy_hashed(source: Path, target: Path) -> str:
    """Copies a file and returns the SHA-256 of the copy; empty for what is not a regular file."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return ""
        raise
    digest = sha256()
    with open(handle, "rb") as reading:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writing:
            while chunk := reading.read(1024 * 1024):
                digest.update(chunk)
                writing.write(chunk)
        fsync(target)
    return digest.hexdigest()


def _fsync(path: Path) -> None:
    """Flushes a file, or a folder and its files, to the disk."""
    for entry in (*path.glob("*"), path):
        fsync(entry)


def _read_manifest(source: Path) -> dict[str, Any]:
    try:
        handle = os.open(source / BACKUP_MANIFEST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as reading:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return {}
            manifest = json.loads(reading.read())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
