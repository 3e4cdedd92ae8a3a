"""The checks of `dragoman doctor`: everything a start needs, and the tasks of the store.

Nothing is changed, but that a store which no server holds is opened as a start would open it. One check that fails
keeps no other from being made.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from cryptography import x509

from dragoman.core.access.identity import OPERATOR_GRANT
from dragoman.core.task import states
from dragoman.core.task.log import LogTruncated, TaskRecord
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Store
from dragoman.settings.settings import Address, Settings, SettingsError
from dragoman.wiring.agent_loader import LoadError, load_agents
from dragoman.wiring.infra import StartError, StoreInUseError, hold_store, open_bus, open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

FindingLevel = Literal["ok", "warn", "fail"]

CHECK_TIMEOUT: Final = 5.0
"""Seconds for a check of something that may not respond."""

EXPIRY_WARNING_SECONDS: Final = 14 * 86_400.0
"""Seconds before expiry at which a certificate or key causes a warning."""

MIN_FREE_DISK_BYTES: Final = 1024**3
"""Free bytes on a disk below which there is a warning."""

MAX_CLOCK_DIFFERENCE: Final = 2.0
"""Tolerated clock difference, in seconds."""

MAX_LISTED_TASKS: Final = 5
"""Maximum unreadable tasks that are listed."""


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
        except Exception as error:  # what nobody thought of is a finding, too
            yield Finding("fail", name, f"could not be looked at: {type(error).__name__}: {error}")


# Agents and cards --------------------------------------------------------------------------------------------------


async def check_agents(settings: Settings) -> list[Finding]:
    """Checks that APP can be loaded, and lists its agents."""
    if settings.workers_only:
        return [Finding("ok", "agents", "those of workers, as they dial in")]
    try:
        found = load_agents(settings.own_app)
    except LoadError as error:
        return [Finding("fail", "agents", str(error), "correct APP, or name another")]
    return [Finding("ok", "agents", ", ".join(sorted(agent.spec.id for agent in found)))]


async def check_card(settings: Settings) -> list[Finding]:
    """Checks the card of a running server: whether its addresses can be reached."""
    url = f"{'https' if settings.tls_cert else 'http'}://{settings.http}/.well-known/agent-card.json"
    try:
        status, answer = await _fetch_json(url)
    except (OSError, aiohttp.ClientError, TimeoutError):
        return [Finding("ok", "card", "no server runs at --http now, so there is none to look at")]
    if status in (401, 403):
        return [Finding("ok", "card", "for callers with credentials only (--private-pages)")]
    if status != 200 or not isinstance(answer, dict):
        return [Finding("fail", "card", f"{url} answers {status}", "look at the server's log")]
    shown = dict.fromkeys(str(one.get("url", "")) for one in answer.get("supportedInterfaces", []))
    if not settings.public_url and not settings.is_loopback:
        what = f"shows {', '.join(shown)}; behind a proxy that is not where clients are"
        return [Finding("warn", "card", what, "set --public-url and --public-grpc")]
    return [Finding("ok", "card", f"{answer.get('name')}: {', '.join(shown)}")]


# Ports and certificates --------------------------------------------------------------------------------------------


async def check_ports(settings: Settings) -> list[Finding]:
    """Checks that the addresses are free, or used by a Dragoman server."""
    held = _store_holder(settings)
    wanted = [("--http", settings.http), ("--grpc", settings.grpc)]
    wanted += [("--metrics", settings.metrics)] if settings.metrics else []
    return [_check_port(option, address, held) for option, address in wanted]


def _check_port(option: str, address: Address, holder: str) -> Finding:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((address.host, address.port))
    except OSError as error:
        if holder and f":{address.port}" in holder:
            return Finding("ok", option, f"{address} is held by the server that runs")
        return Finding("fail", option, f"{address}: {error.strerror}", f"stop who has it, or choose another {option}")
    return Finding("ok", option, f"{address} is free")


async def check_certificate(settings: Settings) -> list[Finding]:
    """Checks the expiry of the certificate of both ports."""
    if settings.tls_cert is None or settings.tls_key is None:
        if settings.is_loopback:
            return []
        why = "the ports are not encrypted, and other machines reach them"
        return [
            Finding("warn", "certificate", why, "set --tls-cert and --tls-key, or put a proxy before it that encrypts")
        ]
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.tls_cert, settings.tls_key)
        ends = x509.load_pem_x509_certificate(settings.tls_cert.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        return [Finding("fail", "certificate", f"{settings.tls_cert}: {error}", "see docs/how-to/tls.md")]
    left = (ends - datetime.now(UTC)).total_seconds()
    level: FindingLevel = "ok" if left > EXPIRY_WARNING_SECONDS else "warn" if left > 0 else "fail"
    text = f"{'good until' if left > 0 else 'ended'} {ends:%Y-%m-%d}"
    return [
        Finding(level, "certificate", text, "" if level == "ok" else "renew it; a running server takes the new one up")
    ]


async def check_open_files(settings: Settings) -> list[Finding]:
    """Checks that the limit of open files suffices for the connections."""
    try:
        import resource
    except ImportError:  # not on this system
        return []
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * settings.connections
    if most != resource.RLIM_INFINITY and most < needed:
        do = "raise `ulimit -n` (LimitNOFILE of systemd), or lower --connections"
        return [Finding("warn", "open files", f"at most {most}, and two ports may hold {needed} connections", do)]
    return [Finding("ok", "open files", "enough for every connection")]


# The store ---------------------------------------------------------------------------------------------------------


async def check_store(settings: Settings) -> list[Finding]:
    """Checks the store: it opens, has free space, its clock and keys are fine, and its tasks can be read."""
    found = [] if settings.is_shared else _check_disk(settings.store_path)
    if held := _store_holder(settings):
        do = "stop the server to have each task looked at; `dragoman explain` and /metrics tell of a running one"
        return [
            *found,
            Finding("ok", "store", f"{held}"),
            Finding("ok", "tasks", "not looked at: a server works on them", do),
        ]
    if not settings.is_shared and not settings.store_path.exists():
        return [*found, Finding("ok", "store", f"{settings.store_path} is not there yet; the first start makes it")]
    async with AsyncExitStack() as stack:
        try:
            _, opened = await open_store(stack, settings, create=False)
        except StartError as error:
            return [*found, Finding("fail", "store", str(error), "see docs/how-to/failures.md")]
        stack.push_async_callback(opened.close)
        store_stats = await opened.stats()
        count = sum(store_stats.tasks.values())
        found.append(
            Finding(
                "ok", "store", f"{settings.store_name}: {count} tasks, {len(store_stats.backlog)} agents with a queue"
            )
        )
        found.append(_check_clock(store_stats.counted_at))
        found += await _check_api_keys(settings, opened)
        found += await _check_tasks(opened)
        found += await _check_bus(settings, stack, opened.epoch)
    return found


def _store_holder(settings: Settings) -> str:
    """The process that holds an SQLite store; empty for none."""
    if settings.is_shared or not settings.store_path.parent.is_dir():
        return ""
    try:
        with hold_store(settings.store_path):
            return ""
    except StoreInUseError as error:
        return str(error)
    except OSError:
        return ""


def _check_disk(path: Path) -> list[Finding]:
    if not path.parent.is_dir():
        return [Finding("fail", "disk", f"there is no folder {path.parent}", "make it, or name another --store")]
    free = shutil.disk_usage(path.parent).free
    text = f"{free / 1024**3:.1f} GiB free for {path.parent}"
    if free < MIN_FREE_DISK_BYTES:
        return [Finding("warn", "disk", text, "make room: a full disk accepts nothing; see docs/how-to/failures.md")]
    return [Finding("ok", "disk", text)]


def _check_clock(store_time_ms: int) -> Finding:
    """Checks the clock; `at` is the store's time in milliseconds."""
    now = time.time()
    off = now - store_time_ms / 1000
    if now < MIN_PLAUSIBLE_TIME:
        return Finding(
            "fail", "clock", f"it is {datetime.fromtimestamp(now, UTC):%Y-%m-%d}", "set this machine's clock"
        )
    if abs(off) > MAX_CLOCK_DIFFERENCE:
        do = "have both machines keep the time (NTP): sessions and retention go by the store's, tokens by this one's"
        return Finding("warn", "clock", f"this machine and the store differ by {abs(off):.1f} s", do)
    return Finding("ok", "clock", "this machine and the store agree")


