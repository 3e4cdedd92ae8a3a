"""The parent's side of the load process."""

from __future__ import annotations

import pytest
from bench.load.jobs import Job, LoadFailed, LoadProcess
from bench.servers.contestants import free_port


def test_a_failed_connection_fails_the_job_only() -> None:
    job = Job(kind="send", binding="rest", implementation="bare", target=f"127.0.0.1:{free_port()}", pid=1)
    with LoadProcess() as load_process:
        for _ in range(2):
            with pytest.raises(LoadFailed, match=r"[Cc]onnect"):
                load_process.run(job)
        assert load_process._process is not None
        assert load_process._process.poll() is None


def test_a_crashed_load_process_is_replaced() -> None:
    job = Job(kind="send", binding="rest", implementation="bare", target=f"127.0.0.1:{free_port()}", pid=1)
    with LoadProcess() as load_process:
        process = load_process._begin()
        process.kill()
        process.wait()
        with pytest.raises(LoadFailed, match=r"has ended|crashed"):
            load_process.run(job)
        with pytest.raises(LoadFailed, match=r"[Cc]onnect"):
            load_process.run(job)
