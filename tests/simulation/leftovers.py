"""What a server has in memory of tasks, streams, calls and webhooks: nothing, when none is under way (G9).

Claims of unknown outcome are not counted: their tasks may appear for ten minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized

from dragoman.runtime import Runtime


def kept_in_memory(runtime: Runtime) -> Iterator[tuple[str, int]]:
    """What is kept, and how much of it, for each registry of the runtime that is not empty."""
    scheduler, feeds, pushes = runtime.scheduler, runtime.feeds, runtime.push_scheduler
    log, runs, wakeups = runtime.operations.send.event_log, scheduler.runs, scheduler.wakeups
    registries: dict[str, Sized] = {
        "feeds": feeds.by_task,
        "subscribers": feeds._subscribers,
        "waiting calls": feeds._waits,
        "runs": runs.by_task,
        "callbacks for the end of runs": runs.idle_waiters,
        "timers of sleeping turns": wakeups._timers,
        "turns being woken": wakeups._waking,
        "tasks of the scheduler": scheduler._tasks,
        "principals with open streams": runtime.operations.admission.open_streams,
        "late claims": log.claims.late,
    }
    if pushes is not None:
        registries |= {
            "deliveries": pushes._deliveries,
            "tasks of deliveries": pushes._tasks,
            "shares of hosts": +pushes._shares,
            "woken tasks with webhooks": pushes._woken_tasks,
            "claims of webhooks": pushes._unknown_claims,
        }
    counts = {what: len(registry) for what, registry in registries.items()}
    counts |= {
        "reserved slots": runs.reserved,
        "running turns": sum(queue.running + queue.reserved for queue in scheduler.queues),
        "waiting writes": log.health.waiting,
    }
    for what, count in counts.items():
        if count:
            yield what, count
