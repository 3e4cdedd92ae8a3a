// Formats times, sizes and ids.

import { signal } from "@preact/signals";

/** Current time in milliseconds, updated every second, for texts such as "3 s ago". */
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);

const pad = (value: number, digits = 2) => String(value).padStart(digits, "0");

/** Local time of day, to the millisecond. */
export function formatTimeOfDay(time: string | number | undefined): string {
  if (!time) return "";
  const at = new Date(time);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
}

export function formatIsoTime(time: string | number | undefined): string {
  return time ? new Date(time).toISOString() : "";
}

/** Elapsed time: `12 s`, `3 min`, `2 h`, `5 d`. */
export function formatTimeSince(time: string | number | undefined): string {
  if (!time) return "";
  return formatCoarseDuration(now.value - new Date(time).getTime());
}

export function formatCoarseDuration(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** A duration with two digits or more: `12 ms`, `3.4 s`, `2 min 5 s`, `3 h 7 min`. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds < 1_000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1_000).toFixed(1)} s`;
  const seconds = Math.floor(milliseconds / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}

export function formatBytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

/** The end of a long id. Ids of the same second have the same beginning. */
export function shortId(id: string): string {
  return id.length > 13 ? `…${id.slice(-12)}` : id;
}

export function plural(number: number, word: string): string {
  return `${formatNumber(number)} ${word}${number === 1 ? "" : "s"}`;
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** A number with separators: `12,345`. */
export function formatNumber(value: number): string {
  return value.toLocaleString("en");
}

/** A number that may be too low: `12`, `1,000+`; `?` where nothing was found before the search ended early. */
export function formatCount({ count: value, isMinimum }: { count: number; isMinimum: boolean }): string {
  if (isMinimum) return value ? `${formatNumber(value)}+` : "?";
  return formatNumber(value);
}

/** A number with at most four characters and a unit: `987`, `12.3K`, `4M`. */
export function formatCompact(value: number): string {
  return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}

/** A cost without its currency, which only the operator knows: `1,204.50`, `0.0042`. */
export function formatCost(value: number): string {
  if (value === 0) return "0";
  if (value < 1) return String(Number(value.toPrecision(2)));
  return value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

/** A part of a whole: `3.2 %`, `4.0 %`, `12 %`; `<0.1 %` for less. */
export function formatPercent(part: number, whole: number): string {
  if (part === 0 || whole === 0) return "0 %";
  const value = (part / whole) * 100;
  return value < 0.1 ? "<0.1 %" : `${value.toFixed(value < 10 ? 1 : 0)} %`;
}

/** A text without the marks of Markdown, which would be noise in one line. */
export function withoutMarkdown(text: string): string {
  return text
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replaceAll(/(\*\*|__|`)(?=\S)(.+?)\1/g, "$2")
    .replaceAll(/^\s*(#{1,6}|>|[-*])\s+/gm, "");
}
