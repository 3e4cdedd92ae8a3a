"""What others see of a server while it works: its numbers, put together from whoever counts, in the form they read.

Only here adapters of `dragoman.telemetry` have names.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from dragoman.bindings.tally import Tally
from dragoman.core.counters import MetricFamily, MetricSample, gauge
from dragoman.release import version
from dragoman.runtime import Runtime
from dragoman.setting_types import headers_of
from dragoman.settings import Settings
from dragoman.telemetry.prometheus import Exposition

if TYPE_CHECKING:
    from dragoman.tracing import Tracing


async def begin_tracing(stack: AsyncExitStack, settings: Settings) -> Tracing | None:
    """Has traces sent until the stack is left; None where nobody collects them."""
    if not settings.otlp:
        return None
    from dragoman.tracing import open_tracing  # most servers need none of it

    headers = headers_of(settings.otlp_headers.get_secret_value())
    return await stack.enter_async_context(open_tracing(settings.otlp, headers, settings.trace_share))


class Numbers:
    """All numbers of one server. `read` writes them out."""

    def __init__(
        self, settings: Settings, runtime: Runtime, tally: Tally, draining: asyncio.Event, tracing: Tracing | None
    ) -> None:
        about = (version(), "postgresql" if settings.is_shared else "sqlite")
        help = "The version of this server, and the kind of its store."
        self._about = MetricFamily("build_info", "gauge", help, ("version", "store"), (MetricSample(about, 1),))
        self._runtime = runtime
        self._tally = tally
        self._draining = draining
        self._tracing = tracing
        self._exposition: Exposition | None = None

    async def families(self) -> list[MetricFamily]:
        """Everything that is counted, as it is now."""
        draining = gauge("draining", "Whether the server is about to stop.", self._draining.is_set())
        traces = self._tracing.families() if self._tracing else ()
        return [self._about, draining, *traces, *self._tally.families(), *await self._runtime.metrics.families()]

    async def read(self, accept: str = "") -> tuple[bytes, str]:
        """The text for an `Accept` header, and its media type."""
        self._exposition = self._exposition or Exposition()
        return self._exposition.render(await self.families(), accept)
