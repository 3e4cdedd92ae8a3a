// The shown task, updated by its events.

import { signal, type Signal } from "@preact/signals";
import { Fold } from "./projection";
import { news } from "../tasks/listing";
import { call, Failure, segment } from "../shared/api";
import { follow, type Link } from "../shared/event_stream";
import { pathOf } from "../shared/tenant";
import { readForeign } from "./operator_polling";
import type { Card, Message, Task } from "../shared/messages";

const POLLS = 2_000;
const HISTORY = 200;

/** Milliseconds without an event after which the earlier events are known, and at most. */
const QUIET = 150;
const EARLIER = 1_500;

export class Followed {
  fold = new Fold();
  /** Incremented when there is something new to render. */
  readonly tick = signal(0);
  readonly link: Signal<Link> = signal("connecting");
  readonly error: Signal<unknown> = signal(undefined);
  /** The principal of a task that is not the caller's, and which an operator reads; empty for the caller's own. */
  readonly principal = signal("");
  /** Whether all events so far are known; further ones are new. */
  readonly current = signal(false);
  private begun = 0;
  private settling: ReturnType<typeof setTimeout> | undefined;
  private drawing = 0;
  private telling: ReturnType<typeof setTimeout> | undefined;
  private readonly ends: (() => void)[] = [];

  constructor(
    readonly tenant: string,
    readonly id: string,
  ) {}

  start(): void {
    const stop = follow({
      tenant: this.tenant,
      id: this.id,
      link: this.link,
      take: (event, sequence) => {
        const before = this.fold.state;
        const over = this.fold.take(event, sequence, this.current.value ? Date.now() : 0);
        this.settle(over);
        if (this.fold.state !== before) this.tell();
        if (this.fold.unheard) void this.hear();
        this.draw();
        return over;
      },
      fail: (error) => void this.refused(error),
    });
    this.ends.push(stop);
  }

  stop(): void {
    cancelAnimationFrame(this.drawing);
    clearTimeout(this.settling);
    for (const end of this.ends) end();
  }

  private settle(over: boolean): void {
    if (this.current.value) return;
    clearTimeout(this.settling);
    this.begun ||= Date.now();
    const left = over ? 0 : Math.min(QUIET, this.begun + EARLIER - Date.now());
    this.settling = setTimeout(() => (this.current.value = true), Math.max(0, left));
  }

  /** Renders at most once per frame, because many events may arrive between two frames. */
  private draw(): void {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      this.tick.value++;
    });
  }

  /** Delayed, because a task read from its first event changes its state many times at once. */
  private tell(): void {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => news.value++, 50);
  }

  /** User messages are in the task's history, not in events. */
  private async hear(): Promise<void> {
    this.fold.unheard = false;
    try {
      const task = await call<Task>(`${this.path}?historyLength=${HISTORY}`);
      const known: Message[] = task.history ?? [];
      this.fold.hear(known);
      this.draw();
    } catch {
      // the next event retries, or the stream reports the error
    }
  }

  /** A task of another principal, read as operators may. Without the grant, the refusal is shown. */
  private async foreign(refusal: unknown): Promise<void> {
    const stop = new AbortController();
    this.ends.push(() => stop.abort());
    await readForeign({
      tenant: this.tenant,
      id: this.id,
      stop: stop.signal,
      link: this.link,
      fold: () => this.fold,
      know: (principal) => (this.principal.value = principal),
      draw: () => {
        this.current.value = true;
        this.draw();
      },
      fail: (error) => (this.error.value = error ?? refusal),
    });
  }

  /** Polls agents without streaming. */
  private async refused(error: unknown): Promise<void> {
    if (error instanceof Failure && error.status === 404) return this.foreign(error);
    if (!(error instanceof Failure && error.reason === "UNSUPPORTED_OPERATION")) {
      this.error.value = error;
      return;
    }
    const card = await call<Card>(`${pathOf(this.tenant)}/.well-known/agent-card.json`).catch(() => undefined);
    if (card?.capabilities?.streaming) {
      this.error.value = error;
      return;
    }
    const look = async () => {
      try {
        const task = await call<Task>(`${this.path}?historyLength=${HISTORY}`);
        const fold = new Fold();
        const over = fold.take({ task }, 0);
        this.fold = fold;
        this.link.value = over ? "ended" : "live";
        this.current.value = true;
        this.draw();
        if (over) clearInterval(timer);
      } catch (failed) {
        this.error.value = failed;
      }
    };
    const timer = setInterval(() => void look(), POLLS);
    this.ends.push(() => clearInterval(timer));
    await look();
  }

  private get path(): string {
    return `${pathOf(this.tenant)}/tasks/${segment(this.id)}`;
  }
}
