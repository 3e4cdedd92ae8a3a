// Asking the server again and again while somebody looks.

import { useEffect, useState } from "preact/hooks";
import { key } from "./server";

export interface Asked<T> {
  value: T | undefined;
  error: unknown;
  /** Asks at once. */
  again: () => void;
}

/**
 * What `ask` gives, anew every `every` milliseconds while the page is seen (0: once), and whenever one of `about` changes.
 * What was there stays there until something newer comes; a failure is told beside it.
 */
export function useAsked<T>(ask: (signal: AbortSignal) => Promise<T>, every: number, about: readonly unknown[]): Asked<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);
  const who = key.value;
  useEffect(() => setValue(undefined), [...about, who]);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async () => {
      if (!document.hidden) {
        try {
          const found = await ask(stop.signal);
          if (stop.signal.aborted) return;
          setValue(found);
          setError(undefined);
        } catch (failed) {
          if (stop.signal.aborted) return;
          setError(failed);
        }
      }
      if (every) timer = setTimeout(() => void turn(), every);
    };
    const seen = () => {
      if (document.hidden || !every) return;
      clearTimeout(timer);
      void turn();
    };
    document.addEventListener("visibilitychange", seen);
    void turn();
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...about, who, every, round]);
  return { value, error, again: () => setRound((before) => before + 1) };
}