MIN_PLAUSIBLE_TIME: Final = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
"""A clock that shows an earlier time is wrong."""


async def _check_api_keys(settings: Settings, opened: Store) -> list[Finding]:
    if not settings.api_keys:
        return []
    now = time.time() * 1000
    good = [key for key in await opened.api_keys.list() if not key.problem(round(now))]
    where = "--store postgresql://..." if settings.is_shared else f"--store {settings.store}"
    if not good:
        do = f"dragoman keys create NAME --grant operator {where}"
        return [Finding("fail", "keys", "--api-keys asks for them, and there is none", do)]
    if not any(OPERATOR_GRANT in key.grants for key in good):
        do = f"dragoman keys create NAME --grant operator {where}"
        return [Finding("warn", "keys", f"{len(good)} keys, and no operator among them", do)]
    if ending := [key for key in good if key.expires and key.expires < now + EXPIRY_WARNING_SECONDS * 1000]:
        named = ", ".join(f"{key.id} ({key.name})" for key in ending[:MAX_LISTED_TASKS])
        return [Finding("warn", "keys", f"end within two weeks: {named}", "dragoman keys rotate ID --expires 90d")]
    return [Finding("ok", "keys", f"{len(good)} are good")]


async def _check_tasks(opened: Store) -> list[Finding]:
    """Checks that every task can be read with its events."""
    bad: list[str] = []
    looked = 0
    for state in sorted(states.STORED_STATES):
        async with aclosing(opened.select(TaskSelection(older_than=1, state=state))) as batches:
            async for heads in batches:
                looked += len(heads)
                bad += [f"{head.id} ({why})" for head in heads if (why := await _read_problem(opened, head))]
    if bad:
        named = ", ".join(bad[:MAX_LISTED_TASKS]) + (
            f", and {len(bad) - MAX_LISTED_TASKS} more" if len(bad) > MAX_LISTED_TASKS else ""
        )
        do = "restore a backup, or `dragoman purge --task ID`; a damaged disk damages more"
        return [Finding("fail", "tasks", f"{len(bad)} of {looked} cannot be read: {named}", do)]
    return [Finding("ok", "tasks", f"{looked} can be read")]


