// Parses `/metrics` (the text format of Prometheus).

import { ApiError, request } from "./api";

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

export type Metrics = Map<string, Sample[]>;

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** The server's metrics; undefined for callers without the grant, and if they have a port of their own. */
export async function fetchMetrics(signal: AbortSignal): Promise<Metrics | undefined> {
  try {
    return parseMetrics(await (await request("metrics", { headers: { Accept: "text/plain" }, signal })).text());
  } catch (error) {
    if (error instanceof ApiError && [401, 403, 404].includes(error.status)) return undefined;
    throw error;
  }
}

function parseMetrics(text: string): Metrics {
  const found: Metrics = new Map();
  for (const line of text.split("\n")) {
    const parsed = line.startsWith("#") ? null : LINE.exec(line);
    if (!parsed?.[1]) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (parsed[2] ?? "").matchAll(LABEL)) {
      if (name) labels[name] = (value ?? "").replace(/\\(.)/g, (_, character: string) => (character === "n" ? "\n" : character));
    }
    const samples = found.get(parsed[1]) ?? [];
    samples.push({ labels, value: parsed[3] === "+Inf" ? Infinity : Number(parsed[3]) });
    found.set(parsed[1], samples);
  }
  return found;
}

/** The largest of the values; 0 without values, because a series appears with its first event. */
export function maxValue(metrics: Metrics | undefined, name: string): number {
  return Math.max(0, ...(metrics?.get(name) ?? []).map((sample) => sample.value));
}
