"""The planted faults of `tests.simulation.mutations`: what is replaced in which module, and what that breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulation.called.plan import SEED_PREFIX
from tests.simulation.operated.plan import SEED_PREFIX as OPERATED


@dataclass(frozen=True, slots=True)
class Mutation:
    """`text` occurs once in `module`, and is replaced. `limit`: histories within which it has to be found.

    `seeds`: the prefix of their seeds, which selects the kind of plans.
    """

    name: str
    guarantee: str
    module: str
    text: str
    replacement: str
    limit: int = 2000
    seeds: str = ""


# fmt: off
MUTATIONS: Final = (
    # The log ---------------------------------------------------------------------------------------------------------
    Mutation(
        "a terminal state is overwritten", "G5", "core.task.plan",
        "if before is not None and before.state in states.TERMINAL:",
        "if before is not None and before.state in states.TERMINAL and change.create:",
    ),
    Mutation(
        "an artifact skips a sequence", "G2", "core.task.plan",
        "record.last_sequence = sequence = record.last_sequence + 1",
        "record.last_sequence = sequence = record.last_sequence + 2",
    ),
    Mutation(
        "a turn ends over unread messages", "G1", "core.task.plan",
        "and record.last_received > record.last_delivered\n",
        "and record.last_received < record.last_delivered\n",
    ),
    Mutation(
        "a claim takes a running task", "G3", "core.task.plan",
        "if change.claim_session and record.ready:", "if change.claim_session:",
    ),
    Mutation(
        "a released turn is not ready", "G3", "core.task.plan",
        "record.session, record.ready, record.wake_at = 0, not change.wake_at, change.wake_at",
        "record.session, record.ready, record.wake_at = 0, False, change.wake_at",
    ),
    Mutation(
        "a repeated turn has lost its message", "G3", "core.task.plan",
        "record.attempt + change.retry, record.last_completed",
        "record.attempt + change.retry, max(record.last_completed, record.last_delivered)",
    ),
    Mutation(
        "an attempt is not counted", "G3", "core.task.plan",
        "record.attempt, record.last_delivered = record.attempt + change.retry, record.last_completed",
        "record.attempt, record.last_delivered = record.attempt, record.last_completed",
    ),
    Mutation(
        "a claim is not checked", "G3", "core.task.log",
        "return None if (record.session, record.token) == (self.session, self.token) else FENCED",
        "return None",
    ),
    Mutation(
        "a cancel ends a running task", "G5", "core.task.log",
        "        if record.running:\n            return RUNNING\n        return CHANGED",
        "        return CHANGED",
    ),
    Mutation(
        "a running turn is woken", "G3", "core.task.log",
        "return None if record.wake_at else NOT_READY", "return None",
    ),
    # Sends -----------------------------------------------------------------------------------------------------------
    Mutation(
        "the content of a repeated key is not compared", "G4", "runtime.send",
        "if earlier.digest != change.idempotency_key.digest:", "if False:",
    ),
    Mutation(
        "a key is not stored", "G4", "runtime.send",
        "change.idempotency_key = idempotency_key", "change.idempotency_key = None",
    ),
    Mutation(
        "a key covers the message's own id", "G4", "runtime.send",
        'message_id, message.message_id = message.message_id, ""',
        "message_id = message.message_id = message.message_id + str(IDS.random_bytes())",
    ),
    Mutation(
        "all principals are one", "G7", "core.access.identity",
        'return Owner(scope, SHARED_PRINCIPAL if self.by_agent.get(agent, self.default) == "scope" else principal)',
        "return Owner(scope, SHARED_PRINCIPAL)",
    ),
    Mutation(
        "a rejected append keeps its reservation", "G3", "runtime.scheduler",
        "        if appended is None:\n            self.abort()\n", "        if appended is None:\n",
    ),
    # Streams ---------------------------------------------------------------------------------------------------------
    Mutation(
        "a cursor is off by one", "G2", "runtime.feeds",
        "index = sequence + 1 - self._window[0].sequence", "index = sequence + 2 - self._window[0].sequence",
    ),
    Mutation(
        "a batch moves its reader by one event", "G2", "runtime.feeds",
        "                self.position = batch[-1].sequence\n", "                self.position = batch[0].sequence\n",
    ),
    Mutation(
        "a gap between hints is not noticed", "G2", "runtime.feeds",
        "if event.sequence != self.last + 1 or not event.data:", "if not event.data:",
    ),
    Mutation(
        "hints are trusted to arrive", "G2", "runtime.feeds",
        "if version > self.last:", "if version > self.last + 1_000_000:",
    ),
    Mutation(
        "missed events are read one too late", "G2", "runtime.feeds",
        "await self._store.events(self.feed.ref, self.position)",
        "await self._store.events(self.feed.ref, self.position + 1)",
    ),
    Mutation(
        "a resumed stream repeats its event", "G2", "runtime.feeds",
        "        self.position = position\n", "        self.position = max(position - 1, 0)\n",
    ),
    Mutation(
        "a stream ends with a turn", "G2", "runtime.read",
        "ends_stream(call, event.state, event.ends and event.sequence > turn_after)",
        "ends_stream(call, event.state, event.ends)",
    ),
    # Turns -----------------------------------------------------------------------------------------------------------
    Mutation(
        "a step is returned before its commit", "G10", "agents.functions.steps",
        "        await self._steps.context.store(StateUpdate(steps=(done,)))\n        self._step = done",
        "        self._store_soon(done)\n        self._step = done",
    ),
    Mutation(
        "the result of a step is not stored", "G10", "runtime.turn.context",
        "steps=state_update.steps,", "steps=(),",
    ),
    Mutation(
        "a stored step is not found", "G10", "core.task.steps",
        "        step = self._stored.get((name, number))\n", "        step = None\n",
    ),
    Mutation(
        "a lapsed lease is not noticed", "G3", "runtime.lease",
        "return self.remaining <= 0", "return False",
    ),
    Mutation(
        "a renewal does not extend the lease", "G3", "runtime.sessions",
        "self.run_lease.extend(began, self.lease)", "pass",
    ),
    Mutation(
        "the output of a dead attempt stays", "G3", "runtime.turn.context",
        "return replace(change, append=False) if change.append else change", "return change",
    ),
    Mutation(
        "the end of a turn is not insisted on", "G3", "runtime.log",
        "if isinstance(error, OutOfMemory) and failures >= MEMORY_RETRIES:", "if failures >= 0:",
    ),
    Mutation(
        "steps wait behind a failed commit", "G3", "runtime.turn.events",
        "if self._error is not None and self._stored:", "if False:",
        limit=12_000,
    ),
    # Cancels ---------------------------------------------------------------------------------------------------------
    Mutation(
        "a cancel does not reach the agent", "G5", "runtime.turn.runner",
        "elif self.stop.request(reason, metadata):", "elif False:",
    ),
    Mutation(
        "CANCELED is written while the agent runs", "G5", "runtime.turn.runner",
        'if self.stop.reason != "client":', "if True:",
    ),
    Mutation(
        "lost signals of cancels are not found", "G5", "runtime.cancel",
        "for ref, metadata in (await self.store.cancel_requests.of_session(self.scheduler.session)).items():",
        "for ref, metadata in dict[TaskRef, bytes]().items():",
    ),
    # Dead servers ----------------------------------------------------------------------------------------------------
    Mutation(
        "nobody reaps", "G3", "runtime.assembly",
        "    yield polling(Background.REAPER, timings.renew_interval, reaper.reap)\n", "",
    ),
    Mutation(
        "the reaper repeats every turn", "G3", "runtime.sessions",
        "elif agent is not None and has_retries_left(record, agent.spec.crash_retries):", "elif agent is not None:",
    ),
    Mutation(
        "the reaper reaps its own turns", "G3", "runtime.sessions",
        "        records = await self.store.orphaned_tasks(self.session, limit)\n",
        "        records = await self.store.orphaned_tasks(-1, limit)\n"
        "        self.store.database.sessions.pop(self.session, None)\n",
    ),
    Mutation(
        "a claim of unknown outcome is forgotten", "G3", "runtime.log",
        "elif change.claim_session and isinstance(error, Unavailable) and error.outcome_unknown:", "elif False:",
    ),
    Mutation(
        "waiting tasks are found by hints alone", "G3", "runtime.scheduler",
        "            queue.assume_backlog()\n", "            pass\n",
        limit=12_000,
    ),
    Mutation(
        "sleeping turns of dead servers are not woken", "G3", "runtime.scheduler",
        "        for record in records:\n            self._set_timer(record)\n", "",
    ),
    # Webhooks --------------------------------------------------------------------------------------------------------
    Mutation(
        "a webhook's cursor moves before its delivery", "G6", "runtime.push.delivery",
        "        if 200 <= status < 300:\n", "        if status or error:\n",
    ),
    Mutation(
        "due webhooks are found by hints alone", "G6", "runtime.push.scheduler",
        "while await self._claim(*await self._due()) and self._next_host:", "while False:",
    ),
    Mutation(
        "a webhook is sent after the lease", "G6", "runtime.push.delivery",
        "return self._hold is None or not self._hold.lost", "return True",
        limit=6000,
    ),
    Mutation(
        "a failed webhook is not tried again", "G6", "core.push.delivery",
        "return replace(record, due_at=now + report.retry_delay, session=0)",
        "return replace(record, due_at=0, session=0)",
    ),
    Mutation(
        "any sender may report a delivery", "G6", "core.push.delivery",
        "if (record.session, record.token, record.state) != (report.session, report.token, PushState.LIVE):",
        "if record.state != PushState.LIVE:",
        limit=6000,
    ),
    # Called agents ---------------------------------------------------------------------------------------------------
    Mutation(
        "a message is sent again after a crash", "G3", "agents.upstream.turn",
        "        if may_be_sent:\n            found = ", "        if False:\n            found = ",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a message without an answer is sent again", "G3", "agents.upstream.turn",
        "await self._find_task() if error.may_have_arrived else None", "None",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "an upstream task is not canceled", "G5", "agents.upstream.agent",
        'await self._call("CancelTask", request)', "pass",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a called agent that responds again is not used", "G3", "agents.called.registry",
        "            agent.breaker.half_open()\n", "            pass\n",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "every tool is called again", "G3", "extensions.mcp.servers.turn",
        "return is_repeatable(tool)", "return True",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "the task of an MCP server is not canceled", "G5", "extensions.mcp.servers.agent",
        "await self.call(lambda client: tasks_extension.cancel_task(client, task))", "pass",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a call of a tool is CANCELED without an answer", "G5", "extensions.mcp.servers.turn",
        """return self.failed("OUTCOME_UNKNOWN", f"the MCP server does not say whether {tool} has stopped")""",
        'return self.output.canceled("")',
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a cancel is sent to another server once", "G5", "agents.called.agent",
        "await asyncio.wait([work], timeout=CANCEL_BACKOFF.delay(attempt))", "await asyncio.wait([work])",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "work that waits for its server is CANCELED at once", "G5", "runtime.cancel",
        "if agent is not None and agent.may_have_work(task_state, record.attempt):", "if False:",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a server out of reach is taken for one that has stopped", "G5", "runtime.turn.runner",
        "is_unconfirmed = self._begun and self._tells_server", "is_unconfirmed = False",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "the cancel of a dead server is not sent by the next", "G5", "runtime.sessions",
        "        if canceled and is_called(agent):\n", "        if False:\n",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a worker is not told of a cancel", "G5", "agents.workers.agent",
        "turn.cancel(turn_context.cancel_reason, turn_context.cancel_metadata)", "pass",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a canceled turn ends with the connection of its worker", "G5", "agents.workers.agent",
        "await self._wait_for_lease_of(worker, turn_context)", "pass",
        seeds=SEED_PREFIX,
    ),
    Mutation(
        "a lost worker keeps its turns", "G3", "agents.workers.connection",
        "turn.on_worker_lost()", "pass",
        seeds=SEED_PREFIX,
    ),
    # Operators -------------------------------------------------------------------------------------------------------
    Mutation(
        "an erasure is answered before it is done", "erasure", "bindings.admin.task_changes",
        'return "" if (await self.runtime.maintenance.purge(selection)).number else None',
        'return "" if selection else None',
        seeds=OPERATED,
    ),
    Mutation(
        "an erased task is taken for a damaged one", "erasure", "runtime.turn.context",
        "await self._log.append(Append(task=ref, guard=self.guard))  # rejected: the task was erased", "pass",
        seeds=OPERATED,
    ),
    Mutation(
        "each request reruns a task", "G4", "bindings.admin.task_changes",
        "if request_id else \"\"\n        call = Call(", "if False else \"\"\n        call = Call(",
        seeds=OPERATED,
    ),
    Mutation(
        "a paused agent takes new tasks", "pauses", "runtime.scheduler",
        "            and agent not in self.pauses.by_agent\n", "",
        seeds=OPERATED,
    ),
    Mutation(
        "the quota of an agent is not checked", "quotas", "core.limits.admission",
        "if 0 < quota.live_tasks_per_agent <= live_of_agent:", "if False:",
        seeds=OPERATED,
    ),
    Mutation(
        "a quota is one task too small", "quotas", "core.limits.admission",
        "if 0 < quota.live_tasks_per_agent <= live_of_agent:",
        "if 0 < quota.live_tasks_per_agent - 1 <= live_of_agent:",
        seeds=OPERATED,
    ),
    Mutation(
        "the rate of starts is not checked", "quotas", "core.limits.admission",
        "if quota.starts_per_minute and start_delay and starts_turn(plan):", "if False:",
        seeds=OPERATED,
    ),
    Mutation(
        "a rate is one too low", "quotas", "core.limits.admission",
        "- now - (burst - 1) * interval", "- now - (burst - 2) * interval",
        seeds=OPERATED,
    ),
    Mutation(
        "a rejected send counts for its rate", "quotas", "core.limits.admission",
        "wait = self._full_at.get(key, now) - now",
        "self.take(key, now, interval)\n        wait = self._full_at.get(key, now) - now - interval",
        seeds=OPERATED,
    ),
    Mutation(
        "the time to retry is that of another unit", "quotas", "core.limits.admission",
        "quota.starts_per_minute, start_delay / 1000)", "quota.starts_per_minute, start_delay / 60_000)",
        seeds=OPERATED,
    ),
    Mutation(
        "the rate of requests is not checked", "quotas", "runtime.access",
        "raise rate_limited(\"requests_per_second\", rate, rate, wait)", "pass",
        seeds=OPERATED,
    ),
    Mutation(
        "queued bytes are not checked", "quotas", "core.limits.admission",
        "if quota.queued_bytes and queued and queued + sum([row.size for row in plan.messages]) > quota.queued_bytes:",
        "if False:",
        seeds=OPERATED,
    ),
    Mutation(
        "a message is too large for an empty queue", "quotas", "core.limits.admission",
        "if quota.queued_bytes and queued and queued + sum(", "if quota.queued_bytes and queued + sum(",
        seeds=OPERATED,
    ),
    Mutation(
        "readers wait for the slowest of their task", "G8", "runtime.feeds",
        "        waiters, self._waiters = self._waiters, []\n",
        "        if len(self._waiters) < self.subscribers:\n            return\n"
        "        waiters, self._waiters = self._waiters, []\n",
        seeds=OPERATED,
    ),
    Mutation(
        "a feed keeps all events of its task", "G8", "runtime.feeds",
        "while len(self._window) > FEED_WINDOW_EVENTS or self._bytes > FEED_WINDOW_BYTES:", "while False:",
        seeds=OPERATED,
    ),
    Mutation(
        "a reader that fell behind skips what it missed", "G2", "runtime.feeds",
        "index = sequence + 1 - self._window[0].sequence if self._window else -1",
        "index = max(sequence + 1 - self._window[0].sequence, 0) if self._window else -1",
        seeds=OPERATED,
    ),
    Mutation(
        "a client that reads nothing is kept", "G8", "bindings.http.connections",
        "((self.stalled_since, timeouts.stalled), (self.eof_since, timeouts.half_closed)):",
        "((self.eof_since, timeouts.half_closed),):",
        seeds=OPERATED,
    ),
    Mutation(
        "a client that reads in bursts is dropped", "G8", "bindings.http.connections",
        "self.stalled_since = self.unsent_bytes = 0", "pass",
        seeds=OPERATED,
    ),
    Mutation(
        "a resumed stream reads its whole task", "G9", "runtime.read",
        "return TaskSnapshot(await find_task(self.store, call.caller, task_id), b\"\")", "pass",
        seeds=OPERATED,
    ),
    Mutation(
        "missed events are read from the first one on", "G9", "runtime.feeds",
        "events = await self._store.events(self.feed.ref, self.position)",
        "events = [one for one in await self._store.events(self.feed.ref, 0) if one.sequence > self.position]",
        seeds=OPERATED,
    ),
    Mutation(
        "the feed of a task stays when its readers have left", "G9", "runtime.feeds",
        "            self.by_task.pop(feed.ref, None)\n", "",
        seeds=OPERATED,
    ),
    Mutation(
        "a subscription that has ended counts as open", "G9", "runtime.read",
        "self.admission.close_stream(caller.identity)", "pass",
        seeds=OPERATED,
    ),
    Mutation(
        "a removed webhook is told on", "G6", "runtime.push_configs",
        "await self.store.pushes.remove(record.ref, request.id)", "pass",
        seeds=OPERATED,
    ),
    Mutation(
        "the call of an operator is not recorded", "audit", "bindings.admin.actions",
        "        await record.begin()\n        try:", "        try:",
        seeds=OPERATED,
    ),
)
# fmt: on
