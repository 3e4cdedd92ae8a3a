"""Every use of what only Linux has is known, with the test that runs without it.

`make types` finds names of Python's modules that macOS lacks, too, but none in a `getattr`, a path or a library of C.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.ratchets import sizes

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "server" / "dragoman"

ONLY_LINUX: Final = re.compile(
    r"/(?:proc|sys)(?=/|$)|NOTIFY_SOCKET"
    r"|sched_\w+|epoll(?:_\w+)?|EPOLL\w+|eventfd\w*|EFD_\w+|pidfd_\w+|memfd_\w+|MFD_\w+|inotify\w*|timerfd\w*"
    r"|fdatasync|posix_f\w+|POSIX_FADV_\w+|copy_file_range|splice|sendfile|getrandom|GRND_\w+|setns|unshare|CLONE_\w+"
    r"|prctl|PR_SET_\w+|ru_maxrss|prlimit|getxattr|setxattr|O_(?:TMPFILE|DIRECT|PATH|NOATIME)|F_OFD_\w+|F_\w+_?PIPE_SZ"
    r"|AF_(?:NETLINK|PACKET|ALG|VSOCK)|SO_(?:REUSEPORT|PEERCRED|BINDTODEVICE|INCOMING_CPU|MARK|DOMAIN|PROTOCOL)"
    r"|TCP_(?!NODELAY)[A-Z_]+|IP_TRANSPARENT|MSG_(?:NOSIGNAL|CMSG_CLOEXEC|ERRQUEUE|MORE)|SOCK_(?:NONBLOCK|CLOEXEC)|accept4"
    r"|CLOCK_(?:BOOTTIME|TAI|\w+_COARSE)|pthread_getcpuclockid|sigwaitinfo|sigtimedwait|SIG(?:RT\w+|PWR|STKFLT|POLL)"
    r"|malloc_\w+|mallinfo2?|mallopt"
)

WITHOUT: Final = {
    "bindings/grpc/connections.py /proc": "bindings/grpc/test_connections.py "
    "test_on_a_system_that_does_not_count_bytes_every_connection_stays",
    "bindings/grpc/connections.py TCP_INFO": "bindings/grpc/test_connections.py "
    "test_on_a_system_that_does_not_count_bytes_every_connection_stays",
    "cli/process_setup.py /proc": "cli/test_process_setup.py "
    "test_memory_stays_where_the_system_cannot_be_asked_to_take_it_back",
    "cli/process_setup.py mallinfo2": "cli/test_process_setup.py "
    "test_memory_stays_where_the_system_cannot_be_asked_to_take_it_back",
    "cli/process_setup.py malloc_trim": "cli/test_process_setup.py "
    "test_memory_stays_where_the_system_cannot_be_asked_to_take_it_back",
    "cli/process_setup.py mallopt": "cli/test_process_setup.py "
    "test_memory_stays_where_the_system_cannot_be_asked_to_take_it_back",
    "cli/serve/processes.py SO_REUSEPORT": "cli/serve/test_processes.py "
    "test_a_system_on_which_no_port_is_shared_is_named",
    "client/http_client.py TCP_KEEPALIVE": "client/test_http_client.py "
    "test_connections_notice_a_server_that_is_gone_by_the_options_that_the_system_has",
    "client/http_client.py TCP_KEEPCNT": "client/test_http_client.py "
    "test_connections_notice_a_server_that_is_gone_by_the_options_that_the_system_has",
    "client/http_client.py TCP_KEEPIDLE": "client/test_http_client.py "
    "test_connections_notice_a_server_that_is_gone_by_the_options_that_the_system_has",
    "client/http_client.py TCP_KEEPINTVL": "client/test_http_client.py "
    "test_connections_notice_a_server_that_is_gone_by_the_options_that_the_system_has",
    "extensions/postgres/claims.py /proc": "extensions/postgres/test_claims.py "
    "test_a_system_without_proc_names_no_process",
    "ids.py CLOCK_BOOTTIME": "test_ids.py test_time_is_measured_without_a_clock_that_counts_suspended_time",
    "wiring/store_lock.py F_OFD_SETLK": "wiring/test_store_lock.py "
    "test_a_python_that_does_not_name_the_lock_takes_the_same_one",
    "wiring/systemd.py NOTIFY_SOCKET": "wiring/test_systemd.py test_a_socket_that_is_gone_is_logged",
}
"""The test that runs without what only Linux has, by the file that uses it."""


def names_in(source: str) -> Iterator[str]:
    """Yields the names, attributes and texts of a module, except docstrings."""
    tree = ast.parse(source)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def uses(sources: Iterator[tuple[str, str]]) -> set[str]:
    """Each use of what only Linux has: the file, and the name or the folder."""
    found = ((place, ONLY_LINUX.match(name)) for place, text in sources for name in names_in(text))
    return {f"{place} {match[0]}" for place, match in found if match}


def test_whatever_only_linux_has_is_used_with_a_test_that_runs_without_it() -> None:
    assert uses(sizes.sources(PACKAGE)) == set(WITHOUT)
    for place, name in (test.split() for test in WITHOUT.values()):
        assert re.search(rf"^(async )?def {name}\(", (ROOT / "tests" / place).read_text("utf-8"), re.MULTILINE), name


def test_a_further_use_is_found() -> None:
    planted = '''
"""A docstring that names /proc."""
from os import sched_getaffinity
os.fdatasync(1)
open("/proc/meminfo")
getattr(socket, "SO_PEERCRED", None)
socket.TCP_NODELAY
epoll = "poll"
'''
    found = uses(iter([("a.py", planted)]))
    assert found == {"a.py sched_getaffinity", "a.py fdatasync", "a.py /proc", "a.py SO_PEERCRED"}