async def _read_problem(opened: Store, record: TaskRecord) -> str:
    """Why a task cannot be read; empty if it can."""
    try:
        snapshot = await opened.read(record.ref)
        if snapshot is None:
            return "" if await opened.find(record.ref.owner, record.agent, record.id) is None else "it is gone"
        pb.Task.FromString(snapshot.task)
        after = 0
        while after < record.last_sequence:
            try:
                events = await opened.events(record.ref, after)
            except LogTruncated as cut:
                after = cut.oldest_sequence - 1
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


async def _check_bus(settings: Settings, stack: AsyncExitStack, epoch: str) -> list[Finding]:
    if not settings.bus.get_secret_value():
        alone = "none: one server has the store to itself"
        if not settings.is_shared:
            return [Finding("ok", "bus", alone)]
        return [
            Finding("ok", "bus", "none: several servers hear of each other by looking into the store, up to 2 s late")
        ]
    try:
        bus = await open_bus(stack, settings, epoch)
    except (SettingsError, StartError) as error:
        return [Finding("fail", "bus", str(error), "see docs/how-to/postgresql.md")]
    for _ in range(round(CHECK_TIMEOUT / 0.1)):
        if not bus.problem:
            return [Finding("ok", "bus", "it answers")]
        await asyncio.sleep(0.1)
    return [Finding("warn", "bus", bus.problem, "everything works without it, up to 2 s later; look at NATS and --bus")]


async def check_collector(settings: Settings) -> list[Finding]:
    """Checks that the trace collector accepts connections."""
    if not settings.otlp:
        return []
    parts = urlsplit(settings.otlp)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 4317)
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except (OSError, TimeoutError) as error:
        do = "start the collector, or correct --otlp; servers work without it"
        return [
            Finding("warn", "traces", f"nobody listens at {parts.hostname}:{port}: {str(error) or 'no answer'}", do)
        ]
    return [Finding("ok", "traces", f"somebody listens at {parts.hostname}:{port}")]


async def _fetch_json(url: str) -> tuple[int, object]:
    client_timeout = aiohttp.ClientTimeout(total=CHECK_TIMEOUT)
    # Only checks reachability; the certificate is verified elsewhere.
    async with aiohttp.ClientSession(timeout=client_timeout) as session, session.get(url, ssl=False) as answer:
        return answer.status, await answer.json() if answer.status == 200 else None


CHECKS: Final[Sequence[tuple[str, Check]]] = (
    ("agents", check_agents),
    ("ports", check_ports),
    ("certificate", check_certificate),
    ("open files", check_open_files),
    ("store", check_store),
    ("card", check_card),
    ("traces", check_collector),
)
