"""The load process, from the outside."""

from __future__ import annotations

import pytest
from bench.job import Job
from bench.loader import Loader, LoadFailed
from bench.servers import free_port


def test_a_load_that_finds_nobody_says_so_and_takes_the_next_job() -> None:
    job = Job(kind="send", binding="rest", whose="bare", target=f"127.0.0.1:{free_port()}", pid=1)
    with Loader() as loader:
        for _ in range(2):
            with pytest.raises(LoadFailed, match=r"[Cc]onnect"):
                loader.ask(job)
        assert loader._process is not None
        assert loader._process.poll() is None


def test_a_load_process_that_broke_off_is_replaced() -> None:
    job = Job(kind="send", binding="rest", whose="bare", target=f"127.0.0.1:{free_port()}", pid=1)
    with Loader() as loader:
        process = loader._begin()
        process.kill()
        process.wait()
        with pytest.raises(LoadFailed, match=r"gone|broke off"):
            loader.ask(job)
        with pytest.raises(LoadFailed, match=r"[Cc]onnect"):
            loader.ask(job)
