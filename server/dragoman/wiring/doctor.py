"""The checks of `dragoman doctor`: everything a start needs, and the tasks of the store.

Changes nothing, except that a store without a running server is opened, and migrated, like at a start, and that a text
is written to the store and removed again. All checks run, also when some fail.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from cryptography import x509

from dragoman.core.access.identity import OPERATOR_GRANT
from dragoman.core.task import states
from dragoman.core.task.log import LogTruncated, TaskRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ids import now_ms
from dragoman.ports import Store
from dragoman.ports.extension import CHECK_EPOCH, StartError
from dragoman.runtime.log import probe_store
from dragoman.settings.extensions import FoundExtension, found_extensions, install_command, used_sources
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.stores.sqlite.cold.backup import blob_folder, missing_blobs
from dragoman.wiring.agent_loader import LoadError, load_own_app
from dragoman.wiring.infra import bind_error, open_bus, open_store, open_tls
from dragoman.wiring.store_lock import StoreFileError, StoreInUseError, hold_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FindingLevel = Literal["ok", "warn", "fail"]

CHECK_TIMEOUT: Final = 5.0  # seconds for a check of something that may not respond
EXPIRY_WARNING_SECONDS: Final = 14 * 86_400.0  # seconds before expiry at which a certificate or key causes a warning
MIN_FREE_DISK_BYTES: Final = 1024**3  # free bytes on a disk below which there is a warning
MAX_CLOCK_DIFFERENCE: Final = 2.0  # tolerated clock difference, in seconds
MAX_LISTED_ITEMS: Final = 5  # maximum items, tasks or API keys, that a finding lists


class Finding(NamedTuple):
    """One finding: level, subject, result, and what to do."""

    level: FindingLevel
    what: str
    found: str
    do: str = ""


Check = Callable[[Settings], Awaitable[list[Finding]]]


async def run_checks(settings: Settings) -> AsyncIterator[Finding]:
    """Yields the findings of all checks."""
    for name, check in CHECKS:
        try:
            for finding in await check(settings):
                yield finding
        except Exception as error:  # an unexpected error is a finding, too
            yield Finding("fail", name, f"could not be checked: {type(error).__name__}: {error}")


# Extensions --------------------------------------------------------------------------------------------------------


async def check_extensions(_: Settings) -> list[Finding]:
    """Lists the installed extensions, what each brings, and what installs its libraries."""
    return [check_extension(found) for found in found_extensions()]


def check_extension(found: FoundExtension) -> Finding:
    """Lists what one extension brings, or says why it cannot be used."""
    extension = found.extension
    if extension is None:
        do = f"repair or uninstall {found.distribution}"
        return Finding("fail", "extension", f"{found.name} of {found.distribution}: {found.problem}", do)
    brings = [f"{scheme}:// stores" for scheme in extension.stores]
    brings += [f"{scheme}:// buses" for scheme in extension.buses]
    brings += ["agents"] if extension.agents else []
    brings += [f"/{extension.http.name}"] if extension.http else []
    text = f"{extension.name} of {found.distribution}: {extension.title}; brings {', '.join(brings) or 'settings'}"
    if missing := [name for name in extension.libraries if find_spec(name) is None]:
        do = f"to use it, {install_command(extension.requirement)}"
        return Finding("ok", "extension", f"{text}; without {', '.join(missing)}", do)
    return Finding("ok", "extension", text)


# Agents and cards --------------------------------------------------------------------------------------------------


async def check_agents(settings: Settings) -> list[Finding]:
    """Checks that APP can be loaded, and lists its agents, and the options that bring others."""
    if settings.agents.workers_only:
        return [Finding("ok", "agents", "only those of workers")]
    try:
        agents = load_own_app(settings).agents
    except LoadError as error:
        return [Finding("fail", "agents", str(error), "correct APP, or name another")]
    options = [one.agents.option for one in used_sources(settings.extensions, settings.agents.app) if one.agents]
    options += ["--upstream"] if settings.agents.upstream else []
    found = [*sorted(agent.spec.id for agent in agents), *(f"those of {option}" for option in options)]
    return [Finding("ok", "agents", ", ".join(found))]


async def check_card(settings: Settings) -> list[Finding]:
    """Checks the card of a running server: whether its addresses can be reached."""
    url = f"{'https' if settings.tls.cert else 'http'}://{settings.listen.http}/.well-known/agent-card.json"
    try:
        status, card = await _fetch_json(url)
    except (OSError, aiohttp.ClientError, TimeoutError):
        return [Finding("ok", "card", "not checked: no server runs at --http")]
    if status in (401, 403):
        return [Finding("ok", "card", "for callers with credentials only (--private-pages)")]
    if status != 200 or not isinstance(card, dict):
        return [Finding("fail", "card", f"{url} responds with status {status}", "look at the server's log")]
    urls = ", ".join(dict.fromkeys(str(interface.get("url", "")) for interface in card.get("supportedInterfaces", [])))
    if not settings.public.url and not settings.listen.is_loopback:
        warning = f"has {urls}, which clients cannot reach if the server is behind a proxy"
        return [Finding("warn", "card", warning, "set --public-url and --public-grpc")]
    return [Finding("ok", "card", f"{card.get('name')}: {urls}")]


async def check_secret_files(settings: Settings) -> list[Finding]:
    """Checks that only some can read the files with secrets. A group may: containers get their files by one."""
    paths = (settings.process.config, settings.tls.key, settings.push.secrets_keys)
    readable = [str(path) for path in paths if path is not None and path.is_file() and path.stat().st_mode & 0o006]
    if readable:
        files = " ".join(readable)
        return [Finding("warn", "secrets", f"every user of this machine can read {files}", f"chmod 600 {files}")]
    return [Finding("ok", "secrets", "no file with secrets can be read by every user")]


# Ports and certificates --------------------------------------------------------------------------------------------


async def check_ports(settings: Settings) -> list[Finding]:
    """Checks that the addresses are free, or used by a Dragoman server."""
    holder = _store_holder(settings)
    addresses = [("--http", settings.listen.http), ("--grpc", settings.listen.grpc)]
    addresses += [("--metrics", settings.listen.metrics)] if settings.listen.metrics else []
    return [_check_port(option, address, holder) for option, address in addresses]


def _check_port(option: str, address: Address, holder: str) -> Finding:
    error = bind_error(address)
    if error is None:
        return Finding("ok", option, f"{address} is free")
    if holder and f":{address.port}" in holder:
        return Finding("ok", option, f"{address} is in use by the running server")
    return Finding("fail", option, f"{address}: {error.strerror}", f"stop that process, or change {option}")


async def check_certificate(settings: Settings) -> list[Finding]:
    try:
        async with AsyncExitStack() as stack:
            open_tls(stack, settings)
    except SettingsError as error:
        return [Finding("fail", "certificate", str(error), "see docs/how-to/tls.md")]
    if settings.tls.cert is None:
        if settings.listen.is_loopback:
            return []
        warning = "the ports are not encrypted, and other machines can reach them"
        return [Finding("warn", "certificate", warning, "set --tls-cert and --tls-key, or use a proxy that encrypts")]
    ends = x509.load_pem_x509_certificate(settings.tls.cert.read_bytes()).not_valid_after_utc
    left = (ends - datetime.now(UTC)).total_seconds()
    level: FindingLevel = "ok" if left > EXPIRY_WARNING_SECONDS else "warn" if left > 0 else "fail"
    validity = f"{'valid until' if left > 0 else 'expired on'} {ends:%Y-%m-%d}"
    do = "" if level == "ok" else "renew it; a running server loads the new one"
    return [Finding(level, "certificate", validity, do)]


async def check_open_files(settings: Settings) -> list[Finding]:
    """Checks that the limit of open files suffices for the connections."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * settings.limits.connections
    if limit != resource.RLIM_INFINITY and limit < needed:
        do = "raise `ulimit -n` (LimitNOFILE of systemd), or lower --connections"
        return [Finding("warn", "open files", f"at most {limit}, but two ports may have {needed} connections", do)]
    return [Finding("ok", "open files", "enough for every connection")]


