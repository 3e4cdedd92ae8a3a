// Server-sent events over fetch (an EventSource cannot send credentials). A stream is requested again when the connection
// is lost; that of a task resumes after the last received event.

import type { Signal } from "@preact/signals";
import { ask, Failure, segment } from "./api";
import { pathOf } from "./tenant";
import type { StreamResponse } from "./messages";

interface Frame {
  id: string;
  event: string;
  data: string;
}

const FIRST_WAIT = 250;
const LONGEST_WAIT = 5_000;
const SILENCE = 45_000; // the server sends a keep-alive every 15 s by default

export type Link = "connecting" | "live" | "lost" | "ended" | "failed";

async function* frames(body: ReadableStream<Uint8Array>, heard: () => void): AsyncGenerator<Frame> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const frame: Frame = { id: "", event: "", data: "" };
        for (const line of block.split("\n")) {
          const colon = line.indexOf(": ");
          const name = line.slice(0, colon);
          if (name === "data" || name === "id" || name === "event") frame[name] += line.slice(colon + 2);
        }
        if (frame.data) yield frame;
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

export interface Opened {
  path: string;
  /** Headers of the next request. */
  headers?: () => Record<string, string>;
  /** Receives an event with its id. Returns whether it was the last. */
  take: (event: never, id: string) => boolean;
  link: Signal<Link>;
  /** Receives an error that cannot be retried. */
  fail: (error: unknown) => void;
}

/** Keeps a stream open: requests it again when the connection is lost. Returns a function that stops. */
export function keepOpen({ path, headers, take, link, fail }: Opened): () => void {
  const stop = new AbortController();
  let wait = FIRST_WAIT;

  async function once(): Promise<boolean> {
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    stop.signal.addEventListener("abort", abort);
    addEventListener("offline", abort);
    let watch = setTimeout(abort, SILENCE);
    const heard = () => {
      clearTimeout(watch);
      watch = setTimeout(abort, SILENCE);
    };
    try {
      const response = await ask(path, { headers: { Accept: "text/event-stream", ...headers?.() }, signal: attempt.signal });
      link.value = "live";
      let over = false;
      for await (const frame of frames(response.body as ReadableStream<Uint8Array>, heard)) {
        wait = FIRST_WAIT;
        const said = JSON.parse(frame.data);
        if (frame.event === "error") throw new Failure(said.error?.code ?? 500, said.error?.message ?? "The stream failed.");
        over = take(said as never, frame.id);
      }
      return over;
    } finally {
      clearTimeout(watch);
      stop.signal.removeEventListener("abort", abort);
      removeEventListener("offline", abort);
    }
  }

  async function on(): Promise<void> {
    link.value = "connecting";
    while (!stop.signal.aborted) {
      try {
        if (await once()) {
          link.value = "ended";
          return;
        }
      } catch (error) {
        if (stop.signal.aborted) return;
        const refused = error instanceof Failure && error.status >= 400 && error.status < 500 && error.status !== 429;
        if (refused) {
          link.value = "failed";
          fail(error);
          return;
        }
      }
      if (stop.signal.aborted) return;
      link.value = "lost";
      await pause(wait, stop.signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  void on();
  return () => stop.abort();
}

export interface Followed {
  tenant: string;
  id: string;
  /** Receives an event with its number. Returns whether it ends the task. */
  take: (event: StreamResponse, sequence: number) => boolean;
  link: Signal<Link>;
  /** Receives an error that cannot be retried. */
  fail: (error: unknown) => void;
}

/** Follows a task from its first event. Returns a function that stops. */
export function follow({ tenant, id, take, link, fail }: Followed): () => void {
  let cursor = "0";
  return keepOpen({
    path: `${pathOf(tenant)}/tasks/${segment(id)}:subscribe`,
    headers: () => ({ "Last-Event-ID": cursor }),
    take: (event: StreamResponse, position: string) => {
      const over = take(event, Number(position.slice(position.lastIndexOf(".") + 1)));
      cursor = position || cursor;
      return over;
    },
    link,
    fail,
  });
}

/** Waits this number of milliseconds, or until the browser is online or the wait is aborted. */
function pause(milliseconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      stop.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end);
    stop.addEventListener("abort", end);
  });
}
