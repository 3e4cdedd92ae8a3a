// Polls the server while the page is visible.

import { useEffect, useRef, useState } from "preact/hooks";
import { key } from "./api";

const PATIENCE = 5_000; // a call that takes longer is aborted by `again`
const NOTHING = () => {};

export interface Asked<T> {
  value: T | undefined;
  error: unknown;
  /** Polls at once. A call that has just begun ends first, so that many clicks do not keep its result away. */
  again: () => void;
}

/**
 * Returns the latest result of `ask`, repeated every `every` milliseconds while the page is visible (0: once); `every`
 * may depend on the result. A change in `about` clears the result and asks again. A change in `since` asks again but
 * keeps the result until the next one; so does a failed call.
 */
export function useAsked<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  every: number | ((value: T | undefined) => number),
  about: readonly unknown[],
  since: readonly unknown[] = [],
): Asked<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<unknown>();
  const poll = useRef(NOTHING);
  const who = key.value;
  useEffect(() => setValue(undefined), [...about, who]);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let running: { stop: AbortController; began: number } | undefined;
    let [waits, repeats] = [false, false];
    const turn = async (): Promise<void> => {
      if (running && Date.now() - running.began < PATIENCE) {
        repeats = true;
        return;
      }
      running?.stop.abort();
      running = undefined;
      clearTimeout(timer);
      waits = document.hidden;
      if (waits) return; // until the page is visible
      const { stop } = (running = { stop: new AbortController(), began: Date.now() });
      repeats = false;
      let found: T | undefined;
      try {
        found = await ask(stop.signal);
        if (stop.signal.aborted) return;
        setValue(found);
        setError(undefined);
      } catch (failed) {
        if (stop.signal.aborted) return;
        setError(failed);
      }
      running = undefined;
      if (repeats) return turn();
      const next = typeof every === "number" ? every : every(found);
      if (next) timer = setTimeout(() => void turn(), next);
    };
    const seen = () => {
      if (waits && !document.hidden) void turn();
    };
    document.addEventListener("visibilitychange", seen);
    poll.current = () => void turn();
    void turn();
    return () => {
      poll.current = NOTHING;
      running?.stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...about, ...since, who]);
  return { value, error, again: () => poll.current() };
}