# The store ---------------------------------------------------------------------------------------------------------


async def check_store(settings: Settings) -> list[Finding]:
    """Checks that the store opens, its free space, clock and API keys, and that its tasks can be read."""
    if settings.store.kind == "memory":
        return [Finding("warn", "store", "memory: keeps nothing", "for tasks that last use --store sqlite:///PATH")]
    findings = [] if settings.store.is_shared else [_check_disk(settings.store.path)]
    if holder := _store_holder(settings):
        do = "stop the server to check every task; for a running one see `dragoman explain` and /metrics"
        tasks = Finding("ok", "tasks", "not checked: a server is running", do)
        return [*findings, Finding("ok", "store", holder), tasks]
    if not settings.store.is_shared and not settings.store.path.exists():
        return [*findings, Finding("ok", "store", f"{settings.store.path} does not exist; the first start creates it")]
    async with AsyncExitStack() as stack:
        try:
            _, store = await open_store(stack, settings, create=False)
        except StartError as error:
            return [*findings, Finding("fail", "store", str(error), "see docs/how-to/failures.md")]
        stack.push_async_callback(store.close)
        stats = await store.stats()
        summary = f"{sum(stats.tasks.values())} tasks, {len(stats.backlog)} agents with a queue"
        findings.append(Finding("ok", "store", f"{settings.store.name}: {summary}"))
        findings.append(_check_clock(stats.counted_at))
        try:
            await probe_store(store)
        except Exception as error:
            do = "the line on stderr names the cause; see docs/how-to/failures.md"
            findings.append(Finding("fail", "store", f"takes no writes: {error}", do))
        if settings.access.api_keys:
            findings.append(await _check_api_keys(settings, store))
        if not settings.store.is_shared:
            findings.append(_check_blobs(settings.store.path))
        findings.append(await _check_tasks(store))
    return findings


