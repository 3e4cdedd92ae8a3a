// A task of another principal, as operators and viewers may read it: its events and messages, polled.

import type { Signal } from "@preact/signals";
import type { Fold } from "./projection";
import { call, Failure, segment } from "../shared/api";
import type { Link } from "../shared/event_stream";
import { selection } from "../shared/tenant";
import { explained } from "../tasks/task_finder";
import { isTerminal, isWaiting, type EncodedEvent, type ListedTasks, type Message, type StreamResponse } from "../shared/messages";

/** Milliseconds between two calls: short after a new event, then longer. Each call is audited. */
const SOON = 3_000;
const LATE = 15_000;

const PAGE = 100;

/** Events of longer logs are not all read: the task as it is stands for them. */
const MOST = 1_000;

interface Events {
  events?: EncodedEvent[];
  oldest?: number;
  last?: number;
  history?: Message[];
}

interface Reading {
  tenant: string;
  id: string;
  stop: AbortSignal;
  link: Signal<Link>;
  fold: () => Fold;
  /** Receives the task's principal. */
  know: (principal: string) => void;
  /** Called after new events. */
  draw: () => void;
  /** Receives the error of a call; nothing if the caller may not read tasks of others. */
  fail: (error?: unknown) => void;
}

/** Reads the task to its end, or until the caller is refused. */
export async function readForeign({ tenant, id, stop, link, fold, know, draw, fail }: Reading): Promise<void> {
  let wait = SOON;
  let principal = "";
  while (!stop.aborted) {
    try {
      if (!principal) {
        principal = (await explained(id, tenant, stop))?.[0]?.principal ?? "";
        if (!principal) return refused();
        know(principal);
      }
      const before = fold().last;
      await readOn({ tenant, id, stop }, fold());
      link.value = isTerminal(fold().state) ? "ended" : "live";
      draw();
      if (isTerminal(fold().state)) return;
      wait = fold().last > before ? SOON : Math.min(wait * 2, LATE);
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof Failure && [401, 403, 404].includes(error.status)) return refused();
      if (error instanceof Failure && error.status >= 400 && error.status < 500) return refused(error);
      link.value = "lost";
    }
    await new Promise((resolve) => setTimeout(resolve, isWaiting(fold().state) ? LATE : wait));
  }

  function refused(error?: unknown): void {
    link.value = "failed";
    fail(error);
  }
}

/** Folds the events that are not known yet. */
async function readOn({ tenant, id, stop }: Pick<Reading, "tenant" | "id" | "stop">, fold: Fold): Promise<void> {
  const since = fold.last; // later events are new
  for (;;) {
    const range = { after: String(fold.last), limit: String(PAGE), includeHistory: "true" };
    const query = new URLSearchParams({ ...selection(tenant), ...range });
    const page = await call<Events>(`operations/tasks/${segment(id)}/events?${query}`, { signal: stop });
    const { events = [], oldest = 1, last = 0, history = [] } = page;
    if (oldest > fold.last + 1 || last - fold.last > MOST) {
      const one = new URLSearchParams({ ...selection(tenant), taskId: id, includeArtifacts: "true" });
      const listed = await call<ListedTasks>(`operations/tasks?${one}`, { signal: stop });
      const task = listed.tasks?.[0]?.task;
      if (task) fold.take({ task: { ...task, metadata: { ...task.metadata, "urn:dragoman:resume:v1": {} } } }, last);
    }
    for (const { sequence, v1Json } of events) {
      fold.take(JSON.parse(v1Json) as StreamResponse, sequence, since ? Date.now() : 0);
    }
    fold.hear(history);
    if (fold.last >= last || events.length === 0) return;
  }
}
