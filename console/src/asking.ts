// Polls the server while the page is visible.

import { useEffect, useState } from "preact/hooks";
import { key } from "./server";

export interface Asked<T> {
  value: T | undefined;
  error: unknown;
  /** Polls at once. */
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
  const [round, setRound] = useState(0);
  const who = key.value;
  useEffect(() => setValue(undefined), [...about, who]);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let waits = false;
    const turn = async () => {
      clearTimeout(timer);
      waits = document.hidden;
      if (waits) return; // until the page is visible
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
      const next = typeof every === "number" ? every : every(found);
      if (next) timer = setTimeout(() => void turn(), next);
    };
    const seen = () => {
      if (waits && !document.hidden) void turn();
    };
    document.addEventListener("visibilitychange", seen);
    void turn();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...about, ...since, who, round]);
  return { value, error, again: () => setRound((before) => before + 1) };
}