def _store_holder(settings: Settings) -> str:
    """The process that holds an SQLite store; empty for none."""
    if settings.store.is_shared or not settings.store.path.exists():
        return ""
    try:
        with hold_store(settings.store.path):
            return ""
    except StoreInUseError as error:
        return str(error)
    except (OSError, StoreFileError):  # opening the store tells why
        return ""


def _check_disk(path: Path) -> Finding:
    if not path.parent.is_dir():
        return Finding("fail", "disk", f"folder {path.parent} does not exist", "create it, or choose another --store")
    free = shutil.disk_usage(path.parent).free
    space = f"{free / 1024**3:.1f} GiB free for {path.parent}"
    if free < MIN_FREE_DISK_BYTES:
        do = "free some space: writes to a full disk fail; see docs/how-to/failures.md"
        return Finding("warn", "disk", space, do)
    return Finding("ok", "disk", space)


def _check_blobs(path: Path) -> Finding:
    folder = blob_folder(path)
    if missing := missing_blobs(path, folder):
        do = f"copy the folder from the machine or backup that the store came from, to {folder}"
        return Finding("fail", "contents", f"the files of {missing} large parts are missing: their links are dead", do)
    return Finding("ok", "contents", "every large part has its file")


def _check_clock(store_time_ms: int) -> Finding:
    now = time.time()
    difference = now - store_time_ms / 1000
    if now < MIN_PLAUSIBLE_TIME:
        shown = f"shows {datetime.fromtimestamp(now, UTC):%Y-%m-%d}"
        return Finding("fail", "clock", shown, "set this machine's clock")
    if abs(difference) > MAX_CLOCK_DIFFERENCE:
        do = "use NTP on both machines: sessions and retention use the store's clock, tokens this machine's"
        return Finding("warn", "clock", f"this machine and the store differ by {abs(difference):.1f} s", do)
    return Finding("ok", "clock", "this machine and the store agree")


MIN_PLAUSIBLE_TIME: Final = datetime(2026, 11, 1, tzinfo=UTC).timestamp()  # a clock that shows an earlier time is wrong


async def _check_api_keys(settings: Settings, store: Store) -> Finding:
    now = now_ms()
    valid = [key for key in await store.api_keys.list() if not key.problem(now)]
    url = settings.store.url if settings.store.kind in ("sqlite", "own") else f"{settings.store.kind}://..."
    do = f"dragoman keys create NAME --grant operator --store {url}"
    if not valid:
        return Finding("fail", "keys", "--api-keys is on, but the store has no valid key", do)
    if not any(OPERATOR_GRANT in key.grants for key in valid):
        return Finding("warn", "keys", f"{len(valid)} keys, none with the operator grant", do)
    if expiring := [key for key in valid if key.expires and key.expires < now + EXPIRY_WARNING_SECONDS * 1000]:
        names = ", ".join(f"{key.id} ({key.name})" for key in expiring[:MAX_LISTED_ITEMS])
        return Finding("warn", "keys", f"expire within two weeks: {names}", "dragoman keys rotate ID --expires 90d")
    return Finding("ok", "keys", f"{len(valid)} are valid")


