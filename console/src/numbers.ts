// Parses `/metrics` (the text format of Prometheus), and computes rates from two readings.

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

export type Numbers = Map<string, Sample[]>;

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function read(text: string): Numbers {
  const found: Numbers = new Map();
  for (const line of text.split("\n")) {
    const parsed = line.startsWith("#") ? null : LINE.exec(line);
    if (!parsed?.[1]) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (parsed[2] ?? "").matchAll(LABEL)) {
      if (name) labels[name] = (value ?? "").replace(/\\(.)/g, (_, letter: string) => (letter === "n" ? "\n" : letter));
    }
    const samples = found.get(parsed[1]) ?? [];
    samples.push({ labels, value: parsed[3] === "+Inf" ? Infinity : Number(parsed[3]) });
    found.set(parsed[1], samples);
  }
  return found;
}

export type Fits = (labels: Record<string, string>) => boolean;

const all: Fits = () => true;

/** The sum of the matching samples; 0 without samples, because a series appears with its first event. */
export function sum(numbers: Numbers, name: string, fits: Fits = all): number {
  return (numbers.get(name) ?? []).filter((one) => fits(one.labels)).reduce((total, one) => total + one.value, 0);
}

export function most(numbers: Numbers, name: string): number {
  return Math.max(0, ...(numbers.get(name) ?? []).map((one) => one.value));
}

/** Increase per second of a counter. Counters restart at 0 with the server. */
export function rate(before: Numbers, after: Numbers, seconds: number, name: string, fits: Fits = all): number {
  const now = sum(after, name, fits);
  const then = sum(before, name, fits);
  return (now < then ? now : now - then) / seconds;
}

/** The quantile of the values between two readings, interpolated linearly in its bucket; undefined without values. */
export function quantile(before: Numbers, after: Numbers, share: number, name: string, fits: Fits = all): number | undefined {
  const then = buckets(before, name, fits);
  const grown = [...buckets(after, name, fits)].map(([bound, count]): [number, number] => [bound, count - (then.get(bound) ?? 0)]);
  grown.sort(([one], [other]) => one - other);
  const total = grown.at(-1)?.[1] ?? 0;
  if (total <= 0) return undefined;
  const rank = share * total;
  let low = 0;
  let below = 0;
  for (const [bound, count] of grown) {
    if (count >= rank) {
      if (bound === Infinity) return low;
      return low + ((bound - low) * (rank - below)) / Math.max(count - below, 1);
    }
    low = bound;
    below = count;
  }
  return low;
}

function buckets(numbers: Numbers, name: string, fits: Fits): Map<number, number> {
  const found = new Map<number, number>();
  for (const { labels, value } of numbers.get(`${name}_bucket`) ?? []) {
    if (!fits(labels)) continue;
    const bound = labels["le"] === "+Inf" ? Infinity : Number(labels["le"]);
    found.set(bound, (found.get(bound) ?? 0) + value);
  }
  return found;
}