async def _check_tasks(store: Store) -> Finding:
    """Checks that every task can be read with its events."""
    unreadable: list[str] = []
    count = 0
    for state in sorted(states.STORED_STATES):
        async with aclosing(store.erasures.select(TaskSelection(older_than=1, state=state))) as batches:
            async for records in batches:
                count += len(records)
                unreadable += [
                    f"{record.id} ({problem})" for record in records if (problem := await _read_problem(store, record))
                ]
    if not unreadable:
        return Finding("ok", "tasks", f"{count} can be read")
    names = ", ".join(unreadable[:MAX_LISTED_ITEMS])
    if len(unreadable) > MAX_LISTED_ITEMS:
        names += f", and {len(unreadable) - MAX_LISTED_ITEMS} more"
    do = "restore a backup, or `dragoman purge --task ID`; check the disk"
    return Finding("fail", "tasks", f"{len(unreadable)} of {count} cannot be read: {names}", do)


async def _read_problem(store: Store, record: TaskRecord) -> str:
    """Why a task cannot be read; empty if it can."""
    try:
        snapshot = await store.read(record.ref)
        if snapshot is None:  # deleted meanwhile, unless its row still exists
            return "" if await store.find(record.ref.owner, record.agent, record.id) is None else "it has no content"
        pb.Task.FromString(snapshot.task)
        after = 0
        while after < record.last_sequence:
            try:
                events = await store.events(record.ref, after)
            except LogTruncated as truncated:
                after = truncated.oldest_sequence - 1
                continue
            if not events:
                return f"its log ends at {after} of {record.last_sequence}"
            for event in events:
                pb.StreamResponse.FromString(event.data)
            after = events[-1].sequence
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# Other servers -------------------------------------------------------------------------------------------------


async def check_bus(settings: Settings) -> list[Finding]:
    """Checks that the bus can be reached, also where the store cannot be opened."""
    if not settings.cluster.bus.get_secret_value():
        if not settings.store.is_shared:
            return [Finding("ok", "bus", "none: an SQLite store has one server")]
        return [Finding("ok", "bus", "none: servers notice each other's changes by polling the store, up to 2 s late")]
    async with AsyncExitStack() as stack:
        try:
            bus = await open_bus(stack, settings, CHECK_EPOCH)
        except (SettingsError, StartError) as error:
            return [Finding("fail", "bus", str(error), "correct --bus, or install what it needs")]
        await bus.subscribe_signals(lambda *_: None)  # as servers do, to learn whether the bus allows it
        for _ in range(round(CHECK_TIMEOUT / 0.1)):
            if not bus.problem:
                return [Finding("ok", "bus", "connected")]
            await asyncio.sleep(0.1)
    do = "servers work without it, up to 2 s late; check its server and --bus"
    return [Finding("warn", "bus", bus.problem, do)]


async def check_collector(settings: Settings) -> list[Finding]:
    if not settings.tracing.otlp:
        return []
    parts = urlsplit(settings.tracing.otlp)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 4317)
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except (OSError, TimeoutError) as error:
        do = "start the collector, or correct --otlp; servers work without it"
        return [Finding("warn", "traces", f"cannot connect to {parts.hostname}:{port}: {str(error) or 'timeout'}", do)]
    return [Finding("ok", "traces", f"{parts.hostname}:{port} accepts connections")]


async def _fetch_json(url: str) -> tuple[int, object]:
    client_timeout = aiohttp.ClientTimeout(total=CHECK_TIMEOUT)
    # Only checks reachability; the certificate is verified elsewhere.
    async with aiohttp.ClientSession(timeout=client_timeout) as session, session.get(url, ssl=False) as response:
        return response.status, await response.json() if response.status == 200 else None


CHECKS: Final[Sequence[tuple[str, Check]]] = (
    ("agents", check_agents),
    ("ports", check_ports),
    ("certificate", check_certificate),
    ("secrets", check_secret_files),
    ("open files", check_open_files),
    ("store", check_store),
    ("bus", check_bus),
    ("card", check_card),
    ("traces", check_collector),
    ("extensions", check_extensions),
)
